"""An engine that computes nothing and emits the same few words, so that only the gateway is measured.

Paced (`interval_ms` > 0), all streams advance together, as in a real engine's batch. Flat out (0), each stream emits
its next token on demand.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from gateway import hookimpl
from gateway.plugins.hookspecs import EngineContext, OpenEngine, Register
from gateway.plugins.protocols import (
    AddedToken,
    Capability,
    EngineOutput,
    EngineRequest,
    FinishReason,
    ModelInfo,
    Tokenizer,
)
from gateway_harmony.encoding import harmony

WORD = " token"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOL_TEMPLATE = (  # as Qwen3's, without what concerns reasoning
    "{%- if tools -%}<|im_start|>system\n"
    "{%- if messages[0].role == 'system' -%}{{ messages[0].content + '\n\n' }}{%- endif -%}"
    "# Tools\n<tools>{%- for tool in tools -%}{{ '\n' }}{{ tool | tojson }}{%- endfor -%}\n</tools><|im_end|>\n"
    "{%- elif messages[0].role == 'system' -%}"
    "{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}"
    "{%- endif -%}"
    "{%- for message in messages -%}"
    "{%- if message.role == 'user' or (message.role == 'system' and not loop.first) -%}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- elif message.role == 'assistant' -%}"
    "{{ '<|im_start|>assistant\n' + (message.content or '') }}"
    "{%- for call in message.tool_calls or [] -%}"
    "{%- if not loop.first or message.content -%}{{ '\n' }}{%- endif -%}"
    "{%- set function = call.function or call -%}"
    '{{ \'<tool_call>\n{"name": "\' + function.name + \'", "arguments": \' }}'
    "{%- if function.arguments is string -%}{{ function.arguments }}"
    "{%- else -%}{{ function.arguments | tojson }}{%- endif -%}"
    "{{ '}\n</tool_call>' }}"
    "{%- endfor -%}{{ '<|im_end|>\n' }}"
    "{%- elif message.role == 'tool' -%}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{ '<|im_start|>user' }}{%- endif -%}"
    "{{ '\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{ '<|im_end|>\n' }}{%- endif -%}"
    "{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
_CONTROL = {"<|im_start|>": 1, "<|im_end|>": 2}
_CONTROL_TOKEN = re.compile("(<\\|im_(?:start|end)\\|>)")


class Ticker:
    """Wakes all waiters once per interval."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: list[asyncio.Future[None]] = []
        self._pushing: list[_Pushing] = []
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._loop.call_later(self._seconds, self._tick)
        for future in waiting:
            if not future.done():
                future.set_result(None)
        self._pushing = [each for each in self._pushing if each.push()]

    def next(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        return future

    async def push(
        self, make: Callable[[], EngineOutput], push: Callable[[EngineOutput], bool], most: int
    ) -> int:
        """Push an output at each tick, until one is refused or `most` are taken, and the next tick has come. Returns their number."""
        pushing = _Pushing(make, push, most, self._loop.create_future())
        self._pushing.append(pushing)
        await pushing.refused
        return most - pushing.left


class _Pushing:
    """Outputs that are pushed by a ticker."""

    __slots__ = ("_make", "_push", "left", "refused")

    def __init__(
        self,
        make: Callable[[], EngineOutput],
        push: Callable[[EngineOutput], bool],
        left: int,
        refused: asyncio.Future[None],
    ) -> None:
        self._make, self._push, self.left, self.refused = make, push, left, refused

    def push(self) -> bool:
        """Push the next one. Returns whether there may be more."""
        if self.refused.done():  # the request was aborted
            return False
        if self.left and self._push(self._make()):
            self.left -= 1
            return True
        self.refused.set_result(None)
        return False


class NullTokenizer:
    """One token per four characters, because the engine reads nothing. Its control tokens are those of ChatML."""

    added_tokens: Mapping[str, AddedToken] = {
        text: AddedToken(id=token, special=True, divides=True) for text, token in _CONTROL.items()
    }

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        ids: list[int] = []
        for piece in _CONTROL_TOKEN.split(text):
            if piece in _CONTROL:
                ids.append(_CONTROL[piece])
            else:
                ids += [0] * ((len(piece) + 3) // 4)
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return WORD * len(token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return WORD.encode()


class GptOssTokenizer:
    """The vocabulary of gpt-oss, so that Harmony is rendered and parsed as with the real model."""

    def __init__(self) -> None:
        self._encoding = harmony()

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        ids: list[int] = self._encoding.encode(text, allowed_special="all")
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        text: str = self._encoding.decode(token_ids)
        return text

    def token_bytes(self, token_id: int) -> bytes:
        return self.decode([token_id]).encode()


class NullConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pace of the engine, whether it uses Harmony like gpt-oss, and whether its template takes tools."""

    interval_ms: float = 0
    harmony: bool = False
    tools: bool = False


class NullEngine:
    """The engine described in the module's docstring."""

    capabilities: frozenset[Capability] = frozenset({"tokens"})

    def __init__(self, name: str, config: NullConfig) -> None:
        self.info = ModelInfo(
            name=name,
            engine="null",
            chat_template=TOOL_TEMPLATE if config.tools else TEMPLATE,
            max_model_len=1_000_000,
        )
        self.tokenizer: Tokenizer = GptOssTokenizer() if config.harmony else NullTokenizer()
        head = "<|channel|>final<|message|>" if config.harmony else ""
        self._head = (
            EngineOutput(text=head, token_ids=self.tokenizer.encode(head)) if head else None
        )
        self._word_ids = tuple(self.tokenizer.encode(WORD)) if head else (0,)
        self._ticker = Ticker(config.interval_ms / 1000) if config.interval_ms else None

    async def check(self, request: EngineRequest) -> None:
        """Accept every request."""

    async def health(self) -> None:
        """Always healthy."""

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        return self.generate_pushing(request, lambda output: False)

    async def generate_pushing(
        self, request: EngineRequest, push: Callable[[EngineOutput], bool]
    ) -> AsyncGenerator[EngineOutput, None]:
        ticker, word_ids = self._ticker, self._word_ids
        if self._head is not None:
            yield self._head
        left = request.sampling.max_tokens or 16
        make = partial(EngineOutput, text=WORD, token_ids=word_ids)
        while left:
            if ticker:
                left -= await ticker.push(make, push, left - 1)
            else:
                await asyncio.sleep(0)
            left -= 1
            reason: FinishReason | None = None if left else "length"
            yield EngineOutput(text=WORD, token_ids=word_ids, finish_reason=reason)


@asynccontextmanager
async def open_null(config: NullConfig, context: EngineContext) -> AsyncIterator[NullEngine]:
    yield NullEngine(context.name, config)


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register("null", open_null, config=NullConfig, summary="Computes nothing; for benchmarks.")

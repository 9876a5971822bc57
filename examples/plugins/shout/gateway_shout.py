"""An engine plugin: it repeats the user's last words in capitals.

A real engine differs only in what `generate` awaits. Install it (`pip install -e .`) and select it with `engine = "shout"`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from gateway.sdk import (
    Capability,
    EngineContext,
    EngineOutput,
    EngineRequest,
    InvalidRequest,
    ModelInfo,
    OpenEngine,
    Register,
    TokensPrompt,
    Unsupported,
    hookimpl,
)

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[models.<name>.shout]` in gateway.toml."""

    suffix: str = "!"


class ByteTokenizer:
    """One token per byte of UTF-8."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return bytes(token_ids).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])


class ShoutEngine:
    """Has no state except its settings, so any number of requests may run concurrently."""

    capabilities: frozenset[Capability] = frozenset({"tokens"})

    def __init__(self, name: str, max_model_len: int, suffix: str) -> None:
        self.info = ModelInfo(
            name=name, engine="shout", chat_template=TEMPLATE, max_model_len=max_model_len
        )
        self.tokenizer = ByteTokenizer()
        self._suffix = suffix
        self._room = max_model_len

    async def health(self) -> None:
        """Always healthy."""

    async def check(self, request: EngineRequest) -> None:
        token_ids = self._prompt(request)
        if request.constraint is not None:
            raise Unsupported("This engine cannot enforce a format.", param=("text", "format"))
        for name in ("logit_bias", "bad_words"):
            if getattr(request.sampling, name):
                raise Unsupported(f"This engine cannot do {name}. Leave it out.", param=name)
        if any(not 0 <= token < 256 for token in token_ids):
            raise InvalidRequest("A token id is outside the vocabulary of 256.", param="input")
        if len(token_ids) >= self._room:
            raise InvalidRequest(
                f"The input has {len(token_ids)} tokens; at most {self._room} of input and output together are possible. "
                "Shorten it.",
                param="input",
                code="context_length_exceeded",
            )

    def _prompt(self, request: EngineRequest) -> Sequence[int]:
        if not isinstance(request.prompt, TokensPrompt) or not request.prompt.token_ids:
            raise InvalidRequest("This engine takes a prompt of token ids.", param="input")
        return request.prompt.token_ids

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        await self.check(request)
        token_ids, sampling = self._prompt(request), request.sampling
        asked = self.tokenizer.decode(token_ids).rpartition("user:")[2].partition("\n")[0]
        answer = asked.upper() + self._suffix
        stops = [stop for stop in sampling.stop if stop in answer]
        stopped_by = min(stops, key=answer.index) if stops else None
        if stopped_by is not None:
            kept = len(stopped_by) if sampling.include_stop_str_in_output else 0
            answer = answer[: answer.index(stopped_by) + kept]
        room = self._room - len(token_ids)
        left = min(sampling.max_tokens or room, room)
        for character in answer:
            made = self.tokenizer.encode(character)
            if len(made) > left:
                yield EngineOutput(finish_reason="length")
                return
            if made[0] in sampling.stop_token_ids:
                yield EngineOutput(finish_reason="stop", stop_reason=made[0])
                return
            left -= len(made)
            await asyncio.sleep(0)  # a real engine computes here
            yield EngineOutput(text=character, token_ids=made)
        yield EngineOutput(finish_reason="stop", stop_reason=stopped_by)


@asynccontextmanager
async def open_shout(config: Config, context: EngineContext) -> AsyncIterator[ShoutEngine]:
    yield ShoutEngine(context.name, context.max_model_len or 4096, config.suffix)


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register("shout", open_shout, config=Config, summary="Says the last words again, louder.")

"""An engine plugin: it says the user's last words again, louder.

A real engine differs in what `generate` awaits. Install it (`pip install -e .`) and choose it by `engine = "shout"`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from gateway import hookimpl
from gateway.errors import InvalidRequest
from gateway.hookspecs import EngineContext, OpenEngine, Register
from gateway.protocols import Capability, EngineOutput, EngineRequest, ModelInfo, TokensPrompt

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[models.<name>.shout]` in gateway.toml."""

    suffix: str = "!"


class ByteTokenizer:
    """A token is a byte of UTF-8."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return bytes(token_ids).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])


class ShoutEngine:
    """Holds nothing but its settings: any number of requests may run at once."""

    capabilities: frozenset[Capability] = frozenset({"tokens"})

    def __init__(self, name: str, max_model_len: int, suffix: str) -> None:
        self.info = ModelInfo(
            name=name, engine="shout", chat_template=TEMPLATE, max_model_len=max_model_len
        )
        self.tokenizer = ByteTokenizer()
        self._suffix = suffix

    async def health(self) -> None:
        """Nothing can break."""

    async def check(self, request: EngineRequest) -> None:
        prompt = request.prompt
        assert isinstance(prompt, TokensPrompt), "`messages` is not among the capabilities"
        if any(not 0 <= token < 256 for token in prompt.token_ids):
            raise InvalidRequest("A token id is outside the vocabulary of 256.", param="input")
        if len(prompt.token_ids) >= (self.info.max_model_len or 0):
            raise InvalidRequest(
                f"The input has {len(prompt.token_ids)} tokens; at most {self.info.max_model_len} "
                "of input and output together are possible. Shorten it.",
                param="input",
                code="context_length_exceeded",
            )

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        await self.check(request)
        assert isinstance(request.prompt, TokensPrompt)
        prompt = self.tokenizer.decode(request.prompt.token_ids)
        asked = prompt.rpartition("user:")[2].partition("\n")[0]
        answer = asked.upper() + self._suffix
        room = (self.info.max_model_len or 0) - len(request.prompt.token_ids)
        limit = min(request.sampling.max_tokens or room, room)
        used = 0
        for character in answer:
            token_ids = self.tokenizer.encode(character)
            if used + len(token_ids) > limit:
                yield EngineOutput(finish_reason="length")
                return
            used += len(token_ids)
            await asyncio.sleep(0)  # a real engine computes here
            yield EngineOutput(text=character, token_ids=token_ids)
        yield EngineOutput(finish_reason="stop")


@asynccontextmanager
async def open_shout(config: Config, context: EngineContext) -> AsyncIterator[ShoutEngine]:
    yield ShoutEngine(context.name, context.max_model_len or 4096, config.suffix)


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register("shout", open_shout, config=Config, summary="Says the last words again, louder.")

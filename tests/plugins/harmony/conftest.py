"""What the tests of Harmony share: the vocabulary of gpt-oss as an engine's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import ModelInfo
from gateway_harmony.encoding import harmony


class GptOssTokenizer:
    """Satisfies `gateway.plugins.protocols.Tokenizer` as an engine that serves gpt-oss does."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        ids: list[int] = harmony().encode(text, allowed_special="all")
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        text: str = harmony().decode(token_ids)
        return text

    def token_bytes(self, token_id: int) -> bytes:
        try:
            return bytes(harmony()._inner.decode_bytes([token_id]))
        except BaseException as unknown:
            raise ValueError(f"{token_id} is not a token id") from unknown


@pytest.fixture(scope="session")
def gpt_oss_tokenizer() -> GptOssTokenizer:
    return GptOssTokenizer()


@pytest.fixture(scope="session")
def gpt_oss(gpt_oss_tokenizer: GptOssTokenizer) -> ModelContext:
    return ModelContext(info=ModelInfo(name="gpt-oss", engine="test"), tokenizer=gpt_oss_tokenizer)

"""The sampling parameters of all generating endpoints: OpenAI's, and those of self-hosted engines."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from gateway.wire.common import Wire

MAX_INT = 2**31 - 1
Count: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_INT)]
Natural: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
TokenId: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
Stop: TypeAlias = Annotated[str, Meta(max_length=4096)]
"""Bounded in number and length, because every token is compared with all of them."""
Stops: TypeAlias = Annotated[list[Stop], Meta(max_length=256)]
Bias: TypeAlias = Annotated[float, Meta(ge=-100, le=100)]
Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]


class SamplingParameters(Wire, kw_only=True, omit_defaults=True, dict=True):
    """Base of generating requests. None means that the field was missing or null.

    The second block follows vLLM's names and ranges.
    """

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Stop | Stops | None = None
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=1024)] | None = None

    top_k: Annotated[int, Meta(ge=-1, le=MAX_INT)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=1024)] | None = None
    include_stop_str_in_output: bool | None = None
    min_tokens: Natural | None = None
    ignore_eos: bool | None = None
    bad_words: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(max_length=128)]
        | None
    ) = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    priority: Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)] | None = None

    @property
    def unknown(self) -> list[str]:
        """Names of unknown parameters, which are accepted and counted. Not part of the encoded request."""
        names: list[str] = self.__dict__.setdefault("unknown_names", [])
        return names

"""What every generating endpoint takes for sampling: OpenAI's parameters, and those of self-hosted engines beyond them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from gateway.wire.common import Wire

MAX_INT = 2**31 - 1
Count: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_INT)]
Natural: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
TokenId: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]


class SamplingParameters(Wire, kw_only=True, omit_defaults=True, dict=True):
    """Base of the requests that generate. None means that the client did not say, or said null.

    The second block goes by vLLM's names and ranges.
    """

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None

    top_k: Annotated[int, Meta(ge=-1, le=MAX_INT)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool | None = None
    min_tokens: Natural | None = None
    ignore_eos: bool | None = None
    bad_words: list[str] | None = None
    cache_salt: Annotated[str, Meta(min_length=1)] | None = None
    priority: Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)] | None = None

    @property
    def unknown(self) -> list[str]:
        """Names of the parameters that nobody knows: accepted, and counted. Not part of the encoded request."""
        names: list[str] = self.__dict__.setdefault("unknown_names", [])
        return names

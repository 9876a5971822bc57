"""As of 1.4."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class SchedulingParams:
    attention_dp_rank: int | None = None
    attention_dp_relax: bool | None = None

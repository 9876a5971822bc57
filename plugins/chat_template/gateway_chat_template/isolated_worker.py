"""Code of the helper processes that evaluate templates from requests."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway_chat_template.environment import Template
from gateway_chat_template.features import find_features
from gateway_chat_template.marked_text import parts_of


def inspect(source: str, tokens: Mapping[str, str]) -> tuple[list[str], dict[str, Any]]:
    """The names of the variables that a template reads, and its `Features`. Raises what compiling it raises."""
    template = Template(source)
    features = find_features(template, tokens)
    return sorted(template.variables), msgspec.structs.asdict(features)


def render(source: str, variables: bytes, today: str | None, limit: int) -> list[tuple[str, int]]:
    """The rendered parts, each with its `Origin`. `variables` are pickled by the gateway, which keeps their marks."""
    given = pickle.loads(variables)  # noqa: S301 (from the gateway, to a process that has less rights than it)
    text = Template(source).render(given, today=today, limit=limit)
    return [(part, int(origin)) for part, origin in parts_of(text)]

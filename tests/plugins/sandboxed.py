"""Gateways and tool servers that need sandboxes, for tests that are skipped where there are none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError
from gateway_container.config import ContainersConfig
from gateway_container.containers import Containers
from gateway_container.plugin import open_resource

FAMILIES = ("qwen3", "harmony")


def family_models(rules: Callable[[str], list[dict[str, Any]]]) -> dict[str, Any]:
    """The models `qwen3` and `harmony` of a configuration, with the rules of each."""
    return {
        family: {
            "engine": "scripted",
            "parser": family,
            **({"renderer": family} if family == "harmony" else {}),
            "scripted": {"rules": rules(family)},
        }
        for family in FAMILIES
    }


def or_skip(start: Callable[[], Any]) -> Any:
    """What `start` returns. Skips the test where there are no sandboxes."""
    try:
        return start()
    except ConfigurationError as error:
        if "cannot keep code apart" in str(error):
            pytest.skip(str(error))
        raise


@asynccontextmanager
async def opened_containers() -> AsyncIterator[Containers]:
    """The resource `containers`. Skips the test where there are no sandboxes."""
    context = open_resource(ContainersConfig(max_running=4, start_timeout=60.0))
    try:
        containers = await context.__aenter__()
    except ConfigurationError as error:
        pytest.skip(str(error))
    try:
        yield containers
    finally:
        await context.__aexit__(None, None, None)

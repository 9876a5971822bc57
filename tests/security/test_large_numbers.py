"""Whole numbers beyond 64 bits in a client's JSON are stored, or refused with a sentence; they were errors of the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.base.constraints import JsonSchema
from gateway.base.errors import Unsupported
from gateway.engines.compiling import encoded
from gateway.storage.packing import pack, unpack_item
from gateway.wire.items import McpListTools
from gateway_testing.server import run_gateway

NUMBERS = [1 << 64, -(1 << 63) - 1, 10**30, -(10**400)]


def schema(number: int) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "integer", "maximum": number}}}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    config = {"models": {"m": {"engine": "scripted"}}}
    with (
        run_gateway(config, tmp_path_factory.mktemp("numbers")) as gateway,
        httpx.Client(base_url=gateway.base_url, timeout=60) as client,
    ):
        yield client


@pytest.mark.parametrize("number", NUMBERS)
def test_a_response_with_them_is_stored(http: httpx.Client, number: int) -> None:
    tool = {"type": "function", "name": "f", "parameters": schema(number)}
    answer = http.post("/responses", json={"model": "m", "input": "x", "tools": [tool]})
    assert answer.status_code == 200, answer.text
    found = http.get(f"/responses/{answer.json()['id']}")
    assert found.status_code == 200, found.text


@pytest.mark.parametrize("number", NUMBERS)
def test_items_with_them_are_stored(http: httpx.Client, number: int) -> None:
    tool = {"name": "f", "input_schema": schema(number)}
    item = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "a", "tools": [tool]}
    answer = http.post("/conversations", json={"items": [item]})
    assert answer.status_code == 200, answer.text


def test_other_numbers_are_kept_as_they_are() -> None:
    numbers = {"n": [(1 << 64) - 1, -(1 << 63), 0.5, True, "1", None], "large": 1 << 64}
    tools = [{"name": "f", "input_schema": numbers}]
    item = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "a", "tools": tools}
    found = unpack_item(pack(item), of="the item")
    assert isinstance(found, McpListTools)
    assert found.tools[0].input_schema == {**numbers, "large": float(1 << 64)}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_schema_with_them_is_not_compiled(number: int) -> None:
    with pytest.raises(Unsupported, match="64 bits"):
        encoded(JsonSchema(schema(number)))

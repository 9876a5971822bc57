"""Images in results of the gateway's tools: models that see get them after the result, also behind an upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gateway import hookimpl
from gateway.plugins.protocols import (
    ServerTool,
    ToolCall,
    ToolDefinition,
    ToolImage,
    ToolResult,
    ToolServer,
)
from gateway.tools.output import seen_images, with_notes
from gateway_testing.server import RunningGateway, run_gateway
from tests.media_files import BLUE, RED

SHOTS = {"shoot": RED, "blue": BLUE, "broken": b"no image"}
SEES = [
    {"when": "please shoot", "pieces": [{"call": {"name": "shoot", "arguments": {}}}]},
    {"when": "please blue", "pieces": [{"call": {"name": "blue", "arguments": {}}}]},
    {"when": "please broken", "pieces": [{"call": {"name": "broken", "arguments": {}}}]},
    {"when": "[image 4x3", "pieces": [{"text": "I see red."}]},
    {"when": "[image 40x30", "pieces": [{"text": "I see blue."}]},
    {"when": "cannot be shown", "pieces": [{"text": "I read a note."}]},
    {"when": "[image/png, 8 bytes]", "pieces": [{"text": "I see nothing."}]},
]


class Camera(ToolServer):
    """Tools that take screenshots."""

    label = "camera"

    async def tools(self) -> Sequence[ServerTool]:
        return [ServerTool(definition=ToolDefinition(name=name)) for name in SHOTS]

    async def call(self, call: ToolCall) -> ToolResult:
        return ToolResult(
            text="click", images=[ToolImage(data=SHOTS[call.name], media_type="image/png")]
        )


class Plugin:
    @asynccontextmanager
    async def open(self, config: Any) -> AsyncIterator[Camera]:
        yield Camera()

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("camera", self.open)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    def scripted(*media: str) -> dict[str, Any]:
        return {"engine": "scripted", "scripted": {"rules": SEES, "media": list(media)}}

    seeing = {"models": {"m": scripted("image")}}
    with run_gateway(seeing, tmp_path_factory.mktemp("upstream")) as upstream:

        def behind(api: str, **takes: bool) -> dict[str, Any]:
            told = {"base_url": upstream.base_url, "api": api, "model": "m", "takes": takes}
            return {"engine": "openai", "openai": told}

        models = {
            "seeing": scripted("image"),
            "blind": scripted(),
            "chat": behind("chat"),
            "responses": behind("responses"),
            "blind-chat": behind("chat", images=False),
        }
        config = {
            "models": models,
            "tools": {"camera": {}},
            "media": {"max_parts": 2},
        }
        with run_gateway(config, tmp_path_factory.mktemp("camera"), plugins=[Plugin()]) as running:
            yield running


def respond(gateway: RunningGateway, model: str, text: str, **more: Any) -> Any:
    body = {"model": model, "input": text, **more}
    return httpx.post(f"{gateway.base_url}/responses", json=body, timeout=60).json()


def said(response: Any) -> str:
    return str(response["output"][-1]["content"][0]["text"])


@pytest.mark.parametrize("model", ["seeing", "chat", "responses"])
def test_a_screenshot_is_seen_in_the_next_turn(gateway: RunningGateway, model: str) -> None:
    for name, seen in (("shoot", "I see red."), ("blue", "I see blue.")):
        response = respond(gateway, model, f"please {name}")
        assert said(response) == seen
        size = len(SHOTS[name])
        assert response["output"][0]["output"] == f"click\n[image/png, {size} bytes]"


@pytest.mark.parametrize("model", ["blind", "blind-chat"])
def test_a_model_that_does_not_see_reads_a_note(gateway: RunningGateway, model: str) -> None:
    assert said(respond(gateway, model, "please shoot")) == "I read a note."


@pytest.mark.parametrize("model", ["seeing"])
def test_a_broken_image_is_left_out(gateway: RunningGateway, model: str) -> None:
    assert said(respond(gateway, model, "please broken")) == "I see nothing."


def seen_tokens(gateway: RunningGateway, **body: Any) -> int:
    """What images add to a prompt."""
    url = f"{gateway.base_url}/responses/input_tokens"
    seeing, blind = (
        httpx.post(url, json={"model": model, "input": "and", **body}).json()["input_tokens"]
        for model in ("seeing", "blind")
    )
    return int(seeing - blind)


def test_the_screenshot_stays_in_the_history(gateway: RunningGateway) -> None:
    conversation = httpx.post(f"{gateway.base_url}/conversations", json={}).json()["id"]
    for name, is_seen in (("broken", False), ("blue", True)):
        response = respond(gateway, "seeing", f"please {name}")
        assert (seen_tokens(gateway, previous_response_id=response["id"]) >= 5) is is_seen
        respond(gateway, "seeing", f"please {name}", conversation=conversation)
        assert (seen_tokens(gateway, conversation=conversation) >= 5) is is_seen
    blind = respond(gateway, "blind", "please blue")
    assert seen_tokens(gateway, previous_response_id=blind["id"]) == 0, "it is not stored"


def test_only_the_newest_images_are_shown(gateway: RunningGateway) -> None:
    """`max_parts` is two: a third screenshot does not end the conversation."""
    last = None
    for name in ("shoot", "shoot", "blue", "blue"):
        response = respond(gateway, "seeing", f"please {name}", previous_response_id=last)
        assert response["status"] == "completed"
        last = response["id"]
    assert said(response) == "I see blue."


def test_what_a_model_sees_of_a_result_is_bounded() -> None:
    def image(size: int, media_type: str = "image/png") -> ToolImage:
        return ToolImage(data=bytes(size), media_type=media_type)

    small = [image(3) for _ in range(20)]
    seen, parts = seen_images(small)
    assert len(seen) == len(parts) == 8
    assert with_notes("", small, seen).count("cannot be shown") == 12
    huge = image(9 << 20)
    svg = image(3, "image/svg+xml")
    forged = image(3, "image/png;base64,AAAA\n\ndata:")
    assert seen_images([huge, svg, forged, small[0]])[0] == [small[0]]

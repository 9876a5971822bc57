"""Images in results: items that have a field for them show them, others and the model have a note."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import hookimpl
from gateway.plugins.protocols import (
    CodeDetails,
    ServerTool,
    ToolCall,
    ToolDefinition,
    ToolImage,
    ToolResult,
    ToolServer,
)
from gateway.tools.output import with_notes
from gateway_testing.server import RunningGateway, run_gateway

IMAGE = ToolImage(data=b"12345", media_type="image/png")
NOTE = "[image/png, 5 bytes: cannot be shown here]"


def image(note: str | None = None, place: int | None = None) -> ToolImage:
    return ToolImage(data=b"12345", media_type="image/png", note=note, place=place)


@pytest.mark.parametrize(
    ("text", "images", "told"),
    [
        ("a", [], "a"),
        ("a", [image()], f"a\n{NOTE}"),
        ("", [image(), image("x")], f"{NOTE}\nx"),
        ("a", [image("")], "a"),
        ("a\nb", [image("x", 2)], "a\nx\nb"),
        ("a\nb", [image("z"), image("y", 2), image("x", 0), image("w", 9)], "x\na\ny\nb\nz\nw"),
        ("ab", [image("x", -7)], "x\nab"),
    ],
)
def test_an_image_has_a_note_in_its_place(
    text: str, images: Sequence[ToolImage], told: str
) -> None:
    assert with_notes(text, images) == told


@given(
    st.text("ab\n", max_size=9),
    st.lists(st.builds(image, st.text("xy", max_size=2), st.none() | st.integers(-2, 12))),
)
def test_no_note_and_no_text_is_lost(text: str, images: list[ToolImage]) -> None:
    told = with_notes(text, images)
    kept = iter(told)
    assert all(character in kept for character in text)
    assert sorted(told.replace("\n", "")) == sorted(
        text.replace("\n", "") + "".join(each.note or "" for each in images)
    )


def test_many_images_in_a_long_text_take_linear_time() -> None:
    """With a copy of the text for each image, this would be 200 GB."""
    images = [image("x", place) for place in range(100_000)]
    assert len(with_notes("a" * 2_000_000, images)) == 2_200_000


class Camera(ToolServer):
    """Tools whose results have images."""

    label = "camera"

    async def tools(self) -> Sequence[ServerTool]:
        code = ServerTool(
            definition=ToolDefinition(name="plot"),
            request_type="code_interpreter",
            item_type="code_interpreter_call",
        )
        return [ServerTool(definition=ToolDefinition(name="shoot")), code]

    async def call(self, call: ToolCall) -> ToolResult:
        details = CodeDetails(logs="printed") if call.name == "plot" else None
        return ToolResult(text="click", details=details, images=[IMAGE])


class Plugin:
    @asynccontextmanager
    async def open(self, config: Any) -> AsyncIterator[Camera]:
        yield Camera()

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("camera", self.open)


RULES = [
    {"when": NOTE, "pieces": [{"text": "I read the note."}]},
    *(
        {"when": f"please {name}", "pieces": [{"call": {"name": name, "arguments": {}}}]}
        for name in ("shoot", "plot")
    ),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
        "tools": {"camera": {}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("camera"), plugins=[Plugin()]) as running:
        yield running


def respond(gateway: RunningGateway, text: str) -> Any:
    body = {
        "model": "m",
        "input": text,
        "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
        "include": ["code_interpreter_call.outputs"],
    }
    call, message = httpx.post(f"{gateway.base_url}/responses", json=body).json()["output"]
    assert message["content"][0]["text"] == "I read the note."
    return call


def test_an_item_without_images_and_the_model_read_a_note(gateway: RunningGateway) -> None:
    assert respond(gateway, "please shoot")["output"] == f"click\n{NOTE}"


def test_a_code_interpreter_call_shows_the_image(gateway: RunningGateway) -> None:
    url = f"data:image/png;base64,{b64encode(IMAGE.data).decode()}"
    assert respond(gateway, "please plot")["outputs"] == [
        {"type": "logs", "logs": "printed"},
        {"type": "image", "url": url},
    ]

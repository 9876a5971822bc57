"""Images and files of background responses in stores that gateways share: seen by other processes, and after a death."""

from __future__ import annotations

import base64
import signal
import time
from typing import Any

import httpx
import pytest

from tests.media_files import BLUE, RED, data_url, seen

CONFIG = """
[server]
port = {port}
store = "STORE"
lease_seconds = 2
rerun_lost = true

TABLE

[models.seeing]
engine = "scripted"
max_running = 1
[models.seeing.scripted]
media = ["image"]
rules = [{ when = "at length", delay_ms = 20, repeat = 200, pieces = [{ text = "slow words " }] }]
"""
pytestmark = pytest.mark.slow

TEXT = "A line that is in the file only. " * 3000


@pytest.fixture
def config(any_shared_store: Any) -> str:
    return CONFIG.replace("STORE", any_shared_store.name).replace("TABLE", any_shared_store.table())


def sent(picture: bytes, *words: str) -> list[dict[str, Any]]:
    data = base64.b64encode(TEXT.encode()).decode()
    return [
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": data_url(picture), "detail": "auto"},
                {"type": "input_file", "filename": "lines.txt", "file_data": data},
                *({"type": "input_text", "text": each} for each in words),
            ],
        }
    ]


def post(url: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/v1/responses", json={"model": "seeing", **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def ended(url: str, response_id: str) -> dict[str, Any]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        response: dict[str, Any] = httpx.get(f"{url}/v1/responses/{response_id}", timeout=20).json()
        if response["status"] not in ("queued", "in_progress"):
            return response
        time.sleep(0.05)
    raise AssertionError(f"the response is {response['status']} for ever")


def text_of(response: dict[str, Any]) -> str:
    assert response["status"] == "completed", response
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def test_another_process_shows_and_continues_them(start_server: Any, config: str) -> None:
    one, other = start_server(config), start_server(config)
    made = post(one.url, input=sent(RED, "see"), background=True)["id"]
    first = ended(other.url, made)
    assert seen(text_of(first)) == ["4x3"]
    assert TEXT.strip()[-30:] in text_of(first)
    path = f"{other.url}/v1/responses/{made}/input_items"
    shown = {"include[]": "message.input_image.image_url"}
    items = httpx.get(path, params=shown, timeout=20).json()["data"]
    assert items[0]["content"][0]["image_url"] == data_url(RED), "as it was sent"
    again = post(other.url, input="again", previous_response_id=made, background=True)["id"]
    counted = ended(one.url, again)["usage"]["input_tokens"]
    assert counted > first["usage"]["input_tokens"], "the image and the file are there again"
    # The chain keeps what its first response had, until the last that continues from it is gone.
    assert httpx.delete(f"{one.url}/v1/responses/{made}", timeout=20).status_code == 200
    kept = post(other.url, input="and again", previous_response_id=again)
    assert kept["usage"]["input_tokens"] > counted


def test_a_conversation_shows_them_to_another_process(start_server: Any, config: str) -> None:
    one, other = start_server(config), start_server(config)
    conversation = httpx.post(f"{one.url}/v1/conversations", json={}, timeout=20).json()["id"]
    made = post(one.url, input=sent(BLUE, "see"), conversation=conversation, background=True)["id"]
    counted = ended(other.url, made)["usage"]["input_tokens"]
    # Its items follow the status of a background response.
    path, end = f"{other.url}/v1/conversations/{conversation}/items", time.monotonic() + 60
    while not httpx.get(path, timeout=20).json()["data"]:
        assert time.monotonic() < end
        time.sleep(0.05)
    later = post(other.url, input="again", conversation=conversation)
    assert later["usage"]["input_tokens"] > counted


def test_a_run_whose_process_died_sees_them(start_server: Any, config: str) -> None:
    dying = start_server(config)
    post(dying.url, input="at length", background=True)
    waiting = post(dying.url, input=sent(RED, "see"), background=True)["id"]
    dying.process.send_signal(signal.SIGKILL)
    dying.process.wait()
    living = start_server(config)
    assert seen(text_of(ended(living.url, waiting))) == ["4x3"]

"""`gateway chat` as a process, in pipes and on a terminal, with real servers."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.access.access import hash_key
from gateway.base.errors import ConfigurationError
from gateway.cli import main
from gateway.sdk import hookimpl
from gateway.sdk.tools import functions
from gateway_terminal_chat.images import image_part
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
RULES = [
    {"when": "my name is Ada", "pieces": [{"text": "Hello Ada."}]},
    {"when": "think first", "pieces": [{"reasoning": "Let me see."}, {"text": "Done."}]},
    {"when": "roll the dice", "pieces": [{"call": {"name": "roll", "arguments": {"sides": 6}}}]},
    {"when": "rolled a 4", "pieces": [{"text": "It is four."}]},
    {"when": "go on", "delay_ms": 20, "repeat": 3000, "pieces": [{"text": "on "}]},
    {"when": "be down", "error": {"status": 503, "message": "The engine is away."}},
    {"when": "break", "finish": "error", "pieces": [{"text": "It begins well"}]},
]
NEW = "what now?"
"""Has no rule of its own: answered by the rule of what was said before, or else by an echo."""


def roll(sides: int) -> str:
    """Throw a die."""
    return f"rolled a {min(4, sides)}"


class Tools:
    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("dice", functions("dice", roll))


@pytest.fixture(scope="module", params=["memory", "none"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A server that stores responses, and one that does not."""
    config = {
        "server": {"store": request.param},
        "tools": {"dice": {}},
        "models": {
            "m": {"engine": "scripted", "scripted": {"rules": RULES}},
            "other": {"engine": "scripted"},
        },
    }
    with run_gateway(config, tmp_path_factory.mktemp("chat"), plugins=[Tools()]) as running:
        yield running


def chat(url: str, *arguments: str, stdin: str = "", **environment: str) -> Any:
    """Run the command in pipes."""
    return subprocess.run(
        [sys.executable, "-m", "gateway", "chat", *arguments],
        input=stdin,
        env={**os.environ, "OPENAI_BASE_URL": url, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_in_pipes_the_answer_alone_is_written(gateway: RunningGateway) -> None:
    url = gateway.base_url
    done = chat(url, "m", "--once", "think first")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Done.\n", "")
    assert chat(url, stdin="my name is Ada\n").stdout == "Hello Ada.\n"
    assert chat(url, "--once", "roll", stdin="the dice").stdout.strip() == "roll\n\nthe dice"
    assert chat(url, "other", "--once", "my name is Ada").stdout == "my name is Ada\n"
    assert chat(url.removesuffix("/v1"), stdin="roll the dice").stdout == "It is four.\n"


def test_mistakes_are_one_sentence_and_an_exit_code(
    gateway: RunningGateway,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", gateway.base_url)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "pixel.png").write_bytes(PIXEL)
    cases = [
        (["--once", "be down"], 1, "The engine is away."),
        (["--once", "break"], 1, "engine"),
        (["wrong", "--once", "x"], 1, "The model 'wrong' does not exist here. Models: m, other."),
        (["--once", "x", "--image", str(tmp_path / "pixel.png")], 1, "image"),
        (["--once", "x", "--url", "http://127.0.0.1:1"], 1, "Nothing listens on http://127.0.0.1:1/v1."),
        (["--once", "x", "--tool", "{"], 2, "--tool is not a JSON object"),
        (["--once", "x", "--url", "ftp://x"], 2, "is not the URL of an API"),
        (["--once", "x", "--url", "http://u:hidden@x"], 2, "has a user or a password"),
        (["--once", "x", "--api-key", "hidden\n"], 2, "The API key has characters"),
        (["--once", "x", "--image", str(tmp_path / "none.png")], 2, "No such file"),
        (["--once", "x", "--image", str(tmp_path / "text.png")], 2, "is not a PNG"),
        ([], 2, "There is no question"),
    ]  # fmt: skip
    for arguments, code, sentence in cases:
        assert main(["chat", *arguments]) == code
        told = capsys.readouterr().err
        assert sentence in told
        assert told.startswith("gateway: ")
        assert told.count("\n") == 1
        assert "hidden" not in told


def test_an_image_is_sent_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "pixel").write_bytes(PIXEL)
    part = image_part(str(tmp_path / "pixel"))
    assert part["type"] == "input_image"
    kind, _, data = part["image_url"].partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(data) == PIXEL
    with pytest.raises(ConfigurationError, match="cannot be read"):
        image_part("a\0b")


def say(terminal: Any, line: str) -> None:
    """Type a line at the prompt."""
    terminal.until("> ")
    terminal.type(line)


def test_a_conversation_on_a_terminal(
    gateway: RunningGateway, on_terminal: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "pixel.png").write_bytes(PIXEL)
    terminal = on_terminal("chat", "--url", gateway.base_url, TERM="xterm", NO_COLOR="")
    terminal.until("/help shows the commands.")
    say(terminal, "my name is Ada\n")
    terminal.until("\nHello Ada.")
    say(terminal, f"{NEW}\n")
    terminal.until("\nHello Ada.")  # the history is known
    say(terminal, "think first\n")
    reasoning = terminal.until("\r\nDone.")
    assert "\x1b[2m[reasoning] \x1b[0m" in reasoning
    assert "Let" in reasoning
    say(terminal, "roll the dice\n")
    told = terminal.until("\r\nIt is four.")
    assert '[tool] roll {"sides": 6}' in told
    assert "[result] rolled a 4" in told
    say(terminal, "/new\n")
    terminal.until("A new conversation.")
    say(terminal, f"{NEW}\n")
    terminal.until(f"\r\n{NEW}\r\n")  # nothing is known
    say(terminal, f"/image {tmp_path}/pixel.png\n")
    terminal.until("The image is sent with the next question.")
    say(terminal, "what is this?\n")
    terminal.until("This model takes no images.")
    say(terminal, "/image nowhere.png\n")
    terminal.until("'nowhere.png' cannot be read")
    say(terminal, "/model nothing\n")
    terminal.until("There is no model nothing.")
    terminal.until("  m *")
    say(terminal, "/new\n")
    say(terminal, "/model other\n")
    terminal.until("The next answers are by other.")
    say(terminal, "my name is Ada\n")
    terminal.until("\r\nmy name is Ada\r\n")
    say(terminal, "/what\n")
    terminal.until("There is no command /what.")
    say(terminal, "/help\n")
    terminal.until("leave")
    say(terminal, "/quit\n")
    assert terminal.wait() == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads a process's state in /proc")
def test_ctrl_c_stops_the_answer_and_a_second_one_leaves(
    gateway: RunningGateway, on_terminal: Callable[..., Any]
) -> None:
    engine: Any = gateway.services.models["m"].engine
    terminal = on_terminal("chat", "m", "--url", gateway.base_url, TERM="xterm", NO_COLOR="1")
    say(terminal, "go on\n")
    terminal.until("on on on")
    assert engine.running
    terminal.type("\x03")
    terminal.until("Stopped.")
    wait_until(lambda: not engine.running)
    say(terminal, "my name is Ada\n")  # a conversation that was stopped goes on
    terminal.until("\nHello Ada.")
    terminal.until("> ")
    terminal.interrupt_at_prompt()
    terminal.until("Stopped.")
    terminal.until("> ")
    terminal.interrupt_at_prompt()
    assert terminal.wait() == 130
    assert b"\x1b[2m" not in terminal.shown


def test_ctrl_d_leaves(gateway: RunningGateway, on_terminal: Callable[..., Any]) -> None:
    terminal = on_terminal("chat", "--url", gateway.base_url, TERM="dumb")
    say(terminal, "think first\n")
    terminal.until("Done.")
    terminal.until("> ")
    terminal.type("\x04")
    assert terminal.wait() == 0
    assert b"\x1b" not in terminal.shown


def test_the_tiny_model_chats_by_a_key(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    config = {
        "server": {"api_keys": [{"name": "me", "sha256": hash_key("a-secret-key")}]},
        "models": {"tiny": {"engine": "llamacpp", "llamacpp": {"n_ctx": 1024}}},
    }
    with run_gateway(config, tmp_path) as running:
        refused = chat(running.base_url, "--once", "Hello!")
        answered = chat(running.base_url, "--once", "Hello!", OPENAI_API_KEY="a-secret-key")
    assert refused.returncode == 1
    assert refused.stderr.endswith("Give one with --api-key or OPENAI_API_KEY.\n")
    assert answered.returncode == 0
    assert answered.stdout.strip()


def test_a_closed_reader_is_no_trace(gateway: RunningGateway) -> None:
    done = subprocess.run(
        f"{sys.executable} -m gateway chat m --once 'go on' | head -c 20",
        shell=True,
        env={**os.environ, "OPENAI_BASE_URL": gateway.base_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.startswith("on on on")
    assert done.stderr == ""

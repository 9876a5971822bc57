"""`gateway chat`: a conversation on the terminal, or one question in a pipe, over the API."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import TextIO

from gateway.sdk import ConfigurationError
from gateway.sdk.commands import (
    API_DEFAULT,
    ApiClient,
    ApiError,
    api_url,
    one_line,
    without_surrogates,
)
from gateway_terminal_chat.conversation import ChatSession, requested_tool
from gateway_terminal_chat.images import image_part
from gateway_terminal_chat.prompting import ChatLoop
from gateway_terminal_chat.screen import Screen

MAX_STDIN_BYTES = 16 << 20

EPILOG = """\
In the chat:
  /image PATH    send an image with the next question
  /model [NAME]  list the models, or change to another one
  /new           begin a new conversation
  /help          show these commands
  /quit, Ctrl-D  leave
  Ctrl-C         stop the answer; a second one leaves

Standard input that is not a terminal is the question, or is appended to that of --once. The answer alone is written if
standard output is not a terminal. NO_COLOR turns colours off.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Chat with a model of a running server, this gateway or any other with the Responses API."
    )
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", nargs="?", metavar="MODEL", help="(default: the server's first)")
    parser.add_argument("--once", metavar="QUESTION", help="print one answer, and leave")
    parser.add_argument(
        "--image", action="append", default=[], metavar="PATH", help="send an image; repeatable"
    )
    parser.add_argument(
        "--tool",
        action="append",
        default=[],
        metavar="TYPE",
        help="let the server run a tool, such as web_search, or one given as a JSON object; repeatable",
    )
    parser.add_argument("--url", help=f"the API ({API_DEFAULT})")
    parser.add_argument(
        "--api-key", metavar="KEY", help="(default: $OPENAI_API_KEY, which other users cannot see)"
    )


def chat(arguments: argparse.Namespace) -> int:
    """Chat until the user leaves. Returns 1 if the server cannot be used, or a single question is not answered."""
    client = ApiClient(
        api_url(arguments.url, os.environ),
        arguments.api_key or os.environ.get("OPENAI_API_KEY") or "",
    )
    images = [image_part(path) for path in arguments.image]
    tools = [requested_tool(text) for text in arguments.tool]
    question = _question(arguments.once)
    screen = Screen(_lenient(sys.stdout), colours=_colours(sys.stdout))
    try:
        model = arguments.model or _first_model(client)
        conversation = ChatSession(client, screen, without_surrogates(model), tools)
        conversation.images = images
        if question is not None:
            conversation.ask(question)
            return 0
        return ChatLoop(conversation, client, screen).run(EPILOG.partition("\n\n")[0])
    except ApiError as error:
        screen.end()
        print(f"gateway: {one_line(str(error))}", file=_lenient(sys.stderr))
        return 1


def _first_model(client: ApiClient) -> str:
    """The first model that generates."""
    models = client.models()
    for model in models:
        if model.capabilities is None or "generation" in model.capabilities:
            return model.id
    raise ApiError(f"No model of {client.url} generates text.")


def _question(once: str | None) -> str | None:
    """The single question; None for a chat. Raises `ConfigurationError` if it is empty."""
    parts = [] if once is None else [without_surrogates(once)]
    if sys.stdin is None or not sys.stdin.isatty():
        piped = b"" if sys.stdin is None else sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
        if len(piped) > MAX_STDIN_BYTES:
            raise ConfigurationError(
                f"Standard input has more than {MAX_STDIN_BYTES} bytes, which is too long for a question."
            )
        parts.append(piped.decode("utf-8", "replace").strip())
    elif once is None:
        return None
    question = "\n\n".join(part for part in parts if part.strip())
    if not question:
        raise ConfigurationError(
            "There is no question: give one with --once, or pipe it to standard input."
        )
    return question


def _colours(stream: TextIO) -> bool:
    dumb = os.environ.get("TERM", "dumb") == "dumb"
    return stream.isatty() and not dumb and not os.environ.get("NO_COLOR")


def _lenient(stream: TextIO) -> TextIO:
    """`stream`, changed to write `?` for characters that its encoding does not have."""
    with contextlib.suppress(AttributeError):
        stream.reconfigure(errors="replace")  # type: ignore[attr-defined]  # text streams of the interpreter have it
    return stream

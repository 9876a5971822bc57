"""Answers tokenizer calls of server processes in an engine process."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from gateway.base.errors import EngineError, GatewayError
from gateway.engines.process.frames import FrameTooLarge, framed, receive_frame
from gateway.engines.process.messages import failure_of
from gateway.plugins.protocols import Tokenizer

_MAX_PAGE: Final = 65_536


def answer_tokenizer_calls(
    connection: socket.socket, tokenizer: Tokenizer, ended: Callable[[], None]
) -> None:
    """Answer calls until the connection ends, then call `ended`. Blocks the calling thread."""
    try:
        with connection, suppress(OSError, FrameTooLarge, msgspec.MsgspecError):
            while (payload := receive_frame(connection)) is not None:
                connection.sendall(framed(msgspec.msgpack.encode(_answer(tokenizer, payload))))
    finally:
        ended()


def _answer(tokenizer: Tokenizer, payload: bytes) -> tuple[bool, Any]:
    method, *arguments = msgspec.msgpack.decode(payload)
    try:
        match method:
            case "encode":
                text, special = arguments
                return True, tokenizer.encode(text, add_special_tokens=special)
            case "decode":
                ids, skip = arguments
                return True, tokenizer.decode(ids, skip_special_tokens=skip)
            case "page":
                first, count = arguments
                ids = range(first, first + min(count, _MAX_PAGE))
                return True, [_token_bytes(tokenizer, each) for each in ids]
            case _:
                return False, f"there is no method {method!r}"
    except GatewayError as error:
        return False, failure_of(error)
    except ValueError as error:
        return False, str(error)
    except Exception as error:  # a tokenizer may raise anything
        return False, failure_of(EngineError(f"The tokenizer failed: {type(error).__name__}."))


def _token_bytes(tokenizer: Tokenizer, token_id: int) -> bytes | None:
    try:
        return tokenizer.token_bytes(token_id)
    except ValueError:
        return None

"""Tokenizers of engines in other processes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.base.errors import EngineUnavailable, InvalidRequest
from gateway.engines.process.frames import (
    TOKENIZER,
    FrameTooLarge,
    framed,
    receive_frame,
    require_own,
)
from gateway.engines.process.messages import WireError, error_of
from gateway.plugins.protocols import AddedToken

PAGE: Final = 4096
"""Number of tokens whose bytes are requested together."""
LARGE: Final = 1 << 20
"""Ids from here on are requested one by one, and not cached. No vocabulary is that large, but its ids may be sparse."""
_SECONDS: Final = 60.0
"""Maximum duration of a call in seconds."""
_LOOP_SECONDS: Final = 2.0
"""Maximum duration of a call on an event loop, in seconds. After a longer call, further calls fail immediately until it
is answered."""
_IDLE: Final = 8
"""Maximum number of idle connections that are kept."""


class ProcessTokenizer:
    """Implements `Tokenizer`. Concurrent calls in several threads use separate connections. A call takes about 0.1 ms.
    The bytes of tokens are cached."""

    def __init__(self, path: Callable[[], str]) -> None:
        """`path` returns the path of the engine's socket, or raises `EngineUnavailable`."""
        self._path = path
        self._idle: list[tuple[str, socket.socket]] = []
        self._lock = threading.Lock()
        self._unanswered: tuple[str, socket.socket] | None = None
        """Path and connection of a call on the event loop that took too long and is not answered yet."""
        self._pages: dict[int, list[bytes | None]] = {}

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        ids: list[int] = self._call("encode", text, add_special_tokens)
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        try:
            text: str = self._call("decode", list(token_ids), skip_special_tokens)
        except OverflowError:
            raise ValueError("a token id is outside of the vocabulary") from None
        return text

    def token_bytes(self, token_id: int) -> bytes:
        if not 0 <= token_id < 1 << 63:
            raise ValueError(f"token id {token_id} is outside of the vocabulary")
        if token_id >= LARGE:
            return self._known(token_id, self._call("page", token_id, 1)[0])
        number, index = divmod(token_id, PAGE)
        page = self._pages.get(number)
        if page is None:
            page = self._call("page", number * PAGE, PAGE)
            if any(each is not None for each in page):  # empty pages are not cached: there are many
                self._pages[number] = page
        return self._known(token_id, page[index])

    @staticmethod
    def _known(token_id: int, data: bytes | None) -> bytes:
        if data is None:
            raise ValueError(f"token id {token_id} is outside of the vocabulary")
        return data

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        if self._unanswered is not None:
            idle.append(self._unanswered)
            self._unanswered = None
        for _, connection in idle:
            connection.close()

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            frame = framed(msgspec.msgpack.encode((method, *arguments)))
        except FrameTooLarge:
            raise InvalidRequest("The text is too large to be tokenized.", param="input") from None
        path, on_loop = self._path(), _on_event_loop()
        if on_loop and self._unanswered is not None:
            self._check_answered(path, *self._unanswered)
        connection = self._connection(path, _LOOP_SECONDS if on_loop else _SECONDS)
        try:
            connection.sendall(frame)
            payload = receive_frame(connection)
        except (OSError, FrameTooLarge) as error:
            if on_loop and isinstance(error, TimeoutError):
                self._unanswered = (path, connection)
            else:
                connection.close()
            raise EngineUnavailable(f"The engine's tokenizer does not answer: {error}.") from error
        if payload is None:
            connection.close()
            raise EngineUnavailable("The engine's process has ended.")
        with self._lock:
            kept = len(self._idle) < _IDLE
            if kept:
                self._idle.append((path, connection))
        if not kept:
            connection.close()
        done, value = msgspec.msgpack.decode(payload)
        if done:
            return value
        raise (
            ValueError(value)
            if isinstance(value, str)
            else error_of(msgspec.convert(value, WireError))
        )

    def _check_answered(self, path: str, known: str, connection: socket.socket) -> None:
        """Raise `EngineUnavailable` if the call on `connection` is still not answered. Another call would block the
        event loop for as long."""
        if known == path:
            connection.setblocking(False)
            try:
                connection.recv(1)
            except BlockingIOError:
                raise EngineUnavailable("The engine's tokenizer does not answer.") from None
            except OSError:
                pass  # the engine's process has ended
        self._unanswered = None
        connection.close()

    def _connection(self, path: str, seconds: float) -> socket.socket:
        while True:
            with self._lock:
                if not self._idle:
                    break
                known, connection = self._idle.pop()
            if known == path:
                connection.settimeout(seconds)
                return connection
            connection.close()  # a connection to an earlier process
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(seconds)
            connection.connect(path)
            require_own(connection)
            connection.sendall(TOKENIZER)
        except OSError as error:
            connection.close()
            raise EngineUnavailable(
                f"The engine's tokenizer cannot be reached: {error}."
            ) from error
        return connection


def _on_event_loop() -> bool:
    """Whether the calling thread is running an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class ListingProcessTokenizer(ProcessTokenizer):
    """A `ProcessTokenizer` that lists its added tokens."""

    def __init__(self, path: Callable[[], str], added: Mapping[str, AddedToken]) -> None:
        super().__init__(path)
        self.added_tokens = dict(added)

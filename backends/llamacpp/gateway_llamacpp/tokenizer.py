"""llama.cpp's own tokenizer, over a socket of this process's own."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gateway.errors import EngineUnavailable, InvalidRequest
from gateway_llamacpp.vocabulary import Vocabulary

_TIMEOUT = 30.0


class _Tokens(msgspec.Struct):
    tokens: list[int]


class LocalConnection(http.client.HTTPConnection):
    """HTTP to llama.cpp's server in this process: over a Unix socket, or over loopback where there are none."""

    def __init__(self, address: str) -> None:
        self._path: str | None = None
        if address.startswith("unix://"):
            self._path = address.removeprefix("unix://")
            super().__init__("localhost", timeout=_TIMEOUT)
        else:
            parts = urlsplit(address)
            super().__init__(parts.hostname or "127.0.0.1", parts.port, timeout=_TIMEOUT)

    def connect(self) -> None:
        if self._path is None:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT)
        self.sock.connect(self._path)


class LlamaCppTokenizer:
    """Encodes with llama.cpp, so that no tokenizer is written twice; decodes from the vocabulary.

    xllamacpp offers `/tokenize` only as an HTTP route; the round trip costs 0.2 ms. One connection, one user at a time.
    """

    def __init__(self, address: str, key: str, vocabulary: Vocabulary) -> None:
        self._connection = LocalConnection(address)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._lock = threading.Lock()
        self._vocabulary = vocabulary
        self._decode = msgspec.json.Decoder(_Tokens).decode
        self._max_tokens = 0
        self._max_bytes: int | None = None

    def refuse_beyond(self, tokens: int) -> None:
        """From now on, refuse unread what cannot be `tokens` tokens or fewer: reading megabytes takes llama.cpp minutes,
        in which it tokenizes nothing else.
        """
        self._max_tokens = tokens
        self._max_bytes = tokens * self._vocabulary.longest

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of `text`; special tokens written in the text become their ids.

        Raises `InvalidRequest` for what `refuse_beyond` has been told of.
        """
        if not text and not add_special_tokens:
            return []
        if self._max_bytes is not None and len(text) > self._max_bytes:
            raise InvalidRequest(
                f"This model's maximum context length is {self._max_tokens} tokens, but a text of {len(text)} characters "
                "has more. Shorten the input.",
                param="input",
                code="context_length_exceeded",
            )
        body = {"content": text, "add_special": add_special_tokens, "parse_special": True}
        return self._decode(self.request("POST", "/tokenize", body)).tokens

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of `token_ids`; malformed UTF-8 becomes replacement characters."""
        return self._vocabulary.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token adds to a text; raises ValueError for an id outside the vocabulary."""
        return self._vocabulary.token_bytes(token_id)

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        """One call of llama.cpp's HTTP routes. Raises `EngineUnavailable` if it does not answer with success."""
        data = msgspec.json.encode(body) if body is not None else None
        with self._lock:
            try:
                return self._exchange(method, path, data)
            except (http.client.HTTPException, OSError):
                # The server closes a connection that was idle; the second try opens a new one.
                self._connection.close()
            try:
                return self._exchange(method, path, data)
            except (http.client.HTTPException, OSError) as error:
                self._connection.close()
                raise EngineUnavailable(f"llama.cpp does not answer on {path}: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def _exchange(self, method: str, path: str, data: bytes | None) -> bytes:
        self._connection.request(method, path, data, self._headers)
        reply = self._connection.getresponse()
        content = reply.read()
        if reply.status != http.client.OK:
            raise EngineUnavailable(f"llama.cpp answered {reply.status} on {path}")
        return content

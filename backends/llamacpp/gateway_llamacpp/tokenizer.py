"""llama.cpp's own tokenizer, used over a private socket."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gateway.sdk import AddedToken, EngineUnavailable, InvalidRequest
from gateway_llamacpp.vocabulary import Vocabulary

_TIMEOUT = 30.0
_LONG = 100_000
"""Bytes of a request above which it uses the connection for long texts. A megabyte takes about a second."""


class _Tokens(msgspec.Struct):
    tokens: list[int]


class LocalConnection(http.client.HTTPConnection):
    """HTTP to llama.cpp's in-process server, over a Unix socket or, if unavailable, over loopback."""

    def __init__(self, address: str, *, timeout: float | None = _TIMEOUT) -> None:
        self._path: str | None = None
        if address.startswith("unix://"):
            self._path = address.removeprefix("unix://")
            super().__init__("localhost", timeout=timeout)
        else:
            parts = urlsplit(address)
            super().__init__(parts.hostname or "127.0.0.1", parts.port, timeout=timeout)

    def connect(self) -> None:
        if self._path is None:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class LlamaCppTokenizer:
    """Encodes with llama.cpp, so that no tokenizer is reimplemented, and decodes from the vocabulary.

    xllamacpp offers `/tokenize` only as an HTTP route; a round trip takes 0.2 ms. Uses two connections, each by one caller at
    a time: one is for long texts, so that an event loop with a short one does not wait for them.
    """

    def __init__(self, address: str, key: str, vocabulary: Vocabulary) -> None:
        self._short, self._long = _Route(address, key), _Route(address, key)
        self._vocabulary = vocabulary
        self.added_tokens = dict(vocabulary.added_tokens)
        self._decode = msgspec.json.Decoder(_Tokens).decode
        self._max_tokens = 0
        self._max_bytes: int | None = None

    def find_undeclared(self) -> None:
        """Add to `added_tokens` the tokens that llama.cpp treats as control tokens though the file does not declare
        them."""
        doubtful = self._vocabulary.doubtful
        text = "\n".join(doubtful)
        taken = set(self._tokens(text, special=True)) - set(self._tokens(text, special=False))
        self.added_tokens |= {
            text: AddedToken(id=token_id, special=True)
            for text, token_id in doubtful.items()
            if token_id in taken
        }

    def limit_prompts(self, tokens: int, *, least_bytes: int = 0) -> None:
        """Reject prompts that exceed `tokens` without tokenizing them. Those of up to `least_bytes` are always tokenized.

        Tokenizing megabytes takes llama.cpp minutes, during which it tokenizes nothing else.
        """
        self._max_tokens = tokens
        self._max_bytes = max(tokens * self._vocabulary.longest, least_bytes)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of `text`. Special tokens spelled out in the text become their ids.

        Raises `InvalidRequest` for text that exceeds the limit of `limit_prompts`.
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
        return self._tokens(text, special=True, add_special_tokens=add_special_tokens)

    def _tokens(self, text: str, *, special: bool, add_special_tokens: bool = False) -> list[int]:
        body = {"content": text, "add_special": add_special_tokens, "parse_special": special}
        return self._decode(self.request("POST", "/tokenize", body)).tokens

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of `token_ids`; malformed UTF-8 becomes replacement characters."""
        return self._vocabulary.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token adds to a text; raises ValueError for an id outside the vocabulary."""
        return self._vocabulary.token_bytes(token_id)

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        """Call one of llama.cpp's HTTP routes. Raises `EngineUnavailable` if it fails."""
        data = msgspec.json.encode(body) if body is not None else None
        route = self._long if data is not None and len(data) > _LONG else self._short
        return route.request(method, path, data)

    def close(self) -> None:
        """Close the connections."""
        self._short.close()
        self._long.close()


class _Route:
    """One connection, which is opened when it is used."""

    def __init__(self, address: str, key: str) -> None:
        self._connection = LocalConnection(address)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._lock = threading.Lock()

    def request(self, method: str, path: str, data: bytes | None) -> bytes:
        """Send a request when the one before is answered. Raises `EngineUnavailable` if it fails."""
        with self._lock:
            try:
                return self._exchange(method, path, data)
            except (
                TimeoutError
            ) as error:  # it works on this: a second attempt would make it do so twice
                self._connection.close()
                raise _silent(path, error) from error
            except (http.client.HTTPException, OSError):
                # The server closes idle connections; the second attempt opens a new one.
                self._connection.close()
            try:
                return self._exchange(method, path, data)
            except (http.client.HTTPException, OSError) as error:
                self._connection.close()
                raise _silent(path, error) from error

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _exchange(self, method: str, path: str, data: bytes | None) -> bytes:
        self._connection.request(method, path, data, self._headers)
        reply = self._connection.getresponse()
        content = reply.read()
        if reply.status != http.client.OK:
            raise EngineUnavailable(f"llama.cpp answered {reply.status} on {path}")
        return content


def _silent(path: str, error: Exception) -> EngineUnavailable:
    return EngineUnavailable(f"llama.cpp does not answer on {path}: {error}")

"""A small HTTP client that returns answers unchanged, and remembers the last request so that a user can repeat it."""

from __future__ import annotations

import http.client
import json
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from msgspec import Struct

from gateway.sdk.commands import https_handler
from gateway_conform.outcome import CheckFailed, Unreachable

Json: TypeAlias = Any

MAX_ANSWER = 32 * 1024 * 1024
"""Maximum size of an answer in bytes."""


class HttpAnswer(Struct, frozen=True):
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    """The headers, with names in lower case."""
    body: bytes

    def json(self) -> Json:
        """The body, decoded as JSON. Raises `CheckFailed` if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            kind = self.headers.get("content-type", "no content type")
            raise CheckFailed(
                f"status {self.status} with a body that is no JSON ({kind}): {self.body[:120]!r}"
            ) from None

    def expect(self) -> Json:
        """The body, decoded as JSON. Raises `CheckFailed` if it is not JSON, or if the status is not 200."""
        self._check_status()
        return self.json()

    def events(self) -> list[Json]:
        """The `data` of a stream's events, without a closing `[DONE]`. Raises `CheckFailed` if the answer is not a
        stream."""
        self._check_status()
        kind = self.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise CheckFailed(f"the content type of a stream is {kind!r}, not text/event-stream")
        return list(_events(self.body))

    def _check_status(self) -> None:
        if self.status != 200:
            raise CheckFailed(f"status {self.status}, not 200: {_short(self.body)}")


class HttpClient:
    """Sends requests to the API at `url`, which ends in `/v1`."""

    def __init__(self, url: str, api_key: str, seconds: float) -> None:
        self.url = url.rstrip("/")
        self._key = api_key
        self._seconds = seconds
        local = self.url.split("/")[2].partition(":")[0] in ("localhost", "127.0.0.1", "[")
        self._opener = build_opener(
            _NoRedirects, https_handler(), *([ProxyHandler({})] if local else [])
        )
        self.last = ""
        """The last request as a `curl` command, without the API key."""

    def get(self, path: str) -> HttpAnswer:
        """Send a `GET` request."""
        return self._send("GET", path)

    def delete(self, path: str) -> HttpAnswer:
        """Send a `DELETE` request."""
        return self._send("DELETE", path)

    def post(self, path: str, body: Json) -> HttpAnswer:
        """Send a `POST` request with a JSON body. If the answer is a stream, it is read to its end."""
        return self._send("POST", path, json.dumps(body).encode())

    def post_bytes(self, path: str, body: bytes) -> HttpAnswer:
        """Send a `POST` request with these bytes as the body."""
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: bytes | None = None) -> HttpAnswer:
        self.last = _curl(method, f"{self.url}{path}", body, key=bool(self._key))
        headers = {"user-agent": "litegate-conform"}
        if body is not None:
            headers["content-type"] = "application/json"
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        request = Request(f"{self.url}{path}", data=body, headers=headers, method=method)  # noqa: S310  # http or https
        try:
            try:
                answer = self._opener.open(request, timeout=self._seconds)
            except HTTPError as error:
                answer = error
            with answer:
                content = self._read(answer, time.monotonic() + self._seconds)
        except TimeoutError:
            raise CheckFailed(f"no answer within {self._seconds:g} seconds") from None
        except http.client.IncompleteRead:
            raise CheckFailed("the connection was closed in the middle of the answer") from None
        except URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise CheckFailed(f"no answer within {self._seconds:g} seconds") from None
            raise Unreachable(f"{self.url} cannot be reached: {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise CheckFailed(f"the connection failed: {error or type(error).__name__}") from None
        fields = {name.lower(): value for name, value in answer.headers.items()}
        return HttpAnswer(answer.status, fields, content)

    def _read(self, answer: Any, ends: float) -> bytes:
        """Read the whole body. The time limit is for all of it, however often the server sends a part."""
        parts: list[bytes] = []
        size = 0
        while part := answer.read1(1 << 16):
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER:
                raise CheckFailed(f"the answer has more than {MAX_ANSWER} bytes")
            if time.monotonic() > ends:
                raise CheckFailed(f"the answer did not end within {self._seconds:g} seconds")
        return b"".join(parts)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        """Do not follow redirects, but return them as answers: urllib would send the API key to another host."""


def _curl(method: str, url: str, body: bytes | None, *, key: bool) -> str:
    parts = ["curl", "-sS"]
    if method != ("GET" if body is None else "POST"):
        parts += ["-X", method]
    parts.append(url)
    if key:
        parts += ["-H", "authorization: Bearer $OPENAI_API_KEY"]
    if body is not None:
        parts += ["-H", "content-type: application/json"]
        parts += ["-d", body[:4000].decode("utf-8", "replace")]
    words = [shlex.quote(part) for part in parts]
    return " ".join(words).replace(
        "'authorization: Bearer $OPENAI_API_KEY'", '"authorization: Bearer $OPENAI_API_KEY"'
    )


def _events(body: bytes) -> Iterator[Json]:
    text = body.decode("utf-8", "replace").replace("\r\n", "\n")
    if not text.endswith("\n\n"):
        raise CheckFailed("the stream does not end with an empty line: it broke off")
    for frame in text.split("\n\n"):
        name = None
        data = []
        for line in frame.split("\n"):
            field, _, value = line.partition(":")
            if field == "event":
                name = value.strip()
            elif field == "data":
                data.append(value.removeprefix(" "))
        content = "\n".join(data)
        if not content or content == "[DONE]":
            continue
        try:
            event = json.loads(content)
        except (ValueError, RecursionError):
            raise CheckFailed(f"an event's data is no JSON: {content[:120]!r}") from None
        if name is not None and isinstance(event, dict) and event.get("type", name) != name:
            raise CheckFailed(f"the event {name} has data of the type {event['type']!r}")
        yield event


def _short(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    return text if len(text) <= 300 else f"{text[:300]} ..."

"""Requests to a server with OpenAI's API. Uses only the standard library, because the core has no HTTP client."""

from __future__ import annotations

import http.client
import itertools
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

import msgspec
from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.base.net.tls import https_handler

T = TypeVar("T")

SECONDS: Final = 600.0
"""Time limit for connecting, and for each read, in seconds. OpenAI's SDK has the same limit."""
MAX_LINE: Final = 64 << 20
"""Maximum length of a line of a stream in bytes. The last event contains the whole response."""
MAX_BODY: Final = 16 << 20
MAX_ERROR: Final = 64 << 10
_PART: Final = 256 << 10


class ApiError(Exception):
    """A request failed. The message is one sentence; parts of it may come from the server."""

    def __init__(
        self, message: str, *, param: str | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        """The HTTP status; None if there was no answer."""


class ModelEntry(Struct):
    """A model of `/v1/models`."""

    id: str
    capabilities: list[str] | None = None
    """None if the server does not report them."""
    state: str | None = None


class _Models(Struct):
    data: list[ModelEntry]


class _ReportedError(Struct):
    message: str
    param: str | None = None


class _Envelope(Struct):
    error: _ReportedError


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        """Follow no redirect: urllib would send the API key to another host."""


class ApiClient:
    """Sends requests to the API at `url`."""

    def __init__(self, url: str, api_key: str) -> None:
        """Raises `ConfigurationError` for an invalid URL or key."""
        try:
            parts = urlsplit(url)
            host = parts.hostname
            _ = parts.port
        except ValueError:
            parts, host = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not host or not url.isprintable():
            raise ConfigurationError(
                f"{url!r} is not the URL of an API, such as http://127.0.0.1:8000/v1."
            )
        if parts.username is not None:
            raise ConfigurationError(
                "The URL of the API has a user or a password. Set OPENAI_API_KEY instead."
            )
        if not (api_key.isascii() and api_key.isprintable()):
            raise ConfigurationError("The API key has characters that are not allowed in a header.")
        self.url = (url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1").rstrip("/")  # fmt: skip
        self._headers = {"content-type": "application/json", "user-agent": "litegate-chat"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._opener = _opener(local=host in ("localhost", "127.0.0.1", "::1"))

    def models(self) -> list[ModelEntry]:
        """The server's models. Raises `ApiError`."""
        return self.get("/models", _Models).data

    def get(self, path: str, into: type[T]) -> T:
        """The answer to a GET request, as `into`. Raises `ApiError`."""
        return self._decoded(path, into, None)

    def post(self, path: str, body: Mapping[str, Any], into: type[T]) -> T:
        """The answer to a POST request with a JSON body, as `into`. Raises `ApiError`."""
        return self._decoded(path, into, msgspec.json.encode(body))

    def upload(self, file: BinaryIO, name: str, purpose: str, into: type[T]) -> T:
        """Upload a seekable file to `/files`, without reading it into memory. Raises `ApiError`."""
        boundary = os.urandom(24).hex()
        clean = "".join(each for each in name if each.isprintable() and each not in '"\\')
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{clean}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return self._decoded(
            "/files",
            into,
            itertools.chain([head], iter(lambda: file.read(_PART), b""), [tail]),
            {
                "content-type": f"multipart/form-data; boundary={boundary}",
                "content-length": str(len(head) + size + len(tail)),
            },
        )

    def download(self, path: str, file: BinaryIO) -> None:
        """Write the answer to a GET request to `file`. Raises `ApiError`, also if the answer is cut short."""
        with self._answer(path, None) as answer:
            while True:
                with self._failures():
                    part = answer.read(_PART)
                if not part:
                    # `read` with a size does not say that the connection was closed too early.
                    if answer.length:
                        raise ApiError("The server's answer broke off.")
                    return
                file.write(part)

    def _decoded(
        self,
        path: str,
        into: type[T],
        body: bytes | Iterable[bytes] | None,
        headers: Mapping[str, str] = {},
    ) -> T:
        with self._answer(path, body, headers) as answer, self._failures():
            content = answer.read(MAX_BODY)
        try:
            return msgspec.json.decode(content, type=into)
        except msgspec.DecodeError:
            what = path.partition("?")[0].lstrip("/")
            raise ApiError(
                f"{self.url} is not an API: its answer to {what} cannot be read."
            ) from None

    @contextmanager
    def stream(self, body: Mapping[str, Any]) -> Iterator[Iterator[dict[str, Any]]]:
        """Send a request for a response and provide its events. Leaving the context closes the connection, which
        cancels a running response.

        Raises `ApiError`.
        """
        with self._answer("/responses", msgspec.json.encode({**body, "stream": True})) as answer:
            if answer.headers.get_content_type() != "text/event-stream":
                raise ApiError(f"{self.url} has no Responses API: it does not answer with events.")
            yield self._events(answer)

    def _events(self, answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
        data: list[bytes] = []
        size = 0
        while line := self._line(answer):
            size += len(line)
            if not line.endswith(b"\n") or size > MAX_LINE:
                raise ApiError("The server's answer broke off, or has a line that is too long.")
            line = line.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif not line:
                content, data, size = b"\n".join(data), [], 0
                if content == b"[DONE]":
                    return
                if content:
                    yield _event(content)

    def _line(self, answer: http.client.HTTPResponse) -> bytes:
        with self._failures():
            return answer.readline(MAX_LINE)

    @contextmanager
    def _answer(
        self, path: str, body: bytes | Iterable[bytes] | None, headers: Mapping[str, str] = {}
    ) -> Iterator[http.client.HTTPResponse]:
        """Provide a successful answer, which is closed at the end of the context."""
        request = Request(f"{self.url}{path}", data=body, headers={**self._headers, **headers})  # noqa: S310  # http or https
        with self._failures():
            answer = self._opener.open(request, timeout=SECONDS)
        with answer:
            yield answer

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Convert the errors of requests to `ApiError`. The context must contain nothing but requests."""
        try:
            yield
        except HTTPError as error:
            with error:
                raise self._refusal(error.code, error.read(MAX_ERROR)) from None
        except URLError as error:
            raise self._unreachable(error.reason) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, reason: object) -> ApiError:
        if isinstance(reason, TimeoutError):
            return ApiError(f"{self.url} did not answer for {SECONDS:g} s.")
        if isinstance(reason, ConnectionRefusedError):
            return ApiError(
                f"Nothing listens on {self.url}. Start `gateway serve`, or choose another server with --url."
            )
        if isinstance(reason, ssl.SSLCertVerificationError):
            return ApiError(
                f"The certificate of {self.url} is not trusted: {reason.verify_message}. If you know that it is the server's, set "
                "SSL_CERT_FILE to a file (PEM) with it, or with the certificate of who has issued it."
            )
        what = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
        return ApiError(f"{self.url} cannot be reached: {what or type(reason).__name__}.")

    def _refusal(self, status: int, content: bytes) -> ApiError:
        try:
            reported = msgspec.json.decode(content, type=_Envelope).error
        except msgspec.DecodeError:
            return ApiError(f"{self.url} answered with the HTTP status {status}.", status=status)
        hint = " Give one with --api-key or OPENAI_API_KEY." if status == 401 else ""
        return ApiError(f"{reported.message}{hint}", param=reported.param, status=status)


def _opener(*, local: bool) -> OpenerDirector:
    """An opener that uses the environment's proxies, except for this machine."""
    return build_opener(_NoRedirects, https_handler(), *([ProxyHandler({})] if local else []))


def _event(content: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise ApiError("The server's answer cannot be read.") from None

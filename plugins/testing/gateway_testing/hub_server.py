"""A hub on the loopback interface, for tests: file lists, files with hashes and ranges, and redirects to another host
for large files.

It implements the part of the Hugging Face hub's API that `gateway.models.hub` and `huggingface_hub` use, without Xet.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class SeenRequest:
    """A request that the hub has received."""

    method: str
    path: str
    headers: Mapping[str, str]
    """The headers, with names in lower case."""


@dataclass
class _Repo:
    files: dict[str, bytes]
    gated: bool
    token: str | None


@dataclass
class HubServer:
    """A running hub. Attributes may be set while it runs."""

    url: str = ""
    cdn: str = ""
    """Base URL for large files: the same server with another host name."""
    repos: dict[str, _Repo] = field(default_factory=dict)
    seen: list[SeenRequest] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    """Numbers of bytes after which the next answers with file content end, and the connection is closed."""
    damaged: bool = False
    """Whether the first byte of each file's content is changed, so that the hash does not match."""
    ranges: bool = True
    """Whether `Range` is honored."""
    answer: Callable[[Handler], bool] | None = None
    """Called first for each request. Returns whether it has sent the answer."""

    def add(
        self,
        repo: str,
        files: Mapping[str, bytes],
        *,
        gated: bool = False,
        token: str | None = None,
    ) -> None:
        """Add a repository. If `token` is given, it is needed to read the repository, which otherwise appears not to
        exist."""
        self.repos[repo] = _Repo(dict(files), gated, token)

    def contents(self) -> list[str]:
        """The paths of all requests for the content of files, in order."""
        return [
            request.path
            for request in self.seen
            if request.method == "GET" and not request.path.startswith("/api/")
        ]

    def listing(self, repo: str) -> dict[str, Any]:
        """The file list of a repository."""
        files = self.repos[repo].files
        siblings = [{"rfilename": name, **_described(name, data)} for name, data in files.items()]
        return {"id": repo, "modelId": repo, "sha": COMMIT, "private": False, "siblings": siblings}


class Handler(BaseHTTPRequestHandler):
    """Answers requests."""

    protocol_version = "HTTP/1.1"
    hub: HubServer

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
        """Log nothing."""

    def reply(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send an answer."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "content-length" not in {name.lower() for name in headers or {}}:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self) -> None:
        hub = self.hub
        headers = {name.lower(): value for name, value in self.headers.items()}
        hub.seen.append(SeenRequest(self.command, self.path, headers))
        with suppress(BrokenPipeError, ConnectionResetError):
            if hub.answer is not None and hub.answer(self):
                return
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            match parts:
                case ["api", "models"]:
                    text = parse_qs(urlsplit(self.path).query)["search"][0].lower()
                    self._json([{"id": repo} for repo in hub.repos if text in repo.lower()])
                case ["api", "models", owner, name, *rest]:
                    self._api(f"{owner}/{name}", rest)
                case [owner, name, "resolve", _, *path] if path:
                    self._resolve(f"{owner}/{name}", "/".join(path))
                case ["cdn", digest]:
                    self._content(digest)
                case _:
                    self.reply(404)

    def _allowed(self, repo: str) -> bool:
        found = self.hub.repos.get(repo)
        sent = self.headers.get("authorization")
        authorized = found is not None and sent == f"Bearer {found.token}"
        if found is None or (found.token is not None and not found.gated and not authorized):
            code = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
            # The hub does not reveal whether a private repository exists.
            self.reply(404 if "authorization" in self.headers else 401, b"", code)
            return False
        if found.gated and not authorized:
            code = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}
            self.reply(403 if "authorization" in self.headers else 401, b"", code)
            return False
        return True

    def _api(self, repo: str, rest: list[str]) -> None:
        # As on the hub, the list of a gated repository is public.
        found = self.hub.repos.get(repo)
        if not (found is not None and found.gated) and not self._allowed(repo):
            return
        if rest[:1] == ["tree"]:
            files = self.hub.repos[repo].files
            tree = [
                {"type": "file", "path": name, "oid": described["blobId"], **described}
                for name, data in files.items()
                for described in [_described(name, data)]
            ]
            for entry in tree:
                if "lfs" in entry:
                    entry["lfs"]["oid"] = entry["lfs"]["sha256"]
            self._json(tree)
            return
        self._json(self.hub.listing(repo))

    def _json(self, value: Any) -> None:
        self.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _resolve(self, repo: str, path: str) -> None:
        if not self._allowed(repo):
            return
        data = self.hub.repos[repo].files.get(path)
        if data is None:
            self.reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        headers = {"X-Repo-Commit": COMMIT}
        if not _is_large(path):
            self._send_range(data, {**headers, "ETag": f'"{git_sha1(data)}"'})
            return
        digest = hashlib.sha256(data).hexdigest()
        headers |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(data))}
        self.reply(302, b"", {**headers, "Location": f"{self.hub.cdn}/cdn/{digest}"})

    def _content(self, digest: str) -> None:
        for repo in self.hub.repos.values():
            for data in repo.files.values():
                if hashlib.sha256(data).hexdigest() == digest:
                    self._send_range(data, {"ETag": f'"{digest}"'})
                    return
        self.reply(404)

    def _send_range(self, data: bytes, headers: Mapping[str, str]) -> None:
        if self.hub.damaged:
            data = bytes([data[0] ^ 1]) + data[1:]
        start, end = 0, len(data)
        asked = self.headers.get("range", "") if self.hub.ranges else ""
        headers = {"Accept-Ranges": "bytes", **headers}
        if asked.startswith("bytes="):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last) + 1, end) if last else end
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        body = data[start:end]
        cut = self.hub.cuts.pop(0) if self.hub.cuts and self.command == "GET" else None
        if cut is not None:
            headers["Content-Length"] = str(len(body))
            body = body[:cut]
            self.close_connection = True
        self.reply(206 if "Content-Range" in headers else 200, body, headers)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about clients that disconnect."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def run_hub() -> Iterator[HubServer]:
    """Run a hub without repositories until the context is left."""
    hub = HubServer()

    class Bound(Handler):
        pass

    Bound.hub = hub
    server = _Server(("127.0.0.1", 0), Bound)
    server.daemon_threads = True
    port = server.server_address[1]
    hub.url, hub.cdn = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def git_sha1(data: bytes) -> str:
    """The SHA-1 that git computes for a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _is_large(path: str) -> bool:
    return path.endswith((".gguf", ".safetensors"))


def _described(name: str, data: bytes) -> dict[str, Any]:
    described: dict[str, Any] = {"size": len(data), "blobId": git_sha1(data)}
    if _is_large(name):
        digest = hashlib.sha256(data).hexdigest()
        described["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
    return described

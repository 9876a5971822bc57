"""MCP servers with sessions, by hand, which end them in the ways of various SDKs."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct


class Ending(Struct, frozen=True):
    """How a server refuses a session that it does not know."""

    status: int
    body: str = ""
    content_type: str = "application/json"


def rpc(code: int, message: str, id_: object = None) -> str:
    """The body of a JSON-RPC error."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}})


TOOLS = [
    {
        "name": name,
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": name == "read"},
    }
    for name in ("read", "pay", "slow")
]


class SessionServer:
    """A server of the protocol of 2025-06-18 over streamable HTTP."""

    def __init__(self) -> None:
        self.ending = Ending(404)
        self.sessions: set[str] = set()
        self.streams: dict[str, queue.Queue[str]] = {}
        self.initialized = 0
        self.calls: list[str] = []
        """The names of the tools that were called, in order."""
        self.refused_credentials = False
        self.headers: list[dict[str, str]] = []
        self.tool_errors: dict[str, Ending] = {}
        """Tools whose calls are answered with an error in a session that goes on."""
        self.hung = threading.Event()
        """Set: answers take forever."""
        self.closing = threading.Event()
        self.called = threading.Event()
        """Set with the first call."""
        self.meanwhile = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path == "/sse":
                    outer.stream(self)
                else:
                    self.send_error(405)

            def do_DELETE(self) -> None:
                self.send_error(405)

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                message = json.loads(self.rfile.read(length))
                if self.path.startswith("/messages"):
                    outer.answer_over_sse(self, message)
                else:
                    outer.answer(self, message)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/mcp"

    @property
    def sse_url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/sse"

    def stream(self, request: BaseHTTPRequestHandler) -> None:
        """Answer as the older transport does: all on one stream, which outlives its session here."""
        self.initialized += 1
        session = f"session-{self.initialized}"
        self.sessions.add(session)
        answers = self.streams[session] = queue.Queue()
        request.send_response(200)
        request.send_header("content-type", "text/event-stream")
        request.send_header("connection", "close")
        request.end_headers()
        request.wfile.write(f"event: endpoint\ndata: /messages?session_id={session}\n\n".encode())
        while not self.closing.is_set():
            try:
                answer = answers.get(timeout=0.05)
                request.wfile.write(f"event: message\ndata: {answer}\n\n".encode())
            except queue.Empty:
                continue
            except OSError:
                return

    def answer_over_sse(self, request: BaseHTTPRequestHandler, message: dict[str, Any]) -> None:
        session = request.path.rpartition("=")[2]
        if session not in self.sessions:
            self.send(request, self.ending)
            return
        self.send(request, Ending(202))
        method = message.get("method")
        result: dict[str, Any] = {}
        if method == "initialize":
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "stub", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": TOOLS}
        elif method == "tools/call":
            name = message["params"]["name"]
            self.calls.append(name)
            result = {"content": [{"type": "text", "text": f"{name} in {session}"}]}
        elif method == "server/discover":
            error = {"code": -32601, "message": "Method not found"}
            self.streams[session].put(
                json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
            )
            return
        if "id" in message:
            self.streams[session].put(
                json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
            )

    def restart(self) -> None:
        """Forget all sessions."""
        self.sessions.clear()

    def answer(self, request: BaseHTTPRequestHandler, message: dict[str, Any]) -> None:
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        while self.hung.is_set() and not self.closing.is_set():
            time.sleep(0.02)
        method, session = message.get("method"), request.headers.get("mcp-session-id")
        if self.refused_credentials:
            self.send(request, Ending(401, "Unauthorized", "text/plain"))
        elif method == "initialize":
            self.initialized += 1
            session = f"session-{self.initialized}"
            self.sessions.add(session)
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "stub", "version": "1"},
            }
            self.result(request, message, result, session)
        elif session is None:
            self.send(
                request, Ending(400, rpc(-32000, "Bad Request: No valid session ID provided"))
            )
        elif session not in self.sessions:
            self.send(request, self.ending)
        elif "id" not in message:
            self.send(request, Ending(202))
        elif method == "tools/list":
            self.result(request, message, {"tools": TOOLS})
        elif method == "tools/call":
            name = message["params"]["name"]
            self.calls.append(name)
            self.called.set()
            if name == "slow":
                self.meanwhile.wait(30)
            if name in self.tool_errors:
                self.send(request, self.tool_errors[name])
            else:
                text = f"{name} in {session}"
                self.result(request, message, {"content": [{"type": "text", "text": text}]})
        elif method == "ping":
            self.result(request, message, {})
        else:
            self.send(request, Ending(200, rpc(-32601, "Method not found", message["id"])))

    def result(
        self,
        request: BaseHTTPRequestHandler,
        message: dict[str, Any],
        result: Any,
        session: str | None = None,
    ) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        self.send(request, Ending(200, body), session)

    def send(
        self, request: BaseHTTPRequestHandler, ending: Ending, session: str | None = None
    ) -> None:
        body = ending.body.encode()
        request.send_response(ending.status)
        request.send_header("content-type", ending.content_type)
        request.send_header("content-length", str(len(body)))
        if session is not None:
            request.send_header("mcp-session-id", session)
        request.end_headers()
        request.wfile.write(body)


@contextmanager
def session_server() -> Iterator[SessionServer]:
    """A server, until the context is left."""
    server = SessionServer()
    thread = threading.Thread(target=server.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.meanwhile.set()
        server.server.shutdown()
        server.server.server_close()
        thread.join()

"""llama.cpp's native completion route, over its private socket."""

from __future__ import annotations

import http.client
from collections.abc import Callable

from gateway_llamacpp.tokenizer import LocalConnection
from gateway_llamacpp.worker import NativeServer

_DATA, _ERROR = b"data: ", b"error: "
_LONGEST = 64 * 2**20
"""Maximum length of an event, in bytes. The last one repeats the prompt, without its images."""


class NativeRoute:
    """A `NativeServer` whose completions go through the HTTP route.

    For models that see, llama.cpp's in-process call takes neither token ids nor images, because it then expects OpenAI's
    form of a request. The native route takes both. Its chunks are passed on in the form of the in-process call.
    """

    def __init__(self, server: NativeServer, key: str) -> None:
        self._server = server
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    @property
    def listening_address(self) -> str:
        return self._server.listening_address

    def handle_completions(self, body: bytes, callback: Callable[[bytes], bool]) -> None:
        """Blocks until the completion has ended. If the callback returns True, the completion is aborted."""
        connection = LocalConnection(self.listening_address, timeout=None)
        try:
            connection.request("POST", "/completion", body, self._headers)
            reply = connection.getresponse()
            if reply.status != http.client.OK:
                callback(reply.read())
                return
            while line := reply.readline(_LONGEST):
                chunk = _chunk(line)
                if chunk is not None and callback(chunk):
                    return
        finally:
            connection.close()

    def handle_metrics(self) -> str | bytes:
        return self._server.handle_metrics()

    def handle_embeddings(self, body: bytes) -> str | bytes:
        return self._server.handle_embeddings(body)

    def handle_rerank(self, body: bytes) -> str | bytes:
        return self._server.handle_rerank(body)


def _chunk(line: bytes) -> bytes | None:
    """The chunk of a line of the event stream, as the in-process call gives it. None: the line has none."""
    if line.startswith(_ERROR):
        return b'{"error":' + line[len(_ERROR) :] + b"}"
    if not line.startswith(_DATA):
        return None
    data = line[len(_DATA) :].strip()
    # A key: inside a string, the quotes would be escaped.
    if data.startswith(b'{"error":') or b'"prompt_progress":' in data:
        return data
    return b'{"__verbose":' + data + b"}" if data.startswith(b"{") else None

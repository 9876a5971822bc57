"""Measures `backends/remote` and `backends/openai` against byte relays: `python -m benchmarks.remote [--quick]`.

One upstream streams completions in vLLM's shape: one token per stream every 50 ms, all streams together, as in an
engine's batch. Three servers are placed in front of it in turn: two relays that pass bytes on unread (aiohttp on both
sides, and a bare ASGI application on uvicorn with aiohttp's client), and the gateway, which converts the stream to
Responses events, from token ids and from messages. The goal is at most 1.5 times the CPU time per token of the cheaper
relay in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import aiohttp
import msgspec
import uvicorn
import uvloop
from aiohttp import web

from benchmarks.null_engine import Ticker
from benchmarks.processes import wait_until_open
from benchmarks.run import ROOT, Case, Row, Server, measure, median
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.loading import load_plugins
from gateway.process.logs import set_up_logging
from gateway.process.server import run
from gateway.wire.event_frames import sse_frame
from gateway.wire.events import OutputTextDelta
from gateway_testing.free_ports import free_port

INTERVAL = 0.05
TOKENIZER = ROOT / "tests" / "models" / "tiny-qwen3"
_STREAMED = (b"/v1/responses", b"/v1/chat/completions", b"/v1/completions")
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def http_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def completion_frame(**choice: Any) -> bytes:
    """An event as vLLM's `/v1/completions` sends it."""
    event = {
        "id": "cmpl-" + "0" * 32,
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "stub",
        "choices": [{"index": 0, "text": " the", "logprobs": None, **choice}],
    }
    return http_chunk(b"data: " + msgspec.json.encode(event) + b"\n\n")


def chat_frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """An event as vLLM's `/v1/chat/completions` sends it."""
    event = {
        "id": "chatcmpl-" + "0" * 32,
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "stub",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    return http_chunk(b"data: " + msgspec.json.encode(event) + b"\n\n")


class Upstream(asyncio.Protocol):
    """One connection. Writes prebuilt bytes: completions, chat chunks, or the Responses events that a relay passes
    on."""

    ticker: Ticker
    token = completion_frame(
        finish_reason=None, stop_reason=None, prompt_token_ids=None, token_ids=[262]
    )
    last = completion_frame(
        finish_reason="length", stop_reason=None, prompt_token_ids=None, token_ids=[262]
    )
    chat_token = chat_frame({"content": " the"})
    chat_last = chat_frame({"content": " the"}, "length")
    event = http_chunk(
        sse_frame(
            OutputTextDelta(
                sequence_number=1000,
                item_id="msg_" + "0" * 48,
                output_index=0,
                content_index=0,
                delta=" the",
                logprobs=[],
            )
        )
    )
    done = http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    def __init__(self) -> None:
        self._received = b""
        self._transport: Any = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(
            (
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        if len(body) < length:
            return
        self._received = b""
        path = head.split(b" ", 2)[1]
        if head.startswith(b"GET"):
            self._answer(path)
        elif path not in _STREAMED:
            self._transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        else:
            self._task = asyncio.create_task(self._stream(path, msgspec.json.decode(body)))

    def _answer(self, path: bytes) -> None:
        card = {"id": "stub", "owned_by": "vllm", "max_model_len": 100_000}
        body = msgspec.json.encode({"data": [card]} if path == b"/v1/models" else {})
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )

    async def _stream(self, path: bytes, request: dict[str, Any]) -> None:
        write = self._transport.write
        write(_HEAD)
        match path:
            case b"/v1/responses":
                limit, frame, last = "max_output_tokens", self.event, self.event
            case b"/v1/chat/completions":
                limit, frame, last = "max_completion_tokens", self.chat_token, self.chat_last
            case _:
                limit, frame, last = "max_tokens", self.token, self.last
        left = request[limit]
        flat = request["temperature"] == 0 if "temperature" in request else False
        while left > 1:
            await (asyncio.sleep(0) if flat else self.ticker.next())
            write(frame)
            left -= 1
        await (asyncio.sleep(0) if flat else self.ticker.next())
        write(last + self.done)


async def upstream(port: int) -> None:
    """Serve until the process is killed."""
    Upstream.ticker = Ticker(INTERVAL)
    server = await asyncio.get_running_loop().create_server(
        Upstream, "127.0.0.1", port, backlog=4096
    )
    await server.serve_forever()


async def relay_aiohttp(port: int, upstream_port: int) -> None:
    """A relay with aiohttp on both sides."""
    url = f"http://127.0.0.1:{upstream_port}/v1/responses"
    async with _session() as session:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            async with session.post(url, data=await request.read()) as answer:
                response = web.StreamResponse(headers={"content-type": "text/event-stream"})
                await response.prepare(request)
                async for data in answer.content.iter_any():
                    await response.write(data)
                return response

        app = web.Application()
        app.router.add_post("/v1/responses", pass_on)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
        await asyncio.Event().wait()


class AsgiRelay:
    """A relay: a bare ASGI application with aiohttp's client."""

    def __init__(self, upstream_port: int) -> None:
        self._url = f"http://127.0.0.1:{upstream_port}/v1/responses"
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if self._session is None:
            self._session = _session()
        async with self._session.post(self._url, data=body) as answer:
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for data in answer.content.iter_any():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    )


def gateway(port: int, upstream_port: int, *, messages: bool = False) -> None:
    """The gateway with the engine `remote`, or `openai` if `messages`."""
    set_up_logging("warning")
    url = f"http://127.0.0.1:{upstream_port}"
    model = ModelConfig(
        engine="remote",
        renderer="chat_template",
        parser="plain",
        max_running=100_000,
        options={"remote": {"urls": [url], "tokenizer": str(TOKENIZER)}},
    )
    if messages:
        options = {"openai": {"base_url": url, "model": "stub"}}
        model = ModelConfig(engine="openai", max_running=100_000, options=options)
    config = Config(server=ServerConfig(port=port), models={"plain-paced": model})
    run(config, load_plugins(config.plugins))


@contextmanager
def serving(role: str, upstream_port: int = 0) -> Iterator[Server]:
    """Run a process in one of the roles; stop it at the end."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.remote", role, str(port), str(upstream_port)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until_open(port, role)
        yield Server(role, port, process)
    finally:
        process.terminate()
        process.wait()


def measure_all(quick: bool) -> list[Row]:
    """Measure every server in every case, in turn."""
    rows: list[Row] = []
    with ExitStack() as stack:
        engine = stack.enter_context(serving("upstream"))
        servers = [
            stack.enter_context(serving(role, engine.port))
            for role in ("relay-aiohttp", "relay-uvicorn", "gateway", "gateway-openai")
        ]
        for server in servers:
            measure(server, Case(name="warm-up", streams=16, tokens=20))
        for streams in (256,) if quick else (64, 256, 1024):
            case = Case(name=f"paced, {streams} streams", streams=streams, tokens=100)
            seen = [[measure(server, case) for server in servers] for _ in range(1 if quick else 3)]
            rows += [median(each) for each in zip(*seen, strict=True)]
    return rows


def table(rows: list[Row]) -> str:
    """The rows as Markdown. The last column is relative to the cheaper relay of the same case."""
    lines = [
        "| server | case | µs CPU per token | × relay | TTFT p50 / p99, ms |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        relay = min(
            each.cpu_us
            for each in rows
            if each.case == row.case and each.server.startswith("relay")
        )
        lines.append(
            f"| {row.server} | {row.case} | {row.cpu_us:.1f} | {row.cpu_us / relay:.2f} "
            f"| {row.first_p50_ms:.1f} / {row.first_p99_ms:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark and print its table, or play one of its roles."""
    if len(sys.argv) == 4:
        role, port, upstream_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        match role:
            case "upstream":
                uvloop.run(upstream(port))
            case "relay-aiohttp":
                uvloop.run(relay_aiohttp(port, upstream_port))
            case "relay-uvicorn":
                uvicorn.run(
                    AsgiRelay(upstream_port), port=port, http="httptools", loop="uvloop",
                    ws="none", lifespan="off", access_log=False, log_level="warning", backlog=4096,
                )  # fmt: skip
            case "gateway":
                gateway(port, upstream_port)
            case "gateway-openai":
                gateway(port, upstream_port, messages=True)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one case, half a minute")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of a table")
    arguments = parser.parse_args()
    rows = measure_all(arguments.quick)
    out = msgspec.json.encode(rows).decode() if arguments.json else table(rows)
    sys.stdout.write(out + "\n")


if __name__ == "__main__":
    main()

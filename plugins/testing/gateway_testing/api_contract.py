"""The contract of APIs, as tests to inherit. They start a real gateway with a scripted model."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from msgspec import Struct

from gateway.base import errors
from gateway.base.errors import GatewayError
from gateway.plugins.hookspecs import hookimpl
from gateway.plugins.protocols import AnswerUsage, Api, Reply, Route
from gateway_doctor.checks.loop_watch import loop_stays_free
from gateway_testing.closing_contract import ClosingContract
from gateway_testing.on_asyncio import OnAsyncio
from gateway_testing.scripted import ScriptedEngine
from gateway_testing.server import RunningGateway, run_gateway

_MAX_BYTES = 100_000
_RULES: list[dict[str, Any]] = [
    {"when": "go slowly", "delay_ms": 50, "repeat": 100_000, "pieces": [{"text": "slow words "}]},
    {"when": "be silent", "delay_ms": 700, "pieces": [{"text": "ah"}]},
    {"when": "break down", "finish": "error", "pieces": [{"text": "It begins well"}]},
]
_ERRORS: tuple[type[GatewayError], ...] = (
    errors.InvalidRequest, errors.AuthenticationError, errors.PermissionDenied, errors.NotFound,
    errors.MethodNotAllowed, errors.Conflict, errors.PayloadTooLarge, errors.RateLimited,
    errors.EngineError, errors.EngineUnavailable, errors.ServerShuttingDown, errors.DeadlineExceeded,
)  # fmt: skip
_BAD_BODIES = (b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"[" * 50_000, b'{"a": NaN}')


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request to an API."""

    method: str = "POST"
    path: str
    body: Any = None
    """The body, sent as JSON; bytes are sent unchanged."""
    headers: Mapping[str, str] = {}


class _Used:
    """A plugin that records the usage that is reported to it."""

    def __init__(self) -> None:
        self.seen: list[AnswerUsage] = []

    @hookimpl
    def gateway_usage(self, used: AnswerUsage) -> None:
        self.seen.append(used)


class ServedApi:
    """A gateway that serves the API, and a client of it."""

    def __init__(self, gateway: RunningGateway, name: str, used: Sequence[AnswerUsage]) -> None:
        self.gateway = gateway
        self.used = used
        """The reported usage, oldest first."""
        [self.api] = [each.api for each in gateway.services.apis if each.name == name]
        self._address = urlsplit(gateway.base_url).netloc

    @property
    def routes(self) -> list[Route]:
        """The routes that are selected by their path alone, not also by a header."""
        return [route for route in self.api.routes if route.header is None]

    def connect(
        self, request: ApiRequest, *, key: str | None
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Send a request with the API key named `key`. The caller reads the answer and closes the connection."""
        connection = HTTPConnection(self._address, timeout=120)
        headers = {"content-type": "application/json", **request.headers}
        if key is not None:
            headers["authorization"] = f"Bearer key-{key}"
        body = request.body
        if not isinstance(body, bytes | None):
            body = json.dumps(body)
        connection.request(request.method, request.path, body=body, headers=headers)
        return connection, connection.getresponse()

    def send(self, request: ApiRequest, *, key: str | None = "ada") -> Reply:
        """Send a request, and return the whole answer."""
        connection, answer = self.connect(request, key=key)
        try:
            return Reply(
                body=answer.read(),
                status=answer.status,
                content_type=answer.headers.get("content-type", ""),
                headers={name.lower(): value for name, value in answer.getheaders()},
            )
        finally:
            connection.close()

    def engine(self, model: str = "m") -> ScriptedEngine:
        engine = self.gateway.services.models[model].engine
        assert isinstance(engine, ScriptedEngine)
        return engine


class ApiContract(ClosingContract, OnAsyncio):
    """Subclass this and set `name`. For an API that generates, also define `generation` and set `endings`.

    The gateway has the models `m` and `small`, which repeat the text of a request, except for some special texts.
    """

    name: ClassVar[str]
    """The API's name in the configuration."""
    config: ClassVar[Mapping[str, Any]] = {}
    """The table `[apis.<name>]`. To test `keep_alive`, it must configure an interval of at most half a second."""
    endings: ClassVar[Sequence[bytes]] = ()
    """The possible endings of a stream, after success or failure: exactly one of them occurs in a stream, once."""
    keep_alive: ClassVar[bytes | None] = None
    """The bytes that are sent while a stream has no events; None if nothing is sent."""

    @pytest.fixture(scope="class")
    @classmethod
    def plugins(cls) -> Sequence[object]:
        """Modules with hooks that are not installed as plugins, such as the tested plugin itself."""
        return ()

    def generation(self, text: str, *, model: str, stream: bool) -> ApiRequest | None:
        """A request that makes `model` answer `text`, streamed or as a whole. None if the API has no such requests."""
        return None

    @pytest.fixture(scope="class")
    @classmethod
    def more_tables(cls, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
        """Additional tables of `gateway.toml`, such as `resources`."""
        return {}

    @pytest.fixture(scope="class")
    @classmethod
    def served(
        cls,
        plugins: Sequence[object],
        more_tables: Mapping[str, Any],
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Iterator[ServedApi]:
        """A gateway that serves the API, with API keys of Ada, Bob (for one model only) and Cyd (one request a
        minute)."""
        folder = tmp_path_factory.mktemp("api")
        with cls.serving(cls.name, cls.config, plugins, more_tables, folder) as served:
            yield served

    @staticmethod
    @contextmanager
    def serving(
        name: str,
        config: Mapping[str, Any],
        plugins: Sequence[object],
        more_tables: Mapping[str, Any],
        folder: Path,
    ) -> Iterator[ServedApi]:
        """Run a gateway that serves the API `name` until the context is left."""
        used = _Used()
        model = {"engine": "scripted", "scripted": {"rules": _RULES}}
        keys = [_key("ada"), {**_key("bob"), "models": ["small"]}, {**_key("cyd"), "requests_per_minute": 1}]  # fmt: skip
        whole = {
            **more_tables,
            "models": {"m": model, "small": {**model, "max_running": 1, "max_waiting": 0}},
            "server": {"api_keys": keys, "apis": [name], "max_body_bytes": _MAX_BYTES},
            "apis": {name: config},
        }
        with run_gateway(whole, folder, plugins=[*plugins, used]) as gateway:
            yield ServedApi(gateway, name, used.seen)

    def test_its_routes_are_described(self, served: ServedApi) -> None:
        """Routes are described in `/openapi.json`, by the docstrings of their handlers. Files of a page need no
        description."""
        answer = served.send(ApiRequest(method="GET", path="/openapi.json"))
        paths = json.loads(answer.body)["paths"]
        for route in served.routes:
            if route.public and route.answers is None:
                continue
            path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
            described = paths.get(path, {}).get(route.method.lower())
            assert described is not None, f"{route.method} {path} is not described"
            assert route.handle.__doc__, f"the handler of {route.method} {path} has no docstring"

    @pytest.mark.parametrize("kind", _ERRORS, ids=lambda kind: kind.__name__)
    def test_an_error_keeps_its_meaning(self, kind: type[GatewayError], served: ServedApi) -> None:
        """An error keeps the class of its status (4xx or 5xx; 401 and 429 exactly), its headers and its message."""
        error = kind("It is the reason.")
        reply = served.api.error(error, "req_1")
        assert reply.status // 100 == error.status // 100
        assert reply.status == error.status or error.status not in (401, 429)
        assert b"It is the reason." in reply.body
        assert error.headers.items() <= dict(reply.headers).items(), "its headers are lost"

    def test_a_request_without_a_key_is_refused(self, served: ServedApi) -> None:
        """The refusal has the form of the API's errors. Public routes need no key."""
        for route in served.routes:
            answer = served.send(_to(route), key=None)
            if route.public:
                assert answer.status != 401, f"{route.path} is not public"
            else:
                self._is_error(served, answer, 401, f"{route.method} {route.path} without a key")

    def test_an_unknown_path_below_its_own_is_answered_by_it(self, served: ServedApi) -> None:
        for route in served.routes:
            if ":path}" in route.path or route.public:
                continue
            request = _to(route)
            missing = ApiRequest(method=request.method, path=f"{request.path}/no/such/path")
            self._is_error(served, served.send(missing), 404, missing.path)

    def test_a_bad_body_is_the_clients_mistake(self, served: ServedApi) -> None:
        """Each route that takes JSON answers a bad body with a 4xx status, and a body that is too large with 413."""
        for route in served.routes:
            if route.takes is None or route.method in ("GET", "DELETE"):
                continue
            request = _to(route)
            for body in _BAD_BODIES:
                sent = ApiRequest(method=request.method, path=request.path, body=body)
                answer = served.send(sent)
                if 200 <= answer.status < 300 and body in (b"", b"null"):
                    continue  # all fields of the request are optional
                self._is_error(served, answer, range(400, 500), f"{route.path} with {body[:20]!r}")
            large = b'{"a": "' + b"x" * _MAX_BYTES + b'"}'
            sent = ApiRequest(method=request.method, path=request.path, body=large)
            self._is_error(served, served.send(sent), 413, f"{route.path} with a large body")

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_an_answer_is_counted_once(self, stream: bool, served: ServedApi) -> None:
        """Usage is reported for the principal of the request, with the name of the API."""
        before = len(served.used)
        answer = served.send(self._asked("hello there", stream=stream))
        assert answer.status == 200, answer.body
        _wait_until(lambda: len(served.used) > before)
        served.send(self._asked("hello there", stream=stream))
        _wait_until(lambda: len(served.used) > before + 1)
        assert len(served.used) == before + 2, "an answer is counted twice"
        used = served.used[-1]
        assert used.principal is not None
        assert (used.api, used.principal.name, used.model) == (self.name, "ada", "m")
        assert used.input_tokens > 0
        assert used.output_tokens > 0

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_a_model_that_is_not_there_is_a_404(self, stream: bool, served: ServedApi) -> None:
        """A model that the API key may not use is a 404 too."""
        request = self._asked("hello", stream=stream, model="no-such-model")
        self._is_error(served, served.send(request), 404, "an unknown model")
        request = self._asked("hello", stream=stream)
        self._is_error(served, served.send(request, key="bob"), 404, "a model of others")

    def test_the_limits_of_a_key_hold(self, served: ServedApi) -> None:
        request = self._asked_anyhow("hello")
        assert served.send(request, key="cyd").status == 200
        answer = served.send(request, key="cyd")
        self._is_error(served, answer, 429, "a second request within a minute")
        assert int(answer.headers.get("retry-after", 0)) >= 1, "retry-after is missing"

    def test_a_full_queue_is_a_429(self, served: ServedApi) -> None:
        connection, answer = served.connect(self._asked("go slowly", stream=True, model="small"), key="ada")  # fmt: skip
        try:
            answer.read(1)
            refused = served.send(self._asked_anyhow("hello", model="small"))
            self._is_error(served, refused, 429, "a request to a model whose queue is full")
            assert int(refused.headers.get("retry-after", 0)) >= 1, "retry-after is missing"
        finally:
            connection.close()
        self._is_idle(served, "small")

    def test_a_client_that_leaves_frees_the_engine(self, served: ServedApi) -> None:
        connection, answer = served.connect(self._asked("go slowly", stream=True), key="ada")
        answer.read(1)
        _wait_until(lambda: served.engine().running)
        connection.close()
        self._is_idle(served, "m")

    def test_a_stream_ends_once(self, served: ServedApi) -> None:
        """This also holds if the engine fails during the stream."""
        for text in ("hello there", "break down"):
            body = served.send(self._asked(text, stream=True)).body
            found = {ending: body.count(ending) for ending in self.endings}
            assert sum(found.values()) == 1, f"after {text!r}: {found}"
        self._is_idle(served, "m")

    def test_silence_is_broken_and_changes_nothing(self, served: ServedApi) -> None:
        if self.keep_alive is None:
            pytest.skip("the API sends nothing in silence")
        body = served.send(self._asked("be silent", stream=True)).body
        assert self.keep_alive in body
        assert sum(map(body.count, self.endings)) == 1
        assert b"ah" in body

    def test_answers_at_once_do_not_mix(self, served: ServedApi) -> None:
        requests = [self._asked_anyhow(f"word{number}word") for number in range(8)]
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(served.send, requests))
        for number, answer in enumerate(answers):
            assert answer.status == 200, answer.body
            others = {int(each) for each in re.findall(rb"word(\d)word", answer.body)}
            assert others <= {number}, f"the answer {number} has text of {others}"
            if self.generation("", model="m", stream=False) is not None:
                assert others, f"the answer {number} does not repeat its text: {answer.body!r}"

    def test_requests_do_not_block_the_event_loop(self, served: ServedApi) -> None:
        requests = [_to(route) for route in served.routes]
        if (asked := self.generation("hello", model="m", stream=True)) is not None:
            requests.append(asked)

        async def answer() -> None:
            async with loop_stays_free("the API"):
                for request in requests:
                    await asyncio.to_thread(served.send, request)

        served.gateway.run(answer())

    def _asked(self, text: str, *, stream: bool, model: str = "m") -> ApiRequest:
        request = self.generation(text, model=model, stream=stream)
        if request is None:
            pytest.skip("the API has no such request")
        return request

    def _asked_anyhow(self, text: str, *, model: str = "m") -> ApiRequest:
        """A request for a whole answer if the API has such requests, otherwise for a stream."""
        whole = self.generation(text, model=model, stream=False)
        return whole or self._asked(text, stream=True, model=model)

    def _is_error(self, served: ServedApi, answer: Reply, status: int | range, what: str) -> None:
        expected = status if isinstance(status, range) else (status,)
        assert answer.status in expected, f"{what}: {answer.status} {answer.body[:300]!r}"
        own = _envelope(served.api)
        assert answer.content_type.partition(";")[0] == own.content_type.partition(";")[0], what
        assert _shape(answer) == _shape(own), (
            f"{what} is not in the API's envelope: {answer.body!r}"
        )

    def _is_idle(self, served: ServedApi, model: str) -> None:
        services, admission = (
            served.gateway.services,
            served.gateway.services.models[model].admission,
        )
        _wait_until(
            lambda: (
                not served.engine(model).running
                and not services.runs
                and (admission.running, admission.waiting) == (0, 0)
            )
        )


def _key(name: str) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest()}


def _to(route: Route) -> ApiRequest:
    """A request to `route` that it does not accept: with malformed JSON, if it takes a body."""
    path = re.sub(r"\{\w+:\w+\}", "x", route.path)
    return ApiRequest(
        method=route.method, path=path, body=b"{" if route.takes is not None else None
    )


def _envelope(api: Api) -> Reply:
    return api.error(errors.InvalidRequest("It is the reason."), "req_1")


def _shape(reply: Reply) -> Any:
    """The keys of a JSON body; None for other content types."""
    if reply.content_type.partition(";")[0] != "application/json":
        return None
    return _keys(json.loads(reply.body))


def _keys(value: Any) -> Any:
    return {key: _keys(each) for key, each in value.items()} if isinstance(value, dict) else None


def _wait_until(condition: Callable[[], object]) -> None:
    """Wait for up to a minute until `condition` is true."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it does not become true"
        time.sleep(0.01)

"""`/openapi.json`: it says what the types say, of every route."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import httpx
import msgspec
import openai.types.responses as sdk
import pytest
from litestar.routes import HTTPRoute
from openai.types import CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion
from openai.types.chat import ChatCompletionChunk as SdkChunk
from openai.types.chat import chat_completion_chunk as sdk_chunk
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from gateway import hookimpl
from gateway.http.api_description import _OPERATIONS, _plain
from gateway.http.apis import apis_in
from gateway.http.app import app_of
from gateway.http.cross_origin import EXPOSED
from gateway.plugins.protocols import Credentials, Principal, Route
from gateway.wire import items, response
from gateway.wire.chat import ChatRequest
from gateway.wire.chat_chunks import ChatCompletionChunk, ChoiceDelta, ChunkChoice
from gateway.wire.completions import CompletionChunk, CompletionChunkChoice
from gateway.wire.events import EVENTS
from gateway.wire.parameter_table import MEANINGS
from gateway.wire.request import ResponseRequest
from gateway.wire.response import Response
from gateway_testing.server import RunningGateway, run_gateway

CONFIG: dict[str, Any] = {"models": {"m": {"engine": "scripted"}}, "resources": {"files": {}}}
Schema = dict[str, Any]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("described")) as running:
        yield running


@pytest.fixture(scope="module")
def document(running: RunningGateway) -> Schema:
    answer = httpx.get(running.base_url.removesuffix("/v1") + "/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    found: Schema = answer.json()
    return found


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from references(each)


def validator(document: Schema, name: str) -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return jsonschema.Draft202012Validator(schema)


def fields(cls: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(cls)}


def test_it_is_an_openapi_document_in_which_every_reference_leads_somewhere(
    document: Schema,
) -> None:
    linter = pytest.importorskip("openapi_spec_validator")
    linter.validate(document)
    for reference in references(document):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in document["components"][kind]
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids))


def test_every_route_is_described_and_has_a_summary(
    running: RunningGateway, document: Schema
) -> None:
    app = app_of(running.services)
    pages = {route.path for _, route in apis_in(app).routes() if route.public}
    routes = {
        (str(method), _plain(route.path))
        for route in app.routes
        if isinstance(route, HTTPRoute) and route.path not in pages
        for method in route.methods
        if method not in ("OPTIONS", "HEAD")
    }
    described = {
        (method.upper(), path) for path, entry in document["paths"].items() for method in entry
    }
    assert described == routes
    assert set(_OPERATIONS) <= routes
    for path in document["paths"].values():
        for each in path.values():
            assert each["summary"]


def test_each_documented_field_is_one_of_its_type_and_back(document: Schema) -> None:
    schemas = document["components"]["schemas"]
    for cls in (Response, ResponseRequest, ChatRequest, response.ModelObject, *EVENTS.values()):
        assert set(schemas[cls.__name__]["properties"]) - {"type"} == fields(cls) - {"type"}, cls
    for cls in get_args(items.Item):
        name = "Reasoning" if cls is items.Reasoning else cls.__name__
        assert set(schemas[name]["properties"]) - {"type"} == fields(cls)


def test_the_fields_of_most_requests_come_first_and_are_explained(document: Schema) -> None:
    schemas = document["components"]["schemas"]
    fields = {name: schemas[name]["properties"] for name in ("ResponseRequest", "ChatRequest")}
    assert list(fields["ResponseRequest"])[:2] == ["model", "input"]
    assert list(fields["ChatRequest"])[:2] == ["model", "messages"]
    assert MEANINGS.keys() <= fields["ResponseRequest"].keys() | fields["ChatRequest"].keys()
    for properties in fields.values():
        explained = [name for name, each in properties.items() if "description" in each]
        assert explained == [name for name in MEANINGS if name in properties]


def test_every_event_of_a_stream_is_described(document: Schema) -> None:
    mapping = document["components"]["schemas"]["ResponseStreamEvent"]["discriminator"]["mapping"]
    assert set(mapping) == set(EVENTS)


def properties(document: Schema, name: str) -> set[str]:
    return set(document["components"]["schemas"][name]["properties"])


def test_the_fields_of_openais_sdk_are_in_it(document: Schema) -> None:
    """The fields that are missing here are those of services around a model, which this gateway does not have."""
    assert set(sdk.Response.model_fields) - properties(document, "Response") <= {
        "moderation", "prompt_cache_diagnostics", "input_transformations", "tool_usage", "image", "access_programs",
    }  # fmt: skip
    assert set(ResponseCreateParamsBase.__annotations__) <= properties(document, "ResponseRequest")
    for cls, name in (
        (ChatCompletion, "ChatCompletion"),
        (SdkChunk, "ChatCompletionChunk"),
        (sdk_chunk.Choice, "ChunkChoice"),
        (sdk_chunk.ChoiceDelta, "ChoiceDelta"),
        (sdk_chunk.ChoiceDeltaToolCall, "ToolCallDelta"),
        (CreateEmbeddingResponse, "EmbeddingList"),
        (Model, "ModelObject"),
        (sdk.ResponseUsage, "Usage"),
    ):
        missing = set(cls.model_fields) - properties(document, name)
        services = {"moderation", "metadata", "shutdown_date", "obfuscation", "audio"}
        assert missing <= services, (name, missing)
    own = document["components"]["schemas"]
    mapping = own["ResponseStreamEvent"]["discriminator"]["mapping"]
    for event in get_args(get_args(sdk.ResponseStreamEvent)[0]):
        kind = event.model_fields["type"].annotation.__args__[0]
        if kind in mapping:
            name = mapping[kind].rpartition("/")[2]
            assert set(event.model_fields) <= properties(document, name) | {"agent"}, kind


def test_patterns_are_those_of_json_schema(document: Schema) -> None:
    text = json.dumps(document)
    for pattern in re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', text):
        assert r"\A" not in json.loads(pattern)
        assert r"\Z" not in json.loads(pattern)


@pytest.mark.parametrize(
    ("path", "body", "asked", "name"),
    [
        ("/responses", {"model": "m", "input": "Hello"}, "ResponseRequest", "Response"),
        ("/responses", {"input": [{"role": "user", "content": "Hi"}], "text": {"format": {"type": "json_object"}}}, "ResponseRequest", "Response"),
        ("/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}, "ChatRequest", "ChatCompletion"),
        ("/embeddings", {"input": "Hello"}, "EmbeddingsRequest", "EmbeddingList"),
        ("/completions", {"prompt": "Hello", "max_tokens": 3}, "CompletionRequest", "Completion"),
        ("/responses", {"input": 5}, None, "ErrorEnvelope"),
    ],
)  # fmt: skip
def test_requests_and_answers_are_as_described(
    running: RunningGateway, document: Schema, path: str, body: Schema, asked: str, name: str
) -> None:
    if asked is not None:
        validator(document, asked).validate(body)
    validator(document, name).validate(httpx.post(running.base_url + path, json=body).json())


def test_events_are_as_described(running: RunningGateway, document: Schema) -> None:
    event = validator(document, "ResponseStreamEvent")
    body = {"model": "m", "input": "Hello", "stream": True}
    text = httpx.post(f"{running.base_url}/responses", json=body).text
    found = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert len(found) > 5
    for each in found:
        event.validate(each)


CALL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    "more",
    [
        {"stream_options": {"include_usage": True}},
        {"logprobs": True, "top_logprobs": 1, "n": 2, "return_token_ids": True},
        {"tools": [CALL], "tool_choice": "required"},
        {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        {"functions": [CALL["function"]], "function_call": {"name": "look"}},
    ],
)
def test_chunks_are_as_described(
    running: RunningGateway, document: Schema, more: dict[str, Any]
) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True, **more}
    answer = httpx.post(f"{running.base_url}/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    found = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]  # fmt: skip
    assert len(found) > 2
    chunk = validator(document, "ChatCompletionChunk")
    for each in found:
        chunk.validate(each)
        # Nothing is sent that is not described.
        msgspec.convert(each, ChatCompletionChunk, strict=True)
        assert set(each) <= fields(ChatCompletionChunk)
        for choice in each["choices"]:
            assert set(choice) <= fields(ChunkChoice)
            assert set(choice["delta"]) <= fields(ChoiceDelta)


@pytest.mark.parametrize(
    "more",
    [
        {"stream_options": {"include_usage": True}},
        {"logprobs": 1, "n": 2, "echo": True, "return_token_ids": True, "timings_per_token": True},
        {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    ],
)
def test_chunks_of_text_completions_are_as_described(
    running: RunningGateway, document: Schema, more: dict[str, Any]
) -> None:
    body = {"model": "m", "prompt": "Hi", "max_tokens": 4, "stream": True, **more}
    answer = httpx.post(f"{running.base_url}/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    found = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]  # fmt: skip
    assert len(found) > 2
    chunk = validator(document, "CompletionChunk")
    for each in found:
        chunk.validate(each)
        msgspec.convert(each, CompletionChunk, strict=True)
        assert set(each) <= fields(CompletionChunk)
        for choice in each["choices"]:
            assert set(choice) <= fields(CompletionChunkChoice)


def test_answers_have_the_headers_that_are_described(
    running: RunningGateway, document: Schema
) -> None:
    described = set(document["components"]["headers"])
    assert set(EXPOSED) - described == {"openai-processing-ms", "openai-version", "x-litegate-model"}  # fmt: skip
    made = document["paths"]["/v1/responses"]["post"]["responses"]
    assert set(made["429"]["headers"]) == described
    assert set(made["200"]["headers"]) == described - {"retry-after"}
    for operations in document["paths"].values():
        for each in operations.values():
            assert all("x-request-id" in answer["headers"] for answer in each["responses"].values())
    assert "x-request-id" in httpx.get(f"{running.base_url}/models", timeout=60).headers


def test_an_api_of_a_plugin_names_its_types(document: Schema) -> None:
    created = document["paths"]["/v1/messages"]["post"]
    assert created["tags"] == ["messages"]
    schema = created["requestBody"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/MessagesRequest"}
    assert {"takes", "answers"} <= {field.name for field in msgspec.structs.fields(Route)}


def test_names_do_not_depend_on_the_plugins(document: Schema, tmp_path: Path) -> None:
    with run_gateway({**CONFIG, "server": {"apis": []}}, tmp_path) as alone:
        url = alone.base_url.removesuffix("/v1") + "/openapi.json"
        schemas = httpx.get(url).json()["components"]["schemas"]
    assert {name: document["components"]["schemas"][name] for name in schemas} == schemas


@pytest.mark.slow
def test_requests_made_from_it_are_answered_as_it_says(
    running: RunningGateway, document: Schema
) -> None:
    """schemathesis makes requests from the document: no answer is a 5xx of our own, and each fits its schema."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance

    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=running.base_url.removesuffix("/v1"))
    statuses: Counter[int] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=20,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            answer = case.call_and_validate(
                checks=[not_a_server_error, response_schema_conformance], timeout=60
            )
            statuses[answer.status_code] += 1

        check()
    assert statuses[200] > 50, statuses
    assert statuses[400] > 50, statuses


class ByName:
    """An authenticator that believes what a sender says."""

    async def authenticate(self, request: Credentials) -> Principal | None:
        name = request.headers.get("x-name")
        return None if name is None else Principal(name=name)


class ByNamePlugin:
    @asynccontextmanager
    async def make(self, config: Any) -> AsyncIterator[ByName]:
        yield ByName()

    @hookimpl
    def gateway_register_authenticators(self, register: Any) -> None:
        register("by_name", self.make)


@pytest.mark.parametrize("tables", [{}, {"authenticators": {"by_name": {}}}])
def test_authentication_is_described_if_an_authenticator_alone_requires_it(
    tmp_path: Path, tables: dict[str, Any]
) -> None:
    with run_gateway({**CONFIG, **tables}, tmp_path, plugins=[ByNamePlugin()]) as running:
        url = running.base_url.removesuffix("/v1") + "/openapi.json"
        document = httpx.get(url, headers={"x-name": "ada"}).json()
        status = httpx.get(f"{running.base_url}/models").status_code
    security = document["paths"]["/v1/responses"]["post"].get("security")
    assert (security, status) == (([{"bearer": []}], 401) if tables else (None, 200))
    assert "security" not in document["paths"]["/health"]["get"]

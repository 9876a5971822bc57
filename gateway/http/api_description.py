"""`/openapi.json`: the description of the API, generated from the types that decode requests and encode answers.

The handlers read their bodies themselves, so Litestar's generator would see neither requests nor answers. Instead,
`_OPERATIONS` names their types, and msgspec generates the schemas. A route without an entry, such as a plugin's, is
described by its docstring.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from litestar import Litestar, get
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp
from msgspec import Struct

from gateway.http.answers import JsonAnswer
from gateway.http.apis import apis_in
from gateway.http.state import HttpRequest, services_of
from gateway.plugins.protocols import Route
from gateway.wire.chat import ChatCompletion, ChatRequest
from gateway.wire.chat_chunks import ChatCompletionChunk
from gateway.wire.completions import (
    Completion,
    CompletionChunk,
    CompletionRequest,
    Detokenized,
    DetokenizeRequest,
    TokenizeAnswer,
    TokenizeOptions,
)
from gateway.wire.embeddings import EmbeddingList, EmbeddingsRequest
from gateway.wire.events import AnyEvent
from gateway.wire.inventory import (
    GatewayInfo,
    KeyList,
    ListedRun,
    ModelQueues,
    RunList,
    SettingList,
    ToolServerList,
)
from gateway.wire.items import Item
from gateway.wire.listing import Deleted, Listing
from gateway.wire.parameter_table import MEANINGS
from gateway.wire.request import ConversationRequest, ResponseRequest
from gateway.wire.response import (
    CompactedResponse,
    Conversation,
    ErrorEnvelope,
    InputTokens,
    ModelList,
    ModelObject,
    Response,
)
from gateway.wire.scoring import RerankAnswer, RerankRequest, ScoreList, ScoreTextsRequest
from gateway.wire.stored_chat import StoredChatCompletion

JsonSchema = dict[str, Any]

_PAGE: Final[tuple[JsonSchema, ...]] = (
    {"name": "after", "schema": {"type": "string"}, "description": "The id after which the page begins."},
    {"name": "limit", "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}},
    {"name": "order", "schema": {"enum": ["asc", "desc"]}},
)  # fmt: skip
_BEFORE: Final[JsonSchema] = {
    "name": "before",
    "schema": {"type": "string"},
    "description": "The id before which the page ends.",
}
_INCLUDE: Final[JsonSchema] = {
    "name": "include",
    "schema": {"type": "array", "items": {"type": "string"}},
    "description": "Further values in the items.",
}
_STREAM: Final[tuple[JsonSchema, ...]] = (
    {"name": "stream", "schema": {"type": "boolean"}, "description": "Send the events of a background response."},
    {"name": "starting_after", "schema": {"type": "integer"}, "description": "The number of the last event that is not sent again; with `stream`."},
)  # fmt: skip


class Operation(Struct, frozen=True, kw_only=True):
    """The request and answer types of one method on one path."""

    takes: Any = None
    """The type of the request's body."""
    answers: Any = None
    """The type of the answer."""
    streams: Any = None
    """The type of the events that are sent instead if the request has `stream`."""
    query: tuple[JsonSchema, ...] = ()
    content_type: str = "application/json"
    body_required: bool = True


_RERANK: Final = Operation(takes=RerankRequest, answers=RerankAnswer)
_SCORE: Final = Operation(takes=ScoreTextsRequest, answers=ScoreList)
_RESPONSE: Final = "/v1/responses/{response_id}"
_CONVERSATION: Final = "/v1/conversations/{conversation_id}"
_CHAT: Final = "/v1/chat/completions/{completion_id}"
_OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("POST", "/v1/responses"): Operation(takes=ResponseRequest, answers=Response, streams=AnyEvent),
    ("GET", _RESPONSE): Operation(answers=Response, streams=AnyEvent, query=(_INCLUDE, *_STREAM)),
    ("DELETE", _RESPONSE): Operation(answers=Deleted),
    ("POST", f"{_RESPONSE}/cancel"): Operation(answers=Response),
    ("GET", f"{_RESPONSE}/input_items"): Operation(
        answers=Listing, query=(*_PAGE, _BEFORE, _INCLUDE)
    ),
    ("POST", "/v1/responses/input_tokens"): Operation(takes=ResponseRequest, answers=InputTokens),
    ("POST", "/v1/responses/compact"): Operation(takes=ResponseRequest, answers=CompactedResponse),
    ("POST", "/v1/conversations"): Operation(
        takes=ConversationRequest, answers=Conversation, body_required=False
    ),
    ("GET", _CONVERSATION): Operation(answers=Conversation),
    ("POST", _CONVERSATION): Operation(takes=ConversationRequest, answers=Conversation),
    ("DELETE", _CONVERSATION): Operation(answers=Deleted),
    ("POST", f"{_CONVERSATION}/items"): Operation(takes=ConversationRequest, answers=Listing),
    ("GET", f"{_CONVERSATION}/items"): Operation(answers=Listing, query=(*_PAGE, _INCLUDE)),
    ("GET", f"{_CONVERSATION}/items/{{item_id}}"): Operation(answers=Item, query=(_INCLUDE,)),
    ("DELETE", f"{_CONVERSATION}/items/{{item_id}}"): Operation(answers=Conversation),
    ("POST", "/v1/chat/completions"): Operation(
        takes=ChatRequest, answers=ChatCompletion, streams=ChatCompletionChunk
    ),
    ("GET", "/v1/chat/completions"): Operation(
        answers=Listing, query=(*_PAGE, {"name": "model", "schema": {"type": "string"}})
    ),
    ("GET", _CHAT): Operation(answers=StoredChatCompletion),
    ("POST", _CHAT): Operation(takes=dict[str, Any], answers=StoredChatCompletion),
    ("DELETE", _CHAT): Operation(answers=Deleted),
    ("GET", f"{_CHAT}/messages"): Operation(answers=Listing, query=_PAGE),
    ("POST", "/v1/completions"): Operation(
        takes=CompletionRequest, answers=Completion, streams=CompletionChunk
    ),
    ("POST", "/v1/embeddings"): Operation(takes=EmbeddingsRequest, answers=EmbeddingList),
    **dict.fromkeys((("POST", path) for path in ("/v1/rerank", "/v2/rerank", "/rerank")), _RERANK),
    **dict.fromkeys((("POST", path) for path in ("/v1/score", "/score")), _SCORE),
    ("POST", "/tokenize"): Operation(takes=TokenizeOptions, answers=TokenizeAnswer),
    ("POST", "/detokenize"): Operation(takes=DetokenizeRequest, answers=Detokenized),
    ("GET", "/v1/models"): Operation(answers=ModelList),
    ("GET", "/v1/models/{model}"): Operation(answers=ModelObject),
    ("POST", "/v1/models/{action}"): Operation(answers=ModelObject),
    ("DELETE", "/v1/models/{model}"): Operation(answers=Deleted),
    ("GET", "/v1/gateway"): Operation(answers=GatewayInfo),
    ("GET", "/v1/gateway/config"): Operation(answers=SettingList),
    ("GET", "/v1/gateway/keys"): Operation(answers=KeyList),
    ("GET", "/v1/gateway/models"): Operation(answers=ModelQueues),
    ("GET", "/v1/gateway/tools"): Operation(answers=ToolServerList),
    ("POST", "/v1/gateway/tools/probe"): Operation(answers=ToolServerList),
    ("GET", "/v1/gateway/runs"): Operation(answers=RunList),
    ("POST", "/v1/gateway/runs/{run_id}/cancel"): Operation(answers=ListedRun),
    ("GET", "/health"): Operation(answers=dict[str, Any]),
    ("GET", "/ready"): Operation(answers=dict[str, Any]),
    ("GET", "/metrics"): Operation(answers=str, content_type="text/plain"),
}
_REFERENCE: Final = "#/components/schemas/"
_EVENT: Final = "ResponseStreamEvent"
_STATUSES: Final = {
    "400": "The request is invalid; `param` names the place.",
    "401": "The API key is missing or wrong.",
    "404": "There is no such model or object.",
    "429": "A limit is reached, or the model's queue is full.",
    "default": "Any other error, in the same form.",
}

_HEADERS: Final = {
    "x-request-id": "The id of the request: the client's, or a new one.",
    "retry-after": "Seconds after which to try again.",
    **{
        f"x-ratelimit-{what}-{kind}": f"{meaning} Only for keys with a limit on {kind}."
        for kind in ("requests", "tokens")
        for what, meaning in (
            ("limit", f"The limit on {kind}."),
            ("remaining", f"What is left of the limit on {kind}."),
            ("reset", f"When the limit on {kind} is whole again, such as `6s`."),
        )
    },
}


@get("/openapi.json")
async def openapi(request: HttpRequest) -> ASGIApp:
    """This description."""
    app = request.app
    if "openapi" not in app.state:
        keyed = services_of(request).authenticator.needs_key
        # In a thread: generating the description takes longer than a token may be delayed.
        app.state["openapi"] = await asyncio.to_thread(
            lambda: msgspec.json.encode(describe(app, keyed=keyed))
        )
    return JsonAnswer(app.state["openapi"], 200)


def describe(app: Litestar, *, keyed: bool) -> JsonSchema:
    """The OpenAPI 3.1 document of all HTTP routes of `app`, except those that serve files of pages. `keyed`: whether
    requests need an API key."""
    found = list(_routes(app))
    named = _Components([operation for _, _, operation, _ in found])
    paths: dict[str, JsonSchema] = {}
    for method, path, operation, (text, tag, public) in found:
        entry = _operation(operation, path, text, tag, named)
        entry["operationId"] = _operation_id(method, path)
        if keyed and not public:
            entry["security"] = [{"bearer": []}]
        paths.setdefault(path, {})[method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Litegate",
            "version": "1",
            "description": "OpenAI's API in front of the models that this gateway serves. A request may also have fields that are "
            "not described here; they are ignored.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "."}],  # relative to this document, which a proxy may have below a path
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": named.schemas,
            "headers": {
                name: {"description": text, "schema": {"type": "string"}}
                for name, text in _HEADERS.items()
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


_Facts = tuple[str, str, bool]
"""A route's docstring, its tag, and whether it needs no API key."""


def _routes(app: Litestar) -> Iterator[tuple[str, str, Operation, _Facts]]:
    """Yields the path in OpenAPI's form, the method, the operation and the facts of each route."""
    plugged = {
        (route.method, _plain(route.path)): (name, route) for name, route in apis_in(app).routes()
    }
    open_paths = {"/health", "/ready", "/metrics"}
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        path = _plain(route.path)
        for method, (handler, _) in route.route_handler_map.items():
            if method == "OPTIONS":
                continue
            key = (str(method), path)
            if key in plugged:
                if plugged[key][1].public and plugged[key][1].answers is None:
                    continue  # the file of a page
                yield *key, _offered(plugged[key][1]), _facts(*plugged[key])
            else:
                facts = (_docstring(handler), _tag(path), path in open_paths)
                yield *key, _OPERATIONS.get(key, Operation()), facts


def _offered(route: Route) -> Operation:
    return Operation(takes=route.takes, answers=route.answers, streams=route.streams)


def _facts(name: str, route: Route) -> _Facts:
    # Without a docstring, the name of the handler is the description.
    words = getattr(route.handle, "__name__", "answer").strip("_").replace("_", " ").capitalize()
    return inspect.getdoc(route.handle) or f"{words}.", name, route.public


def _docstring(handler: HTTPRouteHandler) -> str:
    return inspect.getdoc(handler.fn) or ""


def _plain(path: str) -> str:
    """A path as OpenAPI writes it: parameters without their types."""
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def _tag(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", "v1", "v2")]
    return parts[0] if parts else "gateway"


def _operation_id(method: str, path: str) -> str:
    words = re.findall(r"\w+", path.replace(".", "_"))
    return "_".join([method.lower(), *words])


def _operation(
    operation: Operation, path: str, text: str, tag: str, named: _Components
) -> JsonSchema:
    summary, _, rest = text.partition("\n\n")
    entry: JsonSchema = {"tags": [tag], "summary": " ".join(summary.split())}
    if rest:
        entry["description"] = inspect.cleandoc(rest)
    parameters: list[JsonSchema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    parameters += ({"in": "query", **each} for each in operation.query)
    if parameters:
        entry["parameters"] = parameters
    if operation.takes is not None:
        content = {"application/json": {"schema": named.of(operation.takes)}}
        entry["requestBody"] = {"required": operation.body_required, "content": content}
    answered: JsonSchema = {}
    if operation.answers is not None:
        answered[operation.content_type] = {"schema": named.of(operation.answers)}
    if operation.streams is not None:
        schema = named.of(operation.streams)
        if operation.streams is AnyEvent:
            schema = {"$ref": f"{_REFERENCE}{_EVENT}"}
        answered["text/event-stream"] = {"schema": schema}
    limited = operation.takes is not None
    entry["responses"] = {
        "200": {
            "description": "Success.",
            "headers": _headers(limits=limited),
            **({"content": answered} if answered else {}),
        },
        **{
            status: {
                "description": meaning,
                "headers": _headers(
                    limits=limited and status == "429", retry=status in ("429", "default")
                ),
                "content": {"application/json": {"schema": named.of(ErrorEnvelope)}},
            }
            for status, meaning in _STATUSES.items()
        },
    }
    return entry


def _headers(*, limits: bool, retry: bool = False) -> JsonSchema:
    """References to the headers that an answer may contain."""
    return {
        name: {"$ref": f"#/components/headers/{name}"}
        for name in _HEADERS
        if (limits or not name.startswith("x-ratelimit")) and (retry or name != "retry-after")
    }


class _Components:
    """The schemas of the types that operations name."""

    def __init__(self, operations: list[Operation]) -> None:
        wanted: dict[Any, None] = {ErrorEnvelope: None, AnyEvent: None, Item: None}
        for operation in operations:
            for each in (operation.takes, operation.answers, operation.streams):
                if each is not None:
                    wanted[each] = None
        made, components = msgspec.json.schema_components(
            list(wanted), ref_template=f"{_REFERENCE}{{name}}"
        )
        self._schemas: dict[Any, JsonSchema] = dict(zip(wanted, map(_normal, made), strict=True))
        self.schemas: dict[str, JsonSchema] = {
            _short(name): _normal(each) for name, each in components.items()
        }
        self.schemas[_EVENT] = self._schemas[AnyEvent]
        self._loosen()
        for name in ("ResponseRequest", "ChatRequest"):
            self.schemas[name]["properties"] = _explained(self.schemas[name]["properties"])

    def of(self, wanted: Any) -> JsonSchema:
        return self._schemas[wanted]

    def _loosen(self) -> None:
        """Add further forms that requests may have. The types only describe what the decoders produce from them."""
        self.schemas["EasyInputMessage"] = {
            "title": "EasyInputMessage",
            "description": "A message whose `type` may be left out, and whose content may be a text.",
            "type": "object",
            "properties": {
                "type": {"enum": ["message"]},
                "role": self.schemas["Message"]["properties"]["role"],
                "content": {
                    "anyOf": [{"type": "string"}, self.schemas["Message"]["properties"]["content"]]
                },
            },
            "required": ["role", "content"],
        }
        item = {"anyOf": [{"$ref": f"{_REFERENCE}EasyInputMessage"}, self._schemas[Item]]}
        items = {"type": "array", "items": item}
        properties = self.schemas["ResponseRequest"]["properties"]
        properties["input"] = {"anyOf": [{"type": "string"}, items, {"type": "null"}]}
        self.schemas["ConversationRequest"]["properties"]["items"] = {
            "anyOf": [items, {"type": "null"}]
        }
        chat = self.schemas["ChatRequest"]
        chat["required"] = ["messages"]
        messages = chat["properties"]["messages"]
        messages["minItems"] = 1
        del messages["default"]


def _explained(properties: Mapping[str, JsonSchema]) -> JsonSchema:
    """The fields of a request with descriptions, most common fields first."""
    known = {
        name: {**properties[name], "description": text}
        for name, text in MEANINGS.items()
        if name in properties
    }
    return {**known, **{name: each for name, each in properties.items() if name not in known}}


def _short(name: str) -> str:
    """A component's name. If several types have the same name, msgspec prefixes it with the module. Only plugins' types
    keep this prefix, so that the names of the core's types do not depend on the installed plugins."""
    if "." not in name or name.startswith("gateway."):
        return name.rpartition(".")[2]
    parts = name.removeprefix("gateway_").split(".")
    return "".join(word[:1].upper() + word[1:] for part in parts for word in part.split("_"))


def _normal(schema: Any) -> Any:
    """The schema with references by short names, and with patterns in the syntax of ECMA-262, which JSON Schema
    requires."""
    if isinstance(schema, dict):
        return {key: _normal_value(key, value) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_normal(each) for each in schema]
    if isinstance(schema, str) and schema.startswith(_REFERENCE):
        return _REFERENCE + _short(schema.removeprefix(_REFERENCE))
    return schema


def _normal_value(key: str, value: Any) -> Any:
    if key == "pattern" and isinstance(value, str):
        return value.replace(r"\A", "^").replace(r"\Z", "$")
    return _normal(value)

"""Checks of refused requests: the status, and an error object that names the parameter."""

from __future__ import annotations

from gateway_conform.checks.asking import chat_body
from gateway_conform.checks.refusals import require_error
from gateway_conform.client import Json
from gateway_conform.outcome import require
from gateway_conform.registry import ServerUnderTest, check


def _refused(server: ServerUnderTest, param: str | None, **fields: Json) -> None:
    body = {"model": server.model, "input": "Hello", "max_output_tokens": 16, **fields}
    require_error(server.client.post("/responses", body), 400, param=param)


@check("errors", "an unknown model is refused by name")
def unknown_model(server: ServerUnderTest) -> None:
    body = {"model": "no-such-model", "input": "Hello"}
    error = require_error(server.client.post("/responses", body), 400, 404, code="model_not_found")
    require("no-such-model" in error["message"], f"the message is {error['message']!r}")


@check("errors", "an error object has a message, a type, a param and a code")
def fields(server: ServerUnderTest) -> None:
    body = {"model": "no-such-model", "input": "Hello"}
    error = require_error(server.client.post("/responses", body), 400, 404)
    for field in ("message", "type", "param", "code"):
        require(field in error, f"there is no {field!r}: {error}")
    for field in ("message", "type"):
        require(isinstance(error[field], str), f"{field} is {error[field]!r}")
    for field in ("param", "code"):
        require(
            error[field] is None or isinstance(error[field], str), f"{field} is {error[field]!r}"
        )


@check("errors", "a body that is no JSON is 400")
def no_json(server: ServerUnderTest) -> None:
    require_error(server.client.post_bytes("/responses", b'{"model": '), 400)


@check("errors", "a body that is no object is 400")
def no_object(server: ServerUnderTest) -> None:
    require_error(server.client.post_bytes("/responses", b"[1, 2]"), 400)


@check("errors", "a number that is a text is refused by name")
def wrong_type(server: ServerUnderTest) -> None:
    _refused(server, "temperature", temperature="hot")


@check("errors", "a number out of its range is refused by name")
def out_of_range(server: ServerUnderTest) -> None:
    _refused(server, "temperature", temperature=3)
    _refused(server, "top_p", top_p=-0.1)


@check("errors", "a limit of no tokens is refused by name")
def no_tokens(server: ServerUnderTest) -> None:
    _refused(server, "max_output_tokens", max_output_tokens=0)


@check("errors", "an input of another type is refused by name")
def wrong_input(server: ServerUnderTest) -> None:
    _refused(server, "input", input=5)


@check("errors", "an input of no items is refused by name")
def empty_input(server: ServerUnderTest) -> None:
    _refused(server, "input", input=[])


@check("errors", "a request without a model is refused by name")
def no_model(server: ServerUnderTest) -> None:
    require_error(server.client.post("/responses", {"input": "Hello"}), 400, param="model")


@check("errors", "an unknown parameter is refused by name")
def unknown_parameter(server: ServerUnderTest) -> None:
    _refused(server, "no_such_parameter", no_such_parameter=1)


@check("errors", "a part of Chat Completions in an input is refused, and its place is named")
def chat_part(server: ServerUnderTest) -> None:
    part = {"type": "text", "text": "Hello"}
    _refused(server, "input", input=[{"role": "user", "content": [part]}])


@check("errors", "an unknown role is refused, and its place is named")
def wrong_role(server: ServerUnderTest) -> None:
    _refused(
        server, "input", input=[{"role": "user", "content": "a"}, {"role": "boss", "content": "b"}]
    )


@check("errors", "an unknown kind of item is refused, and its place is named")
def wrong_item(server: ServerUnderTest) -> None:
    _refused(server, "input", input=[{"type": "no_such_item"}])


@check("errors", "an unknown kind of tool is refused by name")
def wrong_tool(server: ServerUnderTest) -> None:
    _refused(server, "tools", tools=[{"type": "no_such_tool"}])


@check("errors", "a function without a name is refused by name")
def nameless_tool(server: ServerUnderTest) -> None:
    _refused(server, "tools", tools=[{"type": "function", "parameters": {}}])


@check("errors", "an unknown tool_choice is refused by name")
def wrong_choice(server: ServerUnderTest) -> None:
    _refused(server, "tool_choice", tool_choice="perhaps")


@check("errors", "metadata with too many pairs is refused by name")
def much_metadata(server: ServerUnderTest) -> None:
    _refused(server, "metadata", metadata={f"k{n}": "v" for n in range(17)})


@check("errors", "a bad request for a stream is refused by its status, before any event")
def streamed(server: ServerUnderTest) -> None:
    body = {"model": server.model, "input": "Hello", "stream": True, "temperature": "hot"}
    require_error(server.client.post("/responses", body), 400, param="temperature")


@check("errors", "an unknown path is 404 with an error object")
def unknown_path(server: ServerUnderTest) -> None:
    require_error(server.client.get("/no/such/path"), 404)


@check("errors", "another method is 405 with an error object")
def wrong_method(server: ServerUnderTest) -> None:
    require_error(server.client.delete("/models"), 404, 405)


@check("errors", "chat: messages that are missing or empty are refused by name")
def no_messages(server: ServerUnderTest) -> None:
    body: Json = {"model": server.model}
    require_error(server.client.post("/chat/completions", body), 400, param="messages")
    body["messages"] = []
    require_error(server.client.post("/chat/completions", body), 400, param="messages")


@check("errors", "chat: an unknown role is refused, and its place is named")
def wrong_role_in_chat(server: ServerUnderTest) -> None:
    body = {"model": server.model, "messages": [{"role": "boss", "content": "a"}]}
    require_error(server.client.post("/chat/completions", body), 400, param="messages")


@check("errors", "chat: more than four stop sequences are refused by name")
def many_stops(server: ServerUnderTest) -> None:
    body = chat_body(server, stop=["a", "b", "c", "d", "e"])
    require_error(server.client.post("/chat/completions", body), 400, param="stop")


@check("errors", "chat: stream_options without a stream are refused by name")
def lonely_stream_options(server: ServerUnderTest) -> None:
    body = chat_body(server, stream_options={"include_usage": True})
    require_error(server.client.post("/chat/completions", body), 400, param="stream_options")


@check("errors", "chat: an unknown parameter is refused by name")
def unknown_parameter_in_chat(server: ServerUnderTest) -> None:
    body = chat_body(server, no_such_parameter=1)
    error = require_error(server.client.post("/chat/completions", body), 400)
    require("no_such_parameter" in error["message"], f"the message is {error['message']!r}")

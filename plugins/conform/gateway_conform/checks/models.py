"""Checks of `/v1/models`."""

from __future__ import annotations

from gateway_conform.checks.refusals import require_error
from gateway_conform.outcome import require
from gateway_conform.registry import ServerUnderTest, check
from gateway_conform.types import validate


@check("models", "the list has each model as an object")
def lists(server: ServerUnderTest) -> None:
    listed = server.client.get("/models").expect()
    require(listed["object"] == "list", f"object is {listed['object']!r}")
    require(listed["data"], "the list is empty")
    for model in listed["data"]:
        require(model["object"] == "model", f"a model's object is {model['object']!r}")
    names = [model["id"] for model in listed["data"]]
    require(len(set(names)) == len(names), f"a model is listed twice: {names}")


@check("models", "a model is retrieved by its name")
def retrieves(server: ServerUnderTest) -> None:
    model = server.client.get(f"/models/{server.model}").expect()
    require(model["id"] == server.model, f"its id is {model['id']!r}")


@check("models", "each model is valid by the types of OpenAI's SDK")
def types(server: ServerUnderTest) -> None:
    for model in server.client.get("/models").expect()["data"]:
        validate("openai.types.Model", model)


@check("models", "an unknown model is 404 with an error object")
def unknown(server: ServerUnderTest) -> None:
    require_error(server.client.get("/models/no-such-model"), 404)

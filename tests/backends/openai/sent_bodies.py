"""What an upstream is sent of a turn."""

from __future__ import annotations

from typing import Any

from openai.types.chat import CompletionCreateParams
from openai.types.responses import ResponseCreateParams
from pydantic import TypeAdapter

from gateway.plugins.protocols import (
    Turn,
)

CHAT = TypeAdapter(CompletionCreateParams)
RESPONSES = TypeAdapter(ResponseCreateParams)


async def sent_body(stub: Any, asker: Any, turn: Turn, config: dict[str, Any], **more: Any) -> Any:
    """The body of the request that the upstream gets, which the SDK's types accept."""
    if config.get("api") == "responses":
        usage = {"status": "completed", "usage": {}}
        stub.says({"type": "response.completed", "response": usage})
    else:
        stub.says(stub.chunk("stop"))
    async with asker.open(stub, **config):
        await asker.engine.check(asker.request(turn, **more))
        assert not stub.bodies, "checking asks nobody"
        await asker.ask(turn, **more)
    (sent,) = stub.bodies
    stub.bodies.clear()
    if not config.get("extensions"):
        # The SDK's types want ids of earlier output items, which the API does without and the upstream does not know.
        told = {**sent, "input": "Hi"} if "input" in sent else sent
        (RESPONSES if "input" in sent else CHAT).validate_python(told)
    return sent

"""Records for the store contract."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from gateway.plugins.protocols import StoredResponse
from gateway.wire.content import InputText, OutputText
from gateway.wire.items import FunctionCall, Item, Message
from gateway.wire.response import Response, ResponseStatus

without_deadline = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""Settings for tests of random operations, without a deadline because stores may be slow."""
some_record = st.integers(0, 7)
"""The index of a record. An index that is too large selects a record that never existed."""


def message(role: Literal["user", "assistant"], text: str, *, item_id: str = "") -> Message:
    """A message with an id."""
    part = InputText(text=text) if role == "user" else OutputText(text=text)
    return Message(id=item_id or f"msg_{uuid.uuid4().hex}", role=role, content=[part])


def call_item() -> FunctionCall:
    """A function call with an id."""
    number = uuid.uuid4().hex
    return FunctionCall(
        id=f"fc_{number}", call_id=f"call_{number}", name="f", arguments='{"a": "\\u00e9"}'
    )


def record(
    *,
    response_id: str | None = None,
    status: ResponseStatus = "completed",
    input_: Sequence[Item] | None = None,
    output: Sequence[Item] = (),
    previous_response_id: str | None = None,
    conversation_id: str | None = None,
    owner: str | None = None,
    streamed: bool = False,
    request: bytes | None = None,
    attempt: int = 0,
) -> StoredResponse:
    """A response to the question "question"."""
    return StoredResponse(
        response=Response(
            id=response_id or f"resp_{uuid.uuid4().hex}",
            created_at=1_700_000_000,
            status=status,
            model="m",
            output=list(output),
            previous_response_id=previous_response_id,
            metadata={"k": "v"},
        ),
        input=[message("user", "question")] if input_ is None else list(input_),
        previous_response_id=previous_response_id,
        conversation_id=conversation_id,
        owner=owner,
        streamed=streamed,
        request=request,
        attempt=attempt,
    )

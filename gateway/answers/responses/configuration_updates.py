"""Items that change settings for the rest of a conversation (`configuration_update`)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from gateway.wire.items import ConfigurationUpdate, Item
from gateway.wire.request import ResponseRequest
from gateway.wire.text import ReasoningOptions


def with_updates(request: ResponseRequest, context: Sequence[Item]) -> ResponseRequest:
    """Return `request` with the settings of the updates in `context`. For each setting, the latest update applies.

    Updates take precedence over the request's own settings, so that a client can send the same settings with each
    request.
    """
    reasoning, text = request.reasoning, request.text
    for item in context:
        if not isinstance(item, ConfigurationUpdate):
            continue
        if item.reasoning is not UNSET:
            effort = item.reasoning.effort
            reasoning = msgspec.structs.replace(reasoning or ReasoningOptions(), effort=effort)
        if item.text is not UNSET:
            text = msgspec.structs.replace(text, format=item.text.format)
    if reasoning is request.reasoning and text is request.text:
        return request
    return msgspec.structs.replace(request, reasoning=reasoning, text=text)

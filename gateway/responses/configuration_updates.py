"""Settings that items of a conversation change from where they stand (`configuration_update`)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from gateway.wire.items import ConfigurationUpdate, Item
from gateway.wire.request import ResponseRequest
from gateway.wire.text import Reasoning


def with_updates(request: ResponseRequest, context: Sequence[Item]) -> ResponseRequest:
    """`request` with the settings that the latest updates in `context` have made, each setting for itself.

    They come before the request's own: an update is there so that what is sent with every request can stay as it is.
    """
    reasoning, text = request.reasoning, request.text
    for item in context:
        if not isinstance(item, ConfigurationUpdate):
            continue
        if item.reasoning is not UNSET:
            effort = item.reasoning.effort
            reasoning = msgspec.structs.replace(reasoning or Reasoning(), effort=effort)
        if item.text is not UNSET:
            text = msgspec.structs.replace(text, format=item.text.format)
    if reasoning is request.reasoning and text is request.text:
        return request
    return msgspec.structs.replace(request, reasoning=reasoning, text=text)

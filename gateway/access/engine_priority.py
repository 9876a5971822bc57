"""The priority of a request in its engine."""

from __future__ import annotations

from gateway.base.errors import InvalidRequest
from gateway.observe.request_context import current_context
from gateway.plugins.protocols import PrioritizingEngine


def engine_priority(engine: object, asked: int | None) -> int:
    """The priority of the current request in the engine. Lower numbers are served first.

    It is the priority `asked` for by the request (None: 0), increased for background work if the engine serves by
    priority. Raises `InvalidRequest` if `asked` is below both 0 and the priority of the request's API key: the
    request would be served before those of others.
    """
    priority = asked or 0
    context = current_context()
    if priority < 0 and context is not None and context.principal is not None:
        least = min(0, context.principal.priority)
        if (
            priority + (max(0, context.priority) if isinstance(engine, PrioritizingEngine) else 0)
            < least
        ):
            raise InvalidRequest(
                f"Invalid 'priority': {priority}. Requests of the API key '{context.principal.name}' have {least} or more: a lower one goes "
                "before the requests of others. The `priority` of the key allows it.",
                param="priority",
                code="integer_below_min_value",
            )
    if context is None or context.priority <= 0 or not isinstance(engine, PrioritizingEngine):
        return priority
    last = engine.last_priority
    return priority if last is None else max(priority, min(priority + context.priority, last))

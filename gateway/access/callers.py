"""The caller of the request that is being processed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase

import msgspec

from gateway.base.errors import InvalidRequest
from gateway.base.shares import OWNER
from gateway.plugins.protocols import Principal, PrincipalLimits, PrioritizingEngine


class Caller:
    """The sender of a request, and the limit headers of its answer. Tasks that a request starts inherit its caller."""

    __slots__ = ("limit_headers", "principal", "priority", "waits_for_room")

    def __init__(
        self,
        principal: Principal | None = None,
        *,
        priority: int = 0,
        waits_for_room: bool = True,
    ) -> None:
        self.principal = principal
        self.priority = priority
        """Added to the principal's priority. A positive value marks background work, which is served after all other
        work."""
        self.waits_for_room = waits_for_room
        """Whether the request may wait until another model is unloaded. False for a request that is sent on behalf of
        another one, which may be using that model: the two would wait for each other."""
        self.limit_headers: list[tuple[bytes, bytes]] = []

    @property
    def owner(self) -> str | None:
        """The principal's name; None in anonymous mode."""
        return None if self.principal is None else self.principal.name


_CALLER: ContextVar[Caller | None] = ContextVar("gateway.caller", default=None)


def current_caller() -> Caller | None:
    """The caller of the current task; None outside of requests."""
    return _CALLER.get()


def current_principal() -> Principal | None:
    """The principal of the current task; None outside of requests, and in anonymous mode."""
    caller = _CALLER.get()
    return None if caller is None else caller.principal


def engine_priority(engine: object, asked: int | None) -> int:
    """The priority of the current request in the engine. Lower numbers are served first.

    It is the priority `asked` for by the request (None: 0), increased for background work if the engine serves by
    priority. Raises `InvalidRequest` if `asked` is below both 0 and the priority of the request's API key: the
    request would be served before those of others.
    """
    priority = asked or 0
    caller = current_caller()
    if priority < 0 and caller is not None and caller.principal is not None:
        least = min(0, caller.principal.priority)
        if (
            priority + (max(0, caller.priority) if isinstance(engine, PrioritizingEngine) else 0)
            < least
        ):
            raise InvalidRequest(
                f"Invalid 'priority': {priority}. Requests of the API key '{caller.principal.name}' have {least} or more: a lower one goes "
                "before the requests of others. The `priority` of the key allows it.",
                param="priority",
                code="integer_below_min_value",
            )
    if caller is None or caller.priority <= 0 or not isinstance(engine, PrioritizingEngine):
        return priority
    last = engine.last_priority
    return priority if last is None else max(priority, min(priority + caller.priority, last))


class called_by:  # noqa: N801  # used as a function
    """A context manager that makes `caller` the current caller. It can be entered once."""

    __slots__ = ("_caller", "_owner", "_token")

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def __enter__(self) -> None:
        self._token = _CALLER.set(self._caller)
        self._owner = OWNER.set(self._caller.owner or "")

    def __exit__(self, *exc_info: object) -> None:
        OWNER.reset(self._owner)
        _CALLER.reset(self._token)


@contextmanager
def as_the_gateway() -> Iterator[None]:
    """Within the context, the gateway acts for the current request without the principal's restrictions and limits.

    Its work has the priority of clients, because the request may hold a place in a queue while it waits for this
    work. The tokens are counted for the principal.
    """
    caller = current_caller()
    if caller is None or (caller.principal is None and caller.priority <= 0):
        yield
        return
    free = caller.principal
    if free is not None:
        free = msgspec.structs.replace(free, models=None, tools=None, limits=PrincipalLimits())
    with called_by(Caller(free)):
        yield


def names_model(principal: Principal | None, *names: str) -> bool:
    """Whether a principal may use a model that is known by these names."""
    if principal is None or principal.models is None:
        return True
    return any(fnmatchcase(name, pattern) for name in names for pattern in principal.models)

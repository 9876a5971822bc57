"""The caller of the request that is being processed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase

import msgspec

from gateway.errors import InvalidRequest
from gateway.protocols import Principal, PrincipalLimits, PrioritizingEngine
from gateway.shares import OWNER


class Caller:
    """Who sent a request, and the headers of its answer about limits. Tasks that a request starts have its caller."""

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
        """Added to the principal's. A positive one is for work that no client waits for, which is served after all else."""
        self.waits_for_room = waits_for_room
        """Whether it may wait until another model is unloaded. Not for what is sent while another request is worked for, which may
        use that model: they would wait for each other."""
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
    """The priority of the current request in the engine: what it asks for (None: 0), and a later one for work that no client
    waits for, if the engine serves by priority. Raises `InvalidRequest` for one by which it would go before the requests of others,
    unless the priority of its key is as low."""
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
    """Within the context, `caller` is the current one. Entered once."""

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
    """Within the context, what the gateway does for the current request is neither restricted nor limited. It does
    not wait behind clients, because the request may hold a place meanwhile. Its tokens are the principal's."""
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
    """Whether a principal may use a model that has these names."""
    if principal is None or principal.models is None:
        return True
    return any(fnmatchcase(name, pattern) for name in names for pattern in principal.models)

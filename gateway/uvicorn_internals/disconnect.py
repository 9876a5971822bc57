"""Noticing that a client has left, without a task that waits for it."""

from __future__ import annotations

from collections.abc import Callable

from litestar.types import Receive

from gateway.uvicorn_internals.fast_path import RequestResponseCycle
from gateway.uvicorn_internals.light import LightEvent


def on_disconnect(receive: Receive, leave: Callable[[], None]) -> Callable[[], None] | None:
    """Call `leave` once if the client leaves before its answer is complete. Returns a function that ends this.

    The request's body must have been read. Returns None if `receive` is not uvicorn's, or the client has left: the caller must
    then wait for the message of `receive`.
    """
    cycle = getattr(receive, "__self__", None)
    if (
        not isinstance(cycle, RequestResponseCycle)
        or cycle.more_body
        or cycle.disconnected
        or cycle.response_complete
    ):
        return None
    watch = _LeaveEvent(cycle, leave)
    cycle.message_event = watch  # type: ignore[assignment]  # has the same methods
    cycle.flow.resume_reading()  # as in `receive`: a connection that is not read does not tell that it is closed
    return watch.end


class _LeaveEvent(LightEvent):
    """Stands in for the event that uvicorn sets when there is something to receive."""

    __slots__ = ("_before", "_cycle", "_leave")

    def __init__(self, cycle: RequestResponseCycle, leave: Callable[[], None]) -> None:
        super().__init__()
        self._before = cycle.message_event
        self._cycle = cycle
        self._leave: Callable[[], None] | None = leave

    def set(self) -> None:
        super().set()
        leave = self._leave
        if leave is not None and self._cycle.disconnected:
            self._leave = None
            leave()

    def end(self) -> None:
        """Put the event back that this one stands in for."""
        cycle, event = self._cycle, self._before
        self._leave = None
        cycle.message_event = event
        if cycle.disconnected or cycle.response_complete:
            event.set()

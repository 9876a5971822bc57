"""The queues of models over the last hour, for administrators.

Sampled once a second. For running requests, the maximum between two samples counts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gateway.models.model_slot import ModelSlot
from gateway.wire.inventory import QueueMinute

MINUTES: Final = 60


class QueueHistory:
    """Maxima of running and waiting requests of each model in this process, for each minute of the last hour."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns Unix time."""
        self._clock = clock
        self._minutes: dict[str, deque[QueueMinute]] = {}

    def sample(self, slots: Iterable[ModelSlot]) -> None:
        """Sample the queues of `slots`. The histories of other models are deleted."""
        at = int(self._clock()) // 60 * 60
        kept: dict[str, deque[QueueMinute]] = {}
        for slot in slots:
            minutes = kept[slot.name] = self._minutes.get(slot.name) or deque(maxlen=MINUTES)
            running, waiting = slot.admission.most_running(), slot.admission.waiting
            if minutes and minutes[-1].at == at:
                last = minutes.pop()
                running, waiting = max(running, last.running), max(waiting, last.waiting)
            minutes.append(QueueMinute(at=at, running=running, waiting=waiting))
        self._minutes = kept

    def of(self, name: str) -> Sequence[QueueMinute]:
        """The minutes of a model, oldest first. Empty for an unknown model."""
        return list(self._minutes.get(name, ()))

"""A log that tests can read."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.config.redaction import Redactor
from gateway.process.logs import JsonFormatter
from tests.waiting import wait_until


class ReadableLog:
    """The log entries of the gateways of this process, from `info` on, as they are written in JSON."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(JsonFormatter(Redactor()))

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    def entries(self, **fields: object) -> list[dict[str, Any]]:
        """The entries that have `fields`, but for requests of `/v1/models`: remote engines of other tests' gateways in this
        process may ask for it at any time."""
        found = [json.loads(line) for line in self.text.splitlines()]
        return [
            each
            for each in found
            if fields.items() <= each.items() and each.get("route") != "/v1/models"
        ]

    def until(self, number: int, **fields: object) -> list[dict[str, Any]]:
        """Wait until there are `number` entries that have `fields`: a request's line follows its answer."""
        return self.wait(lambda: len(self.entries(**fields)) >= number, **fields)

    def wait(self, reached: Callable[[], bool], **fields: object) -> list[dict[str, Any]]:
        wait_until(reached, f"in the log: {fields}")
        return self.entries(**fields)


@pytest.fixture
def log() -> Iterator[ReadableLog]:
    made = ReadableLog()
    logger = logging.getLogger("gateway")
    level = logger.level
    logger.addHandler(made.handler)
    logger.setLevel(logging.INFO)
    yield made
    logger.setLevel(level)
    logger.removeHandler(made.handler)

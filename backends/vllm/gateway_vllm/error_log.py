"""Collects the errors that vLLM's processes log, to report why an engine process died."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from gateway.sdk.processes import TemporaryFolder

_RECORD = "\x1e"
_MAX_BYTES = 1_000_000


class ErrorLog:
    """A second handler for errors in vLLM's log, child processes included. Uses temporary files; `close` removes
    them."""

    def __init__(self, vllm_logging: Mapping[str, Any], level: str) -> None:
        """`vllm_logging` is vLLM's logging configuration (`logging.config.dictConfig`); only its level is changed."""
        self._folder = TemporaryFolder("litegate-vllm")
        folder = self._folder.path
        self._errors = folder / "errors"
        self.config_file = folder / "logging.json"
        """Path of the logging configuration that vLLM is given."""
        config = deepcopy(dict(vllm_logging))
        config["handlers"]["vllm"]["level"] = level
        config["formatters"]["litegate"] = {"format": f"{_RECORD}%(process)d %(message)s"}
        config["handlers"]["litegate"] = {
            "class": "logging.FileHandler",
            "filename": str(self._errors),
            "formatter": "litegate",
            "level": "ERROR",
            "delay": True,
        }
        config["loggers"]["vllm"]["handlers"].append("litegate")
        config["loggers"]["vllm"]["level"] = level
        self.config_file.write_text(json.dumps(config))

    def cause(self) -> str | None:
        """The last line of the first traceback that a child process logged; None if there is none."""
        try:
            with self._errors.open(errors="replace") as file:
                written = file.read(_MAX_BYTES)
        except FileNotFoundError:
            return None
        own = str(os.getpid())
        for record in written.split(_RECORD)[1:]:
            process, _, text = record.partition(" ")
            if process != own and (found := root_cause(text)) is not None:
                return found
        return None

    def close(self) -> None:
        self._folder.remove()


def root_cause(text: str) -> str | None:
    """The line of a logged traceback that names the first exception of its chain; None without a traceback."""
    lines = text.splitlines()
    try:
        start = lines.index("Traceback (most recent call last):") + 1
    except ValueError:
        return None
    for line in lines[start:]:
        if line and not line.startswith(" "):
            return line
    return None

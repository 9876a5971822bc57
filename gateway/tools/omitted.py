"""Reporting tools that requests ask the gateway to run but that are not available."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gateway.metrics import Metrics

logger = logging.getLogger("gateway.tools")


class OmittedTools:
    """Counts all omitted tools, and logs one line per type, the first time."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: set[str] = set()

    def report(self, kinds: Iterable[str]) -> None:
        """Report the omitted tool types of one request."""
        for kind in kinds:
            self._metrics.tool_omitted(kind)
            if kind not in self._logged:
                self._logged.add(kind)
                logger.warning(
                    "requests ask for tools of type '%s', which are not here: models are not told of them "
                    '(unavailable_tools = "omit")',
                    kind,
                )

"""Telling whoever runs the server of tools that requests ask it to run, and that the models are not told of."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gateway.serving.metrics import Metrics

logger = logging.getLogger("gateway.tools")


class OmittedTools:
    """Counts them all; logs one line for each type, the first time."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: set[str] = set()

    def tell(self, kinds: Iterable[str]) -> None:
        """One request's, by their types."""
        for kind in kinds:
            self._metrics.tool_omitted(kind)
            if kind not in self._logged:
                self._logged.add(kind)
                logger.warning(
                    "requests ask for tools of type '%s', which are not here: models are not told of them "
                    '(unavailable_tools = "omit")',
                    kind,
                )

"""Requested tools that the gateway would have to run and that are not available. They are refused, or omitted and
reported."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gateway.base.errors import ParamPath, PermissionDenied, Unsupported
from gateway.observe.metrics import Metrics
from gateway.tools.available import AvailableTools, request_type
from gateway.tools.client_run import CLIENT_TOOLS
from gateway.wire.tools import ShellTool, Tool, type_of

logger = logging.getLogger("gateway.tools")

_ALWAYS = ("function", "custom", "namespace", *CLIENT_TOOLS)


def omitted_type(tool: Tool, offered: AvailableTools, param: ParamPath) -> str:
    """The `request_type` of an entry at `param` that is not in `offered`, if the configuration says that such entries
    are omitted. Otherwise raises `PermissionDenied` or `Unsupported`."""
    kind, type_ = type_of(tool), request_type(tool)
    if type_ in offered.forbidden:
        raise PermissionDenied(
            f"This API key may not use tools of type '{kind}'. Leave it out of 'tools'.",
            param=(*param, "type"),
            code="tool_not_allowed",
        )
    if offered.unavailable == "omit":
        return type_
    if isinstance(tool, ShellTool):
        raise Unsupported(
            "There are no containers here to run a shell in. Run the commands yourself: send "
            '"environment": {"type": "local"}. Or have the server configured with a plugin that has containers, or to '
            'leave the tool out itself (unavailable_tools = "omit").',
            param=(*param, "environment"),
            code="unsupported_tool",
        )
    raise Unsupported(
        f"Tools of type '{kind}' are not available here. Leave it out of 'tools', or have the server configured with "
        'a plugin that runs it, or to leave it out itself (unavailable_tools = "omit"). Supported here: '
        f"{', '.join(sorted({*_ALWAYS, *offered.by_type, *offered.choices}))}.",
        param=(*param, "type"),
        code="unsupported_tool",
    )


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

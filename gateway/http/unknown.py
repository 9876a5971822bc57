"""Telling clients and operators about parameters that have no effect."""

from __future__ import annotations

from collections.abc import Collection

from gateway.http.state import HttpRequest, context_of
from gateway.observe.unknown_parameters import header_of
from gateway.services import Services

HEADER = b"x-litegate-ignored-parameters"


def note_unknown(
    request: HttpRequest, services: Services, route: str, names: Collection[str]
) -> None:
    """Report `names`, if there are any, in the log, in the metrics and in a header of the answer."""
    if not names:
        return
    services.unknown_parameters.report(route, names)
    shown = header_of(names)
    if shown:
        context_of(request).added_headers.append((HEADER, shown))

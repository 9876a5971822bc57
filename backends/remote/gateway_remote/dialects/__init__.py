"""One module for each kind of server."""

from __future__ import annotations

from gateway_remote.dialects.base import Dialect, ServedModelInfo
from gateway_remote.dialects.completions import SglangDialect, TrtllmDialect, VllmDialect
from gateway_remote.dialects.generate import VllmGenerateDialect
from gateway_remote.dialects.llamacpp import LlamaCppDialect

DIALECTS: dict[str, type[Dialect]] = {
    dialect.name: dialect
    for dialect in (VllmGenerateDialect, VllmDialect, SglangDialect, TrtllmDialect, LlamaCppDialect)
}

__all__ = ["DIALECTS", "Dialect", "ServedModelInfo"]

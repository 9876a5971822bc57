"""One module for each kind of server that is spoken to."""

from __future__ import annotations

from gateway_remote.dialects.base import Dialect, Served
from gateway_remote.dialects.completions import SglangDialect, TrtllmDialect, VllmDialect
from gateway_remote.dialects.generate import VllmGenerateDialect
from gateway_remote.dialects.llamacpp import LlamaCppDialect

DIALECTS: dict[str, type[Dialect]] = {
    dialect.name: dialect
    for dialect in (VllmGenerateDialect, VllmDialect, SglangDialect, TrtllmDialect, LlamaCppDialect)
}

__all__ = ["DIALECTS", "Dialect", "Served"]

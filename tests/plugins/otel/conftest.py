"""Fixtures for tests of traces."""

from tests.e2e.observability.conftest import log

__all__ = ["log"]

"""Fixtures of the tests of `oidc`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.plugins.oidc.local_issuer import LocalIssuer, run_issuer


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with run_issuer() as running:
        yield running

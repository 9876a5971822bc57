"""The APIs that generate nothing themselves, held against the kit for APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway_testing import ApiContract


class TestPrompts(ApiContract):
    name = "prompts"


class WithFiles(ApiContract):
    """An API that keeps files in a folder."""

    @pytest.fixture(scope="class")
    @classmethod
    def more_tables(cls, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
        return {"resources": {"files": {"path": str(tmp_path_factory.mktemp("files"))}}}


class TestFiles(WithFiles):
    name = "files"


class TestBatches(WithFiles):
    name = "batches"


class TestConsole(ApiContract):
    name = "console"

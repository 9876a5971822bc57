"""The pytest plugin that comes with Litegate: readable failures of the contract kits, and the fixture `gateway_server`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from gateway.testing.server import RunningGateway

StartGateway: TypeAlias = "Callable[..., RunningGateway]"

pytest.register_assert_rewrite(
    "gateway.testing.embedding_contract",
    "gateway.testing.engine_contract",
    "gateway.testing.generating",
    "gateway.testing.output_contract",
    "gateway.testing.plugin_check",
    "gateway.testing.reading",
    "gateway.testing.store_background_contract",
    "gateway.testing.store_completion_contract",
    "gateway.testing.store_contract",
    "gateway.testing.store_conversation_contract",
    "gateway.testing.store_model_contract",
    "gateway.testing.tool_contract",
)


@pytest.fixture
def gateway_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartGateway]:
    """Start real gateways: `gateway_server(config, plugins=(), folder=None)` gives a `RunningGateway`.

    `config` is the text of a `gateway.toml`, or the same as a mapping. They are stopped when the test is over.
    """
    # Imported here: this module is loaded by every run of pytest where Litegate is installed.
    from gateway.testing.server import run_gateway

    with ExitStack() as stack:

        def start(
            config: Mapping[str, Any] | str,
            *,
            plugins: Iterable[object] = (),
            folder: Path | None = None,
        ) -> RunningGateway:
            folder = folder or tmp_path_factory.mktemp("gateway")
            return stack.enter_context(run_gateway(config, folder, plugins=plugins))

        yield start

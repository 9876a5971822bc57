"""Litegate's pytest plugin: readable failures of the contract kits, and the fixture `gateway_server`."""

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
    "gateway.testing.api_contract",
    "gateway.testing.authenticator_contract",
    "gateway.testing.closing_contract",
    "gateway.testing.embedding_contract",
    "gateway.testing.engine_contract",
    "gateway_doctor.checks.generating",
    "gateway.testing.linear_cost",
    "gateway.testing.output_contract",
    "gateway.testing.plugin_check",
    "gateway.testing.policy_contract",
    "gateway.testing.reading",
    "gateway.testing.renderer_contract",
    "gateway.testing.router_contract",
    "gateway.testing.score_contract",
    "gateway.testing.store_background_contract",
    "gateway.testing.store_completion_contract",
    "gateway.testing.store_contract",
    "gateway.testing.store_conversation_contract",
    "gateway.testing.store_lasting_contract",
    "gateway.testing.store_model_contract",
    "gateway.testing.tool_contract",
)


@pytest.fixture
def gateway_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartGateway]:
    """Start real gateways: `gateway_server(config, plugins=(), folder=None)` returns a `RunningGateway`.

    `config` is the text of a `gateway.toml`, or the same as a mapping. The gateways are stopped after the test.
    """
    # Imported here, because every pytest run in an environment with Litegate loads this module.
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

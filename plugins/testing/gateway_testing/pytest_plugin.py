"""Litegate's pytest plugin: readable failures of the contract kits, and the fixture `gateway_server`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from gateway_testing.server import RunningGateway

StartGateway: TypeAlias = "Callable[..., RunningGateway]"

pytest.register_assert_rewrite(
    "gateway_testing.api_contract",
    "gateway_testing.authenticator_contract",
    "gateway_testing.closing_contract",
    "gateway_testing.embedding_contract",
    "gateway_testing.engine_contract",
    "gateway_doctor.checks.generating",
    "gateway_testing.linear_cost",
    "gateway_testing.output_contract",
    "gateway_testing.plugin_check",
    "gateway_testing.policy_contract",
    "gateway_testing.reading",
    "gateway_testing.renderer_contract",
    "gateway_testing.router_contract",
    "gateway_testing.score_contract",
    "gateway_testing.store_background_contract",
    "gateway_testing.store_completion_contract",
    "gateway_testing.store_contract",
    "gateway_testing.store_conversation_contract",
    "gateway_testing.store_lasting_contract",
    "gateway_testing.store_model_contract",
    "gateway_testing.tool_contract",
)


@pytest.fixture
def gateway_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartGateway]:
    """Start real gateways: `gateway_server(config, plugins=(), folder=None)` returns a `RunningGateway`.

    `config` is the text of a `gateway.toml`, or the same as a mapping. The gateways are stopped after the test.
    """
    # Imported here, because every pytest run in an environment with Litegate loads this module.
    from gateway_testing.server import run_gateway

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

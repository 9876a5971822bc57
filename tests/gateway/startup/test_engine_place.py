"""Where an engine runs: as the configuration says, or as its plugin does."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config import ModelConfig
from gateway.errors import ConfigurationError
from gateway.hookspecs import hookimpl
from gateway.plugins import load_plugins
from gateway.startup.model_plan import resolve_model


async def open_nothing(config: Any, context: Any) -> None: ...


class Plugin:
    """Engines of each kind."""

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("plain", open_nothing)
        register("blocking", open_nothing, process="own")
        register("elsewhere", open_nothing, process="server")


PLUGINS = load_plugins(extra=[Plugin()], installed=False)


@pytest.mark.parametrize(
    ("engine", "settings", "workers", "expected"),
    [
        ("plain", {}, 1, "server"),
        ("plain", {"load": "on_demand"}, 1, "server"),
        ("plain", {"process": "own"}, 1, "own"),
        ("plain", {}, 2, "own"),
        ("plain", {"process": "server"}, 2, "server"),
        ("blocking", {}, 1, "server"),
        ("blocking", {"load": "on_demand"}, 1, "own"),
        ("blocking", {"load": "on_demand", "process": "server"}, 1, "server"),
        ("elsewhere", {}, 2, "server"),
        ("elsewhere", {"process": "server"}, 2, "server"),
    ],
)
def test_the_place_of_an_engine(
    engine: str, settings: dict[str, Any], workers: int, expected: str
) -> None:
    config = ModelConfig(engine=engine, **settings)
    assert resolve_model("m", config, PLUGINS, workers=workers).process == expected


def test_an_engine_that_speaks_with_a_server_elsewhere_has_no_process() -> None:
    config = ModelConfig(engine="elsewhere", process="own")
    with pytest.raises(ConfigurationError, match=r"models\.m\.process.*server process only"):
        resolve_model("m", config, PLUGINS)


def test_a_place_that_there_is_not_is_a_mistake_of_the_plugin() -> None:
    class Odd:
        @hookimpl
        def gateway_register_engines(self, register: Any) -> None:
            register("odd", open_nothing, process="moon")

    with pytest.raises(ConfigurationError, match="moon"):
        load_plugins(extra=[Odd()], installed=False)

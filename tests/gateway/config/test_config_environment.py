"""Settings from the environment: `GATEWAY_SERVER__PORT=8001`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError
from gateway.config import Config, ModelConfig, load_config

FILE = """
[server]
port = 1
[models."qwen3-0.6b"]
path = "x.gguf"
[models."qwen3-0.6b".llamacpp]
nCtx = 1
"""


@pytest.fixture(autouse=True)
def in_a_folder_with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gateway.toml").write_text(FILE)


def mistake(environ: Mapping[str, str]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_config(None, environ)
    return str(caught.value)


def test_a_variable_comes_before_the_file_and_after_the_command_line() -> None:
    environ = {"GATEWAY_SERVER__PORT": "2"}
    assert load_config(None, environ).server.port == 2
    assert load_config(None, environ, server={"port": 3}).server.port == 3


@pytest.mark.parametrize(
    "name", ["GATEWAY_SERVER__HOST", "gateway_server__host", "Gateway_Server__Host"]
)
def test_case_does_not_matter(name: str) -> None:
    assert load_config(None, {name: "::1"}).server.host == "::1"


def test_a_models_name_is_matched_with_underscores_for_what_a_variable_cannot_have() -> None:
    environ = {
        "GATEWAY_MODELS__QWEN3_0_6B__LLAMACPP__NCTX": "2",
        "GATEWAY_MODELS__QWEN3_0_6B__LLAMACPP__N_PARALLEL": "4",
        "GATEWAY_MODELS__QWEN3_0_6B__SAMPLING__TOP_P": "0.5",
    }
    [model] = load_config(None, environ).models.values()
    assert model.options == {"llamacpp": {"nCtx": 2, "n_parallel": 4}}
    assert model.sampling.top_p == 0.5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8), ("0.5", 0.5), ("true", True), ('["a", "b"]', ["a", "b"]), ("{a = 1}", {"a": 1}),
        ("plain text", "plain text"), ("http://h:1/", "http://h:1/"), ("", ""), ('"8"', "8"),
        ("8\nother = 9", "8\nother = 9"),
    ],
)  # fmt: skip
def test_a_value_is_toml_and_else_a_string(text: str, value: object) -> None:
    tools = load_config(None, {"GATEWAY_TOOLS__PYTHON__KEY": text}).tools
    assert tools == {"python": {"key": value}}


def test_a_model_can_be_defined_by_variables_alone() -> None:
    Path("gateway.toml").unlink()
    environ = {"GATEWAY_MODELS__QWEN__PATH": "/m.gguf", "GATEWAY_MODELS__QWEN__MAX_RUNNING": "4"}
    assert load_config(None, environ).models == {"qwen": ModelConfig(path="/m.gguf", max_running=4)}


def test_the_built_in_model_can_be_set_by_variables() -> None:
    Path("gateway.toml").unlink()
    environ = {"GATEWAY_MODELS__TINY__MAX_RUNNING": "4"}
    assert load_config(None, environ).models == {"tiny": ModelConfig(max_running=4)}


def test_variables_may_add_a_model_to_the_built_in_one() -> None:
    Path("gateway.toml").unlink()
    environ = {"GATEWAY_MODELS__QWEN__PATH": "/m", "GATEWAY_MODELS__TINY__MAX_RUNNING": "4"}
    assert list(load_config(None, environ).models) == ["tiny", "qwen"]


def test_a_model_that_is_not_defined_is_refused() -> None:
    message = mistake({"GATEWAY_MODELS__QWEN3_0_6__MAX_RUNNING": "4"})
    assert 'did you mean "qwen3-0.6b"?' in message


def test_settings_of_models_that_the_command_line_does_not_serve_are_passed_over() -> None:
    environ = {"GATEWAY_MODELS__OTHER__MAX_RUNNING": "4"}
    assert load_config(None, environ, models=["m.gguf"]).models == {"m": ModelConfig(path="m.gguf")}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("GATEWAY_SERVER__PRT", 'server.prt: there is no such key; did you mean "port"?'),
        ("GATEWAY_SERVR__PORT", "there is no section 'servr'; did you mean \"server\"?"),
        ("GATEWAY_SERVER__PORT__X", "port is not a table"),
        ("GATEWAY_SERVER__", "it names no key"),
        ("GATEWAY_MODELS__QWEN3_0_6B", "it names no key"),
        ("GATEWAY_SERVER__PORT", "server.port: expected an integer, not a string"),
    ],
)
def test_a_mistake_names_the_variable(name: str, sentence: str) -> None:
    message = mistake({name: "x"})
    assert message.startswith(f"environment variable {name}: ")
    assert sentence in message


def test_what_others_put_into_the_environment_is_no_setting() -> None:
    kubernetes = {
        "GATEWAY_PORT": "tcp://10.0.0.1:80",
        "GATEWAY_PORT_80_TCP_ADDR": "10.0.0.1",
        "GATEWAY_SERVICE_HOST": "10.0.0.1",
        "GATEWAY_INTERFACE": "CGI/1.1",
    }
    without: Config = load_config(None, {})
    assert load_config(None, kubernetes) == without


def test_a_variable_names_the_file() -> None:
    Path("other.toml").write_text("[models.o]")
    assert list(load_config(None, {"GATEWAY_CONFIG": "other.toml"}).models) == ["o"]
    assert list(load_config(Path("gateway.toml"), {"GATEWAY_CONFIG": "other.toml"}).models) == [
        "qwen3-0.6b"
    ]

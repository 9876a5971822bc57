"""`gateway config`: what it writes is valid, what it shows is true and hides secrets, and its schema agrees with the gateway."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway.cli import main
from gateway.config import load_config
from gateway.config.sources import SECTIONS
from gateway.errors import ConfigurationError
from gateway.plugins import load_plugins
from gateway.startup.config_schema import config_schema
from gateway.startup.selection import select

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GATEWAY_CONFIG", raising=False)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return config_schema(load_plugins())


def mistakes(schema: dict[str, Any], text: str) -> list[str]:
    found = jsonschema.Draft202012Validator(schema).iter_errors(tomllib.loads(text))
    return [error.message for error in found]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["config", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    "models",
    [
        [],
        ["unsloth/Qwen3-0.6B-GGUF:Q4_K_M"],
        ["./model.gguf", "https://host/v1#gpt-5", "http://127.0.0.1:8001"],
        ['owner/strange name" ä-GGUF'],
    ],
)
def test_what_init_writes_is_a_configuration(
    capsys: pytest.CaptureFixture[str], schema: dict[str, Any], models: list[str]
) -> None:
    code, out, err = run(capsys, "init", "--schema", *models)
    assert (code, err) == (0, "")
    assert out.startswith("wrote gateway.toml\nwrote gateway.schema.json\n")
    text = Path("gateway.toml").read_text(encoding="utf-8")
    assert text.startswith("#:schema ./gateway.schema.json\n")
    config = load_config()
    assert len(config.models) == max(len(models), 1)
    assert mistakes(schema, text) == []
    assert json.loads(Path("gateway.schema.json").read_text(encoding="utf-8")) == schema


def test_every_commented_setting_of_init_is_valid(
    capsys: pytest.CaptureFixture[str], schema: dict[str, Any]
) -> None:
    run(capsys, "init")
    text = Path("gateway.toml").read_text(encoding="utf-8")
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    settings = "\n".join(line for line in lines if "=" in line or line.startswith("["))
    assert settings.count("=") > 8
    assert mistakes(schema, settings) == []
    Path("gateway.toml").write_text(settings.replace('"..."', f'"{"0" * 64}"'), encoding="utf-8")
    select(load_config(), load_plugins())


def test_init_overwrites_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("gateway.toml").write_text("mine", encoding="utf-8")
    code, _, err = run(capsys, "init")
    assert (code, err) == (
        2,
        "gateway: gateway.toml exists already; name another file with --output.\n",
    )
    assert Path("gateway.toml").read_text(encoding="utf-8") == "mine"
    code, _, err = run(capsys, "init", "--output", "absent/gateway.toml")
    assert (code, err) == (
        2,
        "gateway: absent/gateway.toml cannot be written: No such file or directory.\n",
    )


def test_check_says_what_would_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    Path("gateway.toml").write_text(
        '[server]\nstore = "none"\n[models.m]\nengine = "scripted"\n[tools.python]\n',
        encoding="utf-8",
    )
    code, out, _ = run(capsys, "check")
    assert code == 0
    assert out.splitlines()[:4] == [
        "gateway.toml: no mistake was found.",
        "  model m: engine scripted (named in the configuration)",
        "  store: none",
        "  tools: python",
    ]
    assert "API keys: none" in out


@pytest.mark.parametrize("authenticated", [True, False])
def test_check_says_who_may_use_the_server(
    capsys: pytest.CaptureFixture[str], authenticated: bool
) -> None:
    oidc = '[authenticators.oidc]\nissuer = "https://a.example"\naudience = "b"\n'
    text = '[models.a]\nengine = "scripted"\n' + (oidc if authenticated else "")
    Path("gateway.toml").write_text(text)
    code, out, _ = run(capsys, "check")
    assert code == 0
    assert ("authenticators: oidc" in out) == authenticated
    assert ("anyone" in out) != authenticated


@pytest.mark.parametrize(("settings", "code"), [("", 2), ("allow_anonymous = true", 0)])
def test_check_refuses_what_serve_would_refuse(
    capsys: pytest.CaptureFixture[str], settings: str, code: int
) -> None:
    Path("gateway.toml").write_text(
        f'[server]\nhost = "0.0.0.0"\n{settings}\n[models.a]\nengine = "scripted"\n'
    )
    found, out, err = run(capsys, "check")
    assert (found, "no mistake" in out) == (code, code == 0)
    assert ("there are no API keys" in err) == (code != 0)


def test_show_tells_where_each_setting_comes_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("gateway.toml").write_text(
        '[server]\nport = 1\nstore = "none"\n\n[models.m]\nengine = "scripted"\naliases = ["a"]\n'
        '[tools.browser.brave]\napi_key = "very-secret-word"\n[tools.mcp.servers.s]\nurl = "https://u:hidden-pw@h/m"\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("GATEWAY_SERVER__PORT", "8001")
    code, out, _ = run(capsys, "show")
    assert code == 0
    shown = {line.split(" = ")[0]: line for line in out.splitlines()[1:]}
    assert shown["server.port"].split() == [
        "server.port",
        "=",
        "8001",
        "#",
        "environment",
        "variable",
        "GATEWAY_SERVER__PORT",
    ]
    assert shown["models.m.aliases"].endswith("# gateway.toml line 7")
    assert "very-secret-word" not in out
    assert "hidden-pw" not in out
    code, out, _ = run(capsys, "show", "--json")
    assert {
        "key": "server.port",
        "value": 8001,
        "source": "environment variable GATEWAY_SERVER__PORT",
    } in json.loads(out)
    assert "very-secret-word" not in out


def test_the_schema_is_a_schema_and_describes_its_keys(
    capsys: pytest.CaptureFixture[str], schema: dict[str, Any]
) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]) == set(SECTIONS)
    code, out, _ = run(capsys, "schema")
    assert (code, json.loads(out)) == (0, schema)
    server = schema["$defs"][schema["properties"]["server"]["$ref"].rpartition("/")[2]]
    assert all(each.get("description") or "$ref" in each for each in server["properties"].values())


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("[server]\nport = 1", True),
        ("[server]\nprot = 1", False),
        ("[server]\nport = 70000", False),
        ("[sever]", False),
        ('[models.m]\nengine = "llamacpp"\n[models.m.llamacpp]\nn_ctx = 5', True),
        ("[models.m.llamacpp]\nn_ctxx = 5", False),
        ("[models.m.options.llamacpp]\nn_ctx = 5", True),
        ("[models.m.options.llamacpp]\nn_ctxx = 5", False),
        ("[models.m.sampling]\ntemperature = 0.5", True),
        ("[stores.redis]\nurl = 'redis://h'", True),
        ("[server]\nstore = 'redis'\n[stores.redis]\nurll = 'redis://h'", False),
        ("[tools.absent]", False),
        ("[policies.redact]\npatterns = ['x']", True),
        ("[policies.absent]", False),
        ("[models.m.qwen3]", True),
    ],
)
def test_the_schema_and_the_gateway_agree(schema: dict[str, Any], text: str, valid: bool) -> None:
    assert (mistakes(schema, text) == []) == valid
    if "models" not in text:
        text += '\n[models.m]\nengine = "scripted"'
    Path("gateway.toml").write_text(text, encoding="utf-8")
    try:
        config = load_config()
        select(config, load_plugins())
    except ConfigurationError:
        accepted = False
    else:
        accepted = True
    assert accepted == valid or "qwen3" in text


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("gateway*.toml")), ids=str)
def test_every_configuration_of_the_examples_agrees_with_the_schema(
    schema: dict[str, Any], path: Path
) -> None:
    assert mistakes(schema, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_completion_script_knows_the_commands(
    capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("serve", "uninstall", "schema"):
        assert word in script


def test_bash_completes_with_the_script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    main(["completion", "bash"])
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    ask = f"""source {script}; COMP_WORDS=(gateway plugins --ki); COMP_CWORD=2
    eval "$(complete -p gateway | sed -E 's/.*-F ([^ ]+).*/\\1/')" gateway; echo "${{COMPREPLY[@]}}" """
    done = subprocess.run(
        ["bash", "--norc", "-c", ask], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "--kind"


def test_check_lists_routes_and_says_which_names_it_does_not_know(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = '[models.m]\nengine = "scripted"\naliases = ["a"]\n[routes.r]\nmodels = ["a", "far"]\n'
    Path("gateway.toml").write_text(text, encoding="utf-8")
    code, out, _ = run(capsys, "check")
    assert code == 0
    assert (
        "  route r: a, far\n    no model or alias is named 'far': it has to be an adapter's name\n"
        in out
    )
    assert "named 'a'" not in out

"""`gateway config`: what it writes is valid, what it shows is true and hides secrets, and its schema agrees with the gateway."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway.base.errors import ConfigurationError
from gateway.cli import main
from gateway.config import load_config
from gateway.config.sources import SECTIONS
from gateway.plugins.loading import load_plugins
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
    assert "  route r: a, far\n" in out
    assert "route r: no model or alias is named 'far': it has to be an adapter's name\n" in out
    assert "named 'a'" not in out


HASH = "a" * 64
TINY = "[models.tiny]\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[server]\nhost = "http://127.0.0.1"', "host is a name or an address, without scheme, port"),
        ('[server]\nhost = "127.0.0.1:8000"', "host is a name or an address, without scheme, port"),
        ('[server]\nhost = "[::1]"', "host is a name or an address, without scheme, port"),
        ('[server]\ncors_allow_origins = ["app.example.com"]', "'app.example.com' is not an origin: write scheme"),
        ('[server]\ncurrency = "dollars"', 'line 2: server.currency: expected three small letters, such as "usd"'),
        ('[server]\nunix_socket_mode = "999"', 'line 2: server.unix_socket_mode: expected three octal digits, such as "660"'),
        (f'[[server.api_keys]]\nname = "a"\nsha256 = "{HASH}"\nexpires = "soon"', "expires: expected a time, such as 2030-01-31T00"),
        ("[server]\nport = 1\n[server]\n", "there are two tables [server] (at line 3, column 8); write one"),
        ('[models."a.b".sampling]\n[models."a.b".sampling]\n', "there are two tables [models.a.b.sampling] (at line 2"),
        ("[server]\nport = 1\nport = 2\n", "a key is set twice (at line 3, column 9); keep one of them"),
        ('[server]\nkeys_file = "keys.toml"', "keys.toml: the configuration cannot be read: No such file"),
        ('[server]\nreasoning_keys = ["abc"]', "server.reasoning_keys: each key is 32 bytes in URL-safe base64"),
        (f'[server]\nreasoning_keys = ["{"A" * 43}="]', "server.reasoning_keys: a key of equal bytes is the placeholder"),
        ('[server]\ntls_certificate = "no.pem"', "server.tls_certificate: the file 'no.pem' cannot be read: No such file"),
        ('[server]\ntls_certificate = "gateway.toml"', "server.tls_certificate: expected a certificate in PEM, and its private key in this file: "),
        ('[server]\nworkers = 2\nstore = "memory"', "workers > 1 needs a store that the workers share"),
        ('[media]\nallow_hosts = ["http://example.com/"]', "media.allow_hosts: 'http://example.com/' is not a host"),
        (TINY + 'allowed_tools = ["pyton"]', "models.tiny.allowed_tools: there is no table [tools.pyton]"),
        ('[server]\nchat_tools = ["x"]', "server.chat_tools names 'x'"),
        ("[policies.redct]", 'policies.redct: no loaded plugin offers a policy named \'redct\'; did you mean "redact"?'),
        ("[authenticators.oidc]", "authenticators.oidc.issuer: this key is required and missing"),
        ("[tools.websearch]", 'did you mean "browser"?'),
        ("[tools.web_search_preview]", 'did you mean "browser"?'),
        ("[tools.code_interpreter]", 'did you mean "python"?'),
        ("[tools.shell]", 'did you mean "container"?'),
        ("[tools.filesearch]", 'did you mean "file_search"?'),
        ('[server]\napis = ["anthropic"]', 'did you mean "messages"?'),
    ],
)  # fmt: skip
def test_check_and_the_doctor_see_the_same_mistakes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setattr("gateway_doctor.command.set_up_logging", lambda level: None)
    Path("gateway.toml").write_text(text)
    if "store" not in text:  # the doctor opens it: not a file in the home folder
        monkeypatch.setenv("GATEWAY_SERVER__STORE", "none")
    code, _, err = run(capsys, "check")
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out.splitlines()
    # Something may listen on port 8000 of this machine.
    [failure] = [line for line in out if re.match("FAIL  (?!address )", line)]
    assert says in failure


@pytest.mark.parametrize(
    "text",
    ['keys_file = "no.toml"', 'tls_certificate = "no.pem"', 'workers = 2\nstore = "memory"'],
)
def test_serve_sees_such_mistakes_before_it_opens_a_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("gateway.cli.serve.set_up_logging", lambda *_, **__: None)
    Path("gateway.toml").write_text(
        f'[server]\nport = 0\n{text}\n[models.m]\nengine = "openai"\npath = "ftp://no"'
    )
    assert main(["serve"]) == 2
    err = capsys.readouterr().err
    assert "upstream" not in err
    assert "no.toml" in err or "no.pem" in err or "workers > 1" in err


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%eth0", "localhost", "my-host.lan"])
def test_names_and_addresses_are_hosts(host: str) -> None:
    Path("gateway.toml").write_text(f'[server]\nhost = "{host}"')
    assert load_config(None, {}).server.host == host


@pytest.mark.parametrize(
    "origin",
    [
        "*", "null", "https://a.example", "http://localhost:3000", "chrome-extension://abc", "app://-", "file://", "*.example.com",
        "https://*.example.com", "*://localhost:*", "https*://a.example", "http://[::1]:3000", "https://*",
    ],
)  # fmt: skip
def test_origins_are_accepted(origin: str) -> None:
    Path("gateway.toml").write_text(f'[server]\ncors_allow_origins = ["{origin}"]')
    assert load_config(None, {}).server.cors_allow_origins == [origin]


def test_names_that_only_an_adapter_could_have_are_pointed_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_doctor.command.set_up_logging", lambda level: None)
    Path("gateway.toml").write_text(
        '[server]\nport = 0\nstore = "none"\n[[server.api_keys]]\n'
        f'name = "ann"\nsha256 = "{HASH}"\nmodels = ["ti*", "nope"]\ntools = ["web"]\n'
        f'{TINY}[routes.r]\nmodels = ["tiny", "gone"]\n'
    )
    code, out, _ = run(capsys, "check")
    assert code == 0
    doubts = [
        "route r: no model or alias is named 'gone': it has to be an adapter's name",
        "API key ann: no model, alias or route is named 'nope': it has to be an adapter's name",
        "API key ann: there is no table [tools.web]",
    ]
    assert [line for line in out.splitlines() if "look at" in line] == [
        f"  look at {doubt}" for doubt in doubts
    ]
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("warn")] == [
        f"warn  {doubt}" for doubt in doubts
    ]


def test_check_and_the_doctor_say_that_they_open_no_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_doctor.command.set_up_logging", lambda level: None)
    Path("gateway.toml").write_text('[server]\nport = 0\nstore = "none"\n' + TINY)
    assert "Nothing was opened: `gateway doctor`" in run(capsys, "check")[1]
    assert main(["doctor"]) == 0
    assert "No model was opened: `gateway doctor --generate`" in capsys.readouterr().out

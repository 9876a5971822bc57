"""Reading `gateway.toml`: what is right is decoded, and each mistake is one sentence that leads to it."""

from __future__ import annotations

import os
import string
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigurationError
from gateway.config import Config, ModelConfig, ServerConfig, load_config, model_name
from gateway.config.tables import TableError, decode_table, dotted


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


TWO_NAMES = f"""
[[server.api_keys]]
name = "a"
sha256 = "{"0a" * 32}"
[[server.api_keys]]
name = "b"
sha256 = "{"0A" * 32}"
"""


def load(text: str, **overrides: Any) -> Config:
    Path("gateway.toml").write_text(text, encoding="utf-8")
    return load_config(**overrides)


def mistake(text: str, **overrides: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(text, **overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_file_the_engines_own_model_is_served() -> None:
    config = load_config()
    assert config.models == {"tiny": ModelConfig()}
    assert config.server == ServerConfig()


def test_a_file_that_says_nothing_of_models_leaves_the_engines_own() -> None:
    config = load("[server]\nport = 9000")
    assert (config.models, config.server.port) == ({"tiny": ModelConfig()}, 9000)


def test_a_file_is_decoded() -> None:
    config = load(
        """
        [server]
        port = 9000
        request_timeout = 60
        store = "none"
        [models."qwen3-0.6b"]
        path = "x.gguf"
        aliases = ["small"]
        [models."qwen3-0.6b".sampling]
        temperature = 0
        [models."qwen3-0.6b".llamacpp]
        n_parallel = 8
        [tools.python]
        [stores.redis]
        url = "redis://elsewhere"
        """
    )
    assert config.server == ServerConfig(port=9000, request_timeout=60.0, store="none")
    model = config.models["qwen3-0.6b"]
    assert (model.path, model.aliases, model.sampling.temperature) == ("x.gguf", ["small"], 0.0)
    assert model.options == {"llamacpp": {"n_parallel": 8}}
    assert config.tools == {"python": {}}
    assert config.stores == {"redis": {"url": "redis://elsewhere"}}


@pytest.mark.parametrize("key", ["chat_template", "tools", "parser", "reasoning"])
def test_a_plugin_may_be_called_like_a_key(key: str) -> None:
    short = load(f"[models.m.{key}]\nx = 1").models["m"]
    long = load(f"[models.m]\n{key} = 'y'\n[models.m.options.{key}]\nx = 1").models["m"]
    assert short.options == long.options == {key: {"x": 1}}
    assert (getattr(short, key), getattr(long, key)) == (None, "y")


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ('[[server.api_keys]]\nname = "a"\nkey = "my-own"', 1, "server.api_keys.0.key: there is no such key; keys are not written here, but their SHA-256: `gateway key NAME`"),
        ("[server]\nprot = 1", 2, 'server.prot: there is no such key; did you mean "port"?'),
        ("[server]\n\nport = 'x'", 3, "server.port: expected an integer, not a string"),
        ("[server]\nport = 65536", 2, "server.port: expected an integer <= 65535"),
        ("[server]\nport = -1", 2, "server.port: expected an integer >= 0"),
        ("[server]\nrequest_timeout = inf", 2, "expected a finite number, not inf"),
        ("[server]\nlog_level = 'verbos'", 2, "server.log_level: 'verbos' is not one of the choices"),
        ("server = 1", 1, "server: expected a table [server]"),
        ("[modles.m]", 1, 'modles: there is no such section; did you mean "models"?'),
        ("[models]\nm = 1", 2, "models.m: expected a table [models.<name>]"),
        ("[models]", 1, "models: no model is configured"),
        ("[models.m]\nenigne = 'x'", 2, 'models.m.enigne: there is no such key; did you mean "engine"?'),
        ("[models.m]\naliases = 'x'", 2, "models.m.aliases: expected a list, not a string"),
        ("[models.m]\naliases = ['a', 1]", 2, "models.m.aliases.1: expected a string, not an integer"),
        ("[models.m]\nmax_running = 0", 2, "models.m.max_running: expected an integer >= 1"),
        ("[models.m.sampling]\ntop_p = 2", 2, "models.m.sampling.top_p: expected a number <= 1.0"),
        ("[models.m.sampling]\ntop_p = nan", 2, "expected a finite number, not nan"),
        ("[models.m.sampling]\ntopp = 1", 2, 'did you mean "top_p"?'),
        ("[models.m]\nparser='a'\ntools='b'", 3, "models.m.tools: parser names the whole format already"),
        ("[models.m.a]\n[models.m.options.a]", 2, "models.m.options.a: [models.m.a] says the same"),
        ("[models.m]\noptions = 1", 2, "models.m.options: expected a table, not an integer"),
        ("[models.a]\n[models.b]\naliases=['a']", 3, "'a' is already a name of the model 'a'"),
        ("[models.a]\naliases=['x']\n[models.b]\naliases=['x']", 4, "'x' is already a name of the model 'a'"),
        ("[models.a]\naliases=['a']", 2, "'a' is already a name of the model 'a'"),
        ('[models.""]', 1, "a model's name is printable text"),
        ("[models.m]\n[tools]\nx = 1", 3, "tools.x: expected a table [tools.<name>]"),
        ("[[server.api_keys]]\nname='a'\nsha256='ab'", 1, "server.api_keys.0: sha256 is 64 hexadecimal digits, as `gateway key NAME`"),
        (TWO_NAMES, 2, "server: 'a' and 'b' have the same API key; `gateway key NAME` makes one for each."),
        ("[models.m]\n[plugins]\nallow = 'x'", 3, "plugins.allow: expected a list, not a string"),
    ],
)  # fmt: skip
def test_a_mistake_says_where_it_is_and_what_would_be_right(
    text: str, line: int, sentence: str
) -> None:
    if "models" not in text:
        text += "\n[models.m]"
    message = mistake(text)
    assert message.startswith(f"gateway.toml line {line}: ")
    assert sentence in message


def test_what_is_not_toml_is_refused_with_its_line() -> None:
    assert "gateway.toml: this is not TOML" in mistake("[models.m]\npath = \n")
    assert "line 2" in mistake("[models.m]\npath = \n")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("[models.m]\nengine = secret-word", ": a text is written in quotes."),
        ("[models.m]\npath = /secret-word/x", ": a text is written in quotes."),
        ("[server]\r\nhost = 127.0.0.1 # secret-word", ": a text is written in quotes."),
        ("[models.m]\nrequired = True # secret-word", ": true and false have small letters."),
        ("models:\n  - name: secret-word", ": TOML has = where YAML and JSON have :."),
        ("[server]\nport: 8000", ": TOML has = where YAML and JSON have :."),
        ("[models.m]\npath = \n", ")."),
        ("[models.m", ")."),
        ('path = "secret-word', ")."),
        ('path = "a" secret-word', ")."),
    ],
)
def test_the_commonest_slips_are_explained(text: str, meant: str) -> None:
    message = mistake(text)
    assert message.startswith("gateway.toml: this is not TOML: ")
    assert message.endswith(meant)
    assert "secret" not in message


def test_a_file_that_is_not_utf_8_is_refused() -> None:
    Path("gateway.toml").write_bytes(b"[models.m]\npath = '\xff'")
    with pytest.raises(ConfigurationError, match="byte 19 is not UTF-8"):
        load_config()


def test_a_file_that_is_missing_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_config(Path("absent.toml"))
    with pytest.raises(ConfigurationError, match="Is a directory"):
        load_config(tmp_path)


def test_a_path_beside_the_file_is_found_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "m.gguf").touch()
    (tmp_path / "there" / "t.jinja").touch()
    file = tmp_path / "there" / "my.toml"
    file.write_text(
        "[models.a]\npath = 'm.gguf'\nchat_template = 't.jinja'\n[models.b]\npath = 'Qwen/Qwen3-8B'"
    )
    (tmp_path / "here").mkdir()
    monkeypatch.chdir("here")
    models = load_config(file).models
    assert Path(str(models["a"].path)).samefile(tmp_path / "there" / "m.gguf")
    assert Path(str(models["a"].chat_template)).samefile(tmp_path / "there" / "t.jinja")
    assert models["b"].path == "Qwen/Qwen3-8B"


def test_the_home_folder_may_be_written_as_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert load("[models.m]\npath = '~/m.gguf'").models["m"].path == "/home/ada/m.gguf"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("m/Qwen3-0.6B.gguf", "Qwen3-0.6B"), ("./Qwen3-8B", "Qwen3-8B"), ("/models/x/", "x"), (".gguf", ".gguf"),
        ("http://host:8080", "host:8080"), ("http://host:8080/v1", "host:8080"), ("https://host/a/v1/", "a"),
    ],
)  # fmt: skip
def test_a_model_of_the_command_line_is_called_like_its_file(path: str, name: str) -> None:
    assert model_name(path) == name
    assert load_config(models=[path]).models == {name: ModelConfig(path=path)}


@pytest.mark.parametrize(
    ("path", "name", "alias"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B", "Qwen/Qwen3-8B"),
        ("hf:o/m-GGUF:Q4_0", "m", "o/m-GGUF:Q4_0"),
        ("o/m-GGUF/x/m-Q8_0.gguf", "m-Q8_0", "o/m-GGUF/x/m-Q8_0.gguf"),
    ],
)
def test_a_model_of_the_hub_has_its_whole_name_as_an_alias(
    path: str, name: str, alias: str
) -> None:
    assert load_config(models=[path]).models == {name: ModelConfig(path=path, aliases=[alias])}


@pytest.mark.parametrize(
    ("url", "name", "path"),
    [
        ("https://a.example/v1#big/model", "big/model", "https://a.example/v1"),
        ("http://10.0.0.5:8000", "10.0.0.5:8000", "http://10.0.0.5:8000"),
        ("http://10.0.0.5:8000/#", "10.0.0.5:8000", "http://10.0.0.5:8000/"),
    ],
)
def test_the_fragment_of_a_url_is_the_model_s_name(url: str, name: str, path: str) -> None:
    assert load_config(models=[url], engine="remote").models == {
        name: ModelConfig(path=path, engine="remote")
    }
    engine = "openai" if name == "big/model" else None
    assert load_config(models=[url]).models == {name: ModelConfig(path=path, engine=engine)}


def test_several_models_of_the_command_line() -> None:
    text = "[models.a]\npath = 'x'\n[models.b]"
    models = load(text, models=["o/m-GGUF", "a", "o/m-GGUF:Q8_0", "/x.gguf"]).models
    assert list(models) == ["m", "a", "o/m-GGUF:Q8_0", "x"]
    assert models["o/m-GGUF:Q8_0"] == ModelConfig(path="o/m-GGUF:Q8_0")
    assert mistake(text, models=["/x.gguf", "/y/x.gguf"]) == (
        "command line: '/y/x.gguf' would be a second model with the name 'x'; give both names in a configuration file: "
        "[models.<name>]."
    )
    assert "second model with the name 'a'" in mistake(text, models=["a", "a"])


def test_the_built_in_model_may_be_named() -> None:
    assert list(load_config(models=["o/tiny-GGUF", "tiny"]).models) == ["o/tiny-GGUF", "tiny"]
    with pytest.raises(
        ConfigurationError, match=r"'tinny'; did you mean \"tiny\"\? Configured models: tiny\."
    ):
        load_config(models=["tinny"])
    assert load_config(models=["tiny"]).models == {"tiny": ModelConfig()}
    environ = {"GATEWAY_MODELS__OTHER__PATH": "/m.gguf"}
    assert list(load_config(None, environ, models=["tiny"]).models) == ["tiny"]


def test_a_word_that_names_no_model_is_answered_with_those_that_are_configured() -> None:
    text = "[models.qwen]\n[models.gemma]"
    assert mistake(text, models=["qwenn"]) == (
        "command line: there is no model, file or folder 'qwenn'; did you mean \"qwen\"? Configured models: qwen, gemma. Write a "
        "model of the hub with its owner, as in owner/repository."
    )
    assert "'gpt2'. Configured models: qwen, gemma." in mistake(text, models=["gpt2"])
    assert load(text, models=["gpt2"], engine="other").models["gpt2"].path == "gpt2"


def test_a_model_of_the_command_line_is_served_alone() -> None:
    config = load("[server]\nport = 1\n[models.a]\npath = 'x'\n[models.b]", models=["some.gguf"])
    assert list(config.models) == ["some"]
    assert config.server.port == 1


def test_the_command_line_may_name_a_model_of_the_file() -> None:
    config = load("[models.a]\npath = 'x'\n[models.b]", models=["a"], engine="e")
    assert config.models == {"a": ModelConfig(path="x", engine="e")}


def test_an_engine_without_a_model_needs_there_to_be_one_model() -> None:
    assert load("[models.a]", engine="e").models["a"].engine == "e"
    assert "name one of: a, b" in mistake("[models.a]\n[models.b]", engine="e")


def test_the_command_line_comes_before_the_file_and_is_blamed_for_its_mistakes() -> None:
    assert load("[server]\nport = 1\n[models.m]", server={"port": 2}).server.port == 2
    assert load("[server]\nport = 1\n[models.m]", server={"port": None}).server.port == 1
    assert mistake("[models.m]", server={"port": 70000}).startswith("command line: server.port")


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    size: int = 0


class Outer(msgspec.Struct):
    by_name: dict[str, Inner] = {}
    listed: list[Inner] = []
    either: Inner | None = None
    numbers: dict[str, int] = {}

    def __post_init__(self) -> None:
        if self.numbers.get("bad"):
            raise ValueError("Bad is no number")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"by_name": {"a": {"url": ""}, "b c": {"url": 1}}}, 't.by_name."b c".url: expected a string, not an integer'),
        ({"by_name": {"a": {"url": ""}, "b": {"url": "", "sise": 1}}}, 't.by_name.b.sise: there is no such key; did you mean "size"?'),
        ({"by_name": {"a": {}}}, "t.by_name.a.url: this key is required and missing"),
        ({"listed": [{"url": ""}, {"url": "", "size": "x"}]}, "t.listed.1.size: expected an integer, not a string"),
        ({"either": {"url": "", "sise": 0}}, 't.either.sise: there is no such key; did you mean "size"?'),
        ({"either": 3}, "t.either: expected a table, not an integer"),
        ({"numbers": {"a": 1, "b": []}}, "t.numbers.b: expected an integer, not a list"),
        ({"by_nam": {}}, 't.by_nam: there is no such key; did you mean "by_name"?'),
        ({"numbers": {"bad": 1}}, "t: bad is no number"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_nested_table_is_found(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TableError) as caught:
        decode_table(table, Outer, ("t",))
    assert str(caught.value) == sentence


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["by_name", "listed", "either", "numbers", "url", "size"]) | st.text()


@given(st.dictionaries(keys, values, max_size=4))
def test_any_table_is_decoded_or_refused_with_a_path_into_it(table: dict[str, Any]) -> None:
    path: tuple[str, ...] = ("t",)
    try:
        decode_table(table, Outer, path)
    except TableError as error:
        path = error.path
    level: Any = {"t": table}
    for key in path[:-1]:
        level = level[int(key)] if isinstance(level, list) else level[key]
    assert path[0] == "t"


toml_keys = st.text(st.characters(blacklist_categories=["Cc", "Cs"]), min_size=1, max_size=8)


@given(st.lists(toml_keys, min_size=1, max_size=4))
def test_a_key_path_is_written_as_toml_reads_it(path: list[str]) -> None:
    level: Any = tomllib.loads(f"{dotted(tuple(path))} = 1")
    for key in path:
        level = level[key]
    assert level == 1


@given(st.text(string.printable, max_size=200))
def test_no_file_makes_the_loader_stumble(text: str) -> None:
    file = Path(f"any-{os.getpid()}.toml")
    file.write_text(text, encoding="utf-8")
    place = file.name
    try:
        load_config(file)
    except ConfigurationError as error:
        place = str(error)
    assert place.startswith(file.name)


@pytest.mark.parametrize(
    ("text", "store"),
    [
        ("", "sqlite"),
        ('[server]\nstore = "none"', "none"),
        ('[plugins]\ndisable = ["sqlite"]', "memory"),
        ('[plugins]\nallow = ["memory"]', "memory"),
    ],
)
def test_a_configured_gateway_keeps_what_it_stores(
    tmp_path: Path, text: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.config.loading.package_of", lambda kind, name: None)
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    assert load_config(file).server.store == store
    assert load_config(file, default_store="memory").server.store in ("memory", store)


def test_a_table_selects_its_store() -> None:
    table = "[stores.redis]\nurl = 'redis://h'\n"
    assert load(table).server.store == "redis"
    assert load(f"{table}[server]\nstore = 'memory'").server.store == "memory"
    several = f"{table}[stores.postgres]\n"
    assert load(f"{several}[server]\nstore = 'postgres'").server.store == "postgres"
    with pytest.raises(ConfigurationError) as refused:
        load(several)
    assert "stores: redis and postgres have a table; name the one to use" in str(refused.value)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_bytes(b"\xef\xbb\xbf[server]\r\nport = 1\r\n")
    assert load_config(file).server.port == 1
    file.write_bytes(b"\xef\xbb\xbf[server]\r\nprot = 1\r\n")
    with pytest.raises(ConfigurationError, match=r"line 2: server\.prot"):
        load_config(file)


def test_without_a_file_and_without_the_package_the_store_is_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config().server.store == "memory"
    assert load_config(models=["m.gguf"]).server.store == "memory"
    file = tmp_path / "other.toml"
    file.write_text("")
    monkeypatch.setattr("gateway.config.loading.package_of", lambda kind, name: "litegate-sqlite")
    assert load_config(file).server.store == "memory"

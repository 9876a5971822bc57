"""What a configuration selects: engines by what a model is, renderers and formats by what its metadata says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from gateway import hookimpl
from gateway.base.errors import ConfigurationError, EngineUnavailable
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.models.hub.client import Hub
from gateway.plugins.hookspecs import EngineContext, ModelContext
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.plugins.protocols import ModelInfo, ModelProfile
from gateway.startup.engine_choice import choose_engine
from gateway.startup.model_opening import OpenedModel, open_model
from gateway.startup.model_plan import resolve_model
from gateway.startup.plugin_list import selected_offers
from gateway.startup.selection import select
from gateway_testing.hub_server import HubServer

pytestmark = pytest.mark.anyio

PROFILE = ModelProfile(renderer="jinja", parser="qwen", why="it says so")


class EngineConfig(Struct, frozen=True, forbid_unknown_fields=True):
    n_ctx: int = 512
    fail: str = ""


class RendererConfig(Struct, frozen=True, forbid_unknown_fields=True):
    trim: bool = False


class ComposedConfig(Struct, frozen=True, forbid_unknown_fields=True):
    reasoning: str | None = None
    tools: str | None = None
    start: str = ""


class Plugin:
    """Engines, renderers, parsers and so on that are only what they were told."""

    def __init__(
        self, engines: tuple[str, ...] = ("llamacpp",), profile: ModelProfile | None = PROFILE
    ) -> None:
        self.engines = engines
        self.profile = profile
        self.asked: list[ModelInfo] = []
        self.open = 0

    @asynccontextmanager
    async def open_engine(self, config: EngineConfig, context: EngineContext) -> AsyncIterator[Any]:
        match config.fail:
            case "unavailable":
                raise EngineUnavailable("No GPU.")
            case "crash":
                raise RuntimeError("CUDA error\nat line 3")
            case "configuration":
                raise ConfigurationError("n_ctx is too small.")
        info = ModelInfo(name=context.name, engine="llamacpp", chat_template="its own")
        self.open += 1
        try:
            yield SimpleNamespace(
                config=config,
                context=context,
                info=info,
                tokenizer=None,
                capabilities=frozenset({"tokens"}),
            )
        finally:
            self.open -= 1

    def make(self, config: Any, context: ModelContext) -> Any:
        return SimpleNamespace(config=config, context=context)

    def refuse(self, config: Any, context: ModelContext) -> Any:
        raise ValueError("the template has an error")

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        for name in self.engines:
            register(name, self.open_engine, config=EngineConfig, aliases=(f"{name}-also",))

    @hookimpl
    def gateway_register_renderers(self, register: Any) -> None:
        register("jinja", self.make, config=RendererConfig)
        register("twin", self.make, config=RendererConfig)
        register("broken", self.refuse)

    @hookimpl
    def gateway_register_parsers(self, register: Any) -> None:
        register("qwen", self.make, aliases=("hermes",))
        register("twin", self.make, config=ComposedConfig)
        register("composed", self.make, config=ComposedConfig)

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("dice", self.make, config=RendererConfig)

    @hookimpl
    def gateway_register_stores(self, register: Any) -> None:
        register("memory", self.make, config=RendererConfig)

    @hookimpl
    def gateway_model_profile(self, model: ModelInfo) -> ModelProfile | None:
        self.asked.append(model)
        return self.profile


def load(plugin: Plugin) -> PluginSet:
    return load_plugins(extra=[plugin], installed=False)


async def opened(config: ModelConfig, plugin: Plugin | None = None) -> OpenedModel:
    plugin = plugin or Plugin()
    async with AsyncExitStack() as stack:
        return await open_model(resolve_model("m", config, load(plugin)), stack)


def text(error: pytest.ExceptionInfo[ConfigurationError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of every kind, as far as a file name and its first bytes tell."""
    monkeypatch.chdir(tmp_path)
    Path("m.gguf").write_bytes(b"GGUF\3")
    Path("no-suffix").write_bytes(b"GGUF\3")
    Path("fake.gguf").write_bytes(b"PK")
    for name, file in [("hf", "config.json"), ("st", "a.safetensors"), ("ggufs", "a.gguf"), ("empty", "x")]:  # fmt: skip
        Path(name).mkdir()
        (Path(name) / file).touch()
    for name in ("mmproj-a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf"):
        Path("two", name).parent.mkdir(exist_ok=True)
        Path("two", name).touch()
        Path("ggufs", "mmproj-a.gguf").touch()
    Path("two", "c.gguf").touch()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("path", "installed", "chosen"),
    [
        (None, ("llamacpp", "vllm"), "llamacpp"),
        ("m.gguf", ("llamacpp", "vllm"), "llamacpp"),
        ("no-suffix", ("llamacpp", "vllm"), "llamacpp"),
        ("ggufs", ("llamacpp", "vllm"), "llamacpp"),
        ("hf", ("llamacpp", "vllm", "trtllm"), "vllm"),
        ("st", ("llamacpp", "vllm"), "vllm"),
        ("hf", ("llamacpp", "trtllm"), "trtllm"),
        ("Qwen/Qwen3-8B", ("vllm",), "vllm"),
        ("hf:gpt2", ("vllm", "trtllm"), "vllm"),
        ("o/m-GGUF", ("llamacpp", "vllm"), "llamacpp"),
        ("o/m:Q4_K_M", ("llamacpp", "vllm"), "llamacpp"),
        ("hf:o/m/m.gguf", ("llamacpp", "vllm"), "llamacpp"),
    ],
)
def test_an_engine_is_chosen_by_what_the_model_is(
    path: str | None, installed: tuple[str, ...], chosen: str
) -> None:
    name, why = choose_engine(path, load(Plugin(installed)))
    assert name == chosen
    assert why


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("path", "installed", "sentence"),
    [
        (None, (), "`pip install litegate-llamacpp` installs it, and"),
        (
            None,
            ("echo",),
            "one machine needs. Or name one of the installed engines: echo, echo-also.",
        ),
        ("m.gguf", ("vllm",), "the model is a GGUF file"),
        ("Qwen/Qwen3-8B", (), "pip install litegate-vllm"),
        ("o/m-GGUF", ("vllm",), "pip install litegate-llamacpp"),
        (
            "gpt2",
            ("vllm",),
            "there is no file or folder 'gpt2', and it is not a name of the hub, such as owner/repository or",
        ),
        ("absent.gguf", ("llamacpp",), "there is no file 'absent.gguf'"),
        ("fake.gguf", ("llamacpp",), "is not a GGUF file"),
        ("two", ("llamacpp",), "give one of them: b-00001-of-00002.gguf, c.gguf"),
        ("empty", ("vllm",), "has neither config.json, safetensors nor a GGUF file"),
        ("/absent/folder", ("vllm",), "there is no file or folder '/absent/folder'"),
        ("./absent", ("vllm",), "there is no file or folder './absent'"),
        (
            "127.0.0.1:8080",
            ("remote",),
            "begins with http:// or https://, as http://127.0.0.1:8080.",
        ),
        ("gpu-1:11434/v1", ("remote",), "as http://gpu-1:11434/v1."),
        ("host:80/v1#m", ("remote",), "as http://host:80/v1#m."),
    ],
)
def test_where_no_engine_fits_a_sentence_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, path: str | None, installed: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.setattr("gateway.base.packages.is_installed", lambda package: False)
    with pytest.raises(ConfigurationError) as caught:
        choose_engine(path, load(Plugin(installed)))
    assert sentence in text(caught)


def test_without_an_engine_for_safetensors_the_hub_is_asked_what_a_repository_has(
    hub_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.startup.engine_choice._importable", lambda module: False)
    hub_server.add("o/plain", {"m-Q8_0.gguf": b"GGUF"})
    hub_server.add("o/st", {"model.safetensors": b""})
    plugins = load(Plugin(("llamacpp", "vllm")))

    def hub() -> Hub:
        return Hub(endpoint=hub_server.url, cache=tmp_path)

    assert choose_engine("o/plain", plugins, hub)[0] == "llamacpp"
    with pytest.raises(ConfigurationError) as caught:
        choose_engine("o/st", plugins, hub)
    assert text(caught).startswith(
        "o/st has safetensors, which vLLM loads (pip install vllm); llamacpp, which"
    )
    assert text(caught).endswith(
        "loads GGUF files: name a repository of those, most of which end in -GGUF."
    )
    hub_server.add("other/st-gguf", {"st.gguf": b"GGUF"})
    with pytest.raises(ConfigurationError, match=r"name a repository of those, as other/st-gguf\."):
        choose_engine("o/st", plugins, hub)
    with pytest.raises(ConfigurationError, match="has no repository o/none: check the spelling"):
        choose_engine("o/none", plugins, hub)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (ModelConfig(engine="lamacpp"), 'models.m.engine: no loaded plugin offers an engine named \'lamacpp\'; did you mean "llamacpp'),
        (ModelConfig(renderer="jinj"), 'models.m.renderer: no loaded plugin offers a renderer named \'jinj\'; did you mean "jinja"?'),
        (ModelConfig(parser="qwn"), 'did you mean "qwen"?'),
        (ModelConfig(options={"lamacpp": {}}), 'models.m.lamacpp: no plugin of this model has that name; did you mean "llamacpp'),
        (ModelConfig(options={"samplng": {}}), 'models.m.samplng: no plugin of this model has that name; did you mean "sampling"?'),
        (ModelConfig(options={"jinja": {}}, renderer="twin"), "models.m.jinja: no plugin of this model has that name"),
        (ModelConfig(options={"llamacpp": {"n_ctxx": 1}}), 'models.m.llamacpp.n_ctxx: there is no such key; did you mean "n_ctx"?'),
        (ModelConfig(options={"llamacpp": {"n_ctx": "x"}}), "models.m.llamacpp.n_ctx: expected an integer, not a string"),
        (ModelConfig(chat_template="absent.jinja"), "models.m.chat_template: the file 'absent.jinja' cannot be read"),
    ],
)  # fmt: skip
def test_a_mistake_is_found_before_anything_is_open(config: ModelConfig, sentence: str) -> None:
    plugin = Plugin()
    with pytest.raises(ConfigurationError) as caught:
        resolve_model("m", config, load(plugin))
    assert sentence in text(caught)
    assert plugin.asked == []


def test_a_table_of_another_engine_than_the_models_own_is_refused_by_that_name() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_model("m", ModelConfig(options={"vllm": {}}), load(Plugin(("llamacpp", "vllm"))))
    assert text(caught) == (
        "models.m.vllm: this model's engine is 'llamacpp'; set engine = 'vllm', or take the table out."
    )


async def test_the_profile_says_what_the_configuration_leaves_open() -> None:
    plugin = Plugin()
    model = await opened(ModelConfig(), plugin)
    assert model.profile is PROFILE
    assert "renderer jinja and parser qwen (it says so)" in model.why
    assert [info.name for info in plugin.asked] == ["m"]


async def test_the_configuration_comes_before_the_profile() -> None:
    model = await opened(ModelConfig(renderer="twin"))
    assert "renderer twin (named in the configuration), parser qwen (it says so)" in model.why


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(renderer="jinja", parser="hermes"),
        ModelConfig(renderer="jinja", reasoning="a", tools="b"),
    ],
)
async def test_no_profile_is_asked_for_where_nothing_is_open(config: ModelConfig) -> None:
    plugin = Plugin()
    model = await opened(config, plugin)
    assert plugin.asked == []
    assert "(named in the configuration)" in model.why


@pytest.mark.parametrize(
    ("config", "profile", "halves"),
    [
        (ModelConfig(reasoning="a", tools="b"), PROFILE, ("a", "b")),
        (ModelConfig(reasoning="a"), PROFILE, ("a", None)),
        (ModelConfig(reasoning="a"), ModelProfile(renderer="jinja", reasoning="x", tools="y"), ("a", "y")),
        (ModelConfig(), ModelProfile(renderer="jinja", reasoning="x", tools="y"), ("x", "y")),
        (ModelConfig(), ModelProfile(renderer="jinja", tools="y"), (None, "y")),
    ],
)  # fmt: skip
async def test_two_halves_make_one_format(
    config: ModelConfig, profile: ModelProfile, halves: tuple[str | None, str | None]
) -> None:
    config = msgspec.structs.replace(config, options={"composed": {"start": "text"}})
    model = await opened(config, Plugin(profile=profile))
    made: Any = model.output_format
    assert made.config == ComposedConfig(halves[0], halves[1], "text")


async def test_two_names_of_one_format_are_that_format() -> None:
    """vLLM's flags for gpt-oss are two names, and the format is no combination."""
    model = await opened(ModelConfig(renderer="jinja", reasoning="qwen", tools="hermes"))
    made: Any = model.output_format
    assert not isinstance(made.config, ComposedConfig)
    assert "renderer jinja and parser qwen (named in the configuration)" in model.why


@pytest.mark.parametrize(
    ("profile", "missing"),
    [(None, "renderer"), (ModelProfile(parser="qwen"), "renderer"), (ModelProfile(renderer="jinja"), "parser")],
)  # fmt: skip
async def test_a_model_that_no_plugin_knows_is_refused_with_what_is_installed(
    profile: ModelProfile | None, missing: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await opened(ModelConfig(), Plugin(profile=profile))
    assert f"models.m.{missing}: no plugin knows the {missing} of this model" in text(caught)
    assert "with a chat template" in text(caught)
    assert "twin" in text(caught)


async def test_each_plugin_gets_its_own_table() -> None:
    options: dict[str, dict[str, Any]] = {"llamacpp-also": {"n_ctx": 8}, "jinja": {"trim": True}}
    async with AsyncExitStack() as stack:
        plan = resolve_model("m", ModelConfig(options=options), load(Plugin()))
        model = await open_model(plan, stack)
        engine: Any = model.engine
        renderer: Any = model.renderer
        assert engine.config == EngineConfig(8)
        assert renderer.config == RendererConfig(True)


async def test_a_renderer_and_a_format_of_one_name_share_a_table() -> None:
    config = ModelConfig(renderer="twin", parser="twin", options={"twin": {"trim": True, "start": "x"}})  # fmt: skip
    model = await opened(config)
    renderer: Any = model.renderer
    made: Any = model.output_format
    assert (renderer.config, made.config) == (RendererConfig(True), ComposedConfig(start="x"))
    with pytest.raises(ConfigurationError, match=r"models\.m\.twin\.tirm: there is no such key"):
        await opened(msgspec.structs.replace(config, options={"twin": {"tirm": True}}))


async def test_a_table_of_a_plugin_that_is_installed_and_not_chosen_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"models\.m\.twin: no plugin of this model"):
        await opened(ModelConfig(options={"twin": {}}))


async def test_a_configured_template_replaces_the_models_own(tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("{{ from_a_file }}")
    for written, expected in [
        (None, "its own"),
        ("{{ inline }}", "{{ inline }}"),
        (str(file), "{{ from_a_file }}"),
    ]:
        plugin = Plugin()
        model = await opened(ModelConfig(chat_template=written), plugin)
        made: Any = model.renderer
        assert model.info.chat_template == made.context.info.chat_template == expected
        assert plugin.asked[0].chat_template == expected


@pytest.mark.parametrize(
    ("fail", "sentence"),
    [
        ("unavailable", "models.m: the engine 'llamacpp' cannot open the model: No GPU."),
        (
            "crash",
            "the engine 'llamacpp' cannot open the model: RuntimeError: CUDA error at line 3",
        ),
        ("configuration", "models.m: n_ctx is too small."),
    ],
)
async def test_an_engine_that_cannot_open_is_a_sentence(fail: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await opened(ModelConfig(options={"llamacpp": {"fail": fail}}))
    assert sentence in text(caught)
    assert caught.value.__cause__ is not None


async def test_an_engine_is_closed_with_the_stack_also_if_its_renderer_cannot_be_made() -> None:
    plugin = Plugin()
    with pytest.raises(
        ConfigurationError, match="the renderer 'broken' cannot be created: ValueError"
    ):
        await opened(ModelConfig(renderer="broken"), plugin)
    assert plugin.open == 0


def test_everything_is_checked_before_anything_is_opened() -> None:
    plugins = load(Plugin())
    config = Config(models={"m": ModelConfig()}, tools={"dice": {"trim": True}})
    selection = select(config, plugins)
    assert [plan.name for plan in selection.models] == ["m"]
    assert [settings for _, settings in selection.tools] == [RendererConfig(True)]
    assert selection.store is not None
    silent = msgspec.structs.replace(config, server=ServerConfig(store="none"))
    assert select(silent, plugins).store is None
    assert selected_offers(config, plugins) == {
        ("engine", "llamacpp"), ("tool", "dice"), ("store", "memory"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tools": {"dcie": {}}}, 'here.toml: tools.dcie: no loaded plugin offers a tool named \'dcie\'; did you mean "dice"?'),
        ({"tools": {"dice": {"trm": 1}}}, 'here.toml: tools.dice.trm: there is no such key; did you mean "trim"?'),
        ({"stores": {"memroy": {}}}, 'here.toml: stores.memroy: no loaded plugin offers a store named \'memroy\'; did you mean "memory"?'),
        ({"stores": {"memory": {"x": 1}}}, "here.toml: stores.memory.x: there is no such key"),
        ({"server": ServerConfig(chat_tools=["dcie"])}, "here.toml: server.chat_tools names 'dcie', but there is no table [tools.dcie]"),
        ({"server": ServerConfig(store="redis")}, "here.toml: server.store: no loaded plugin offers a store named 'redis'. Installed: "),
    ],
)  # fmt: skip
def test_a_mistake_anywhere_is_a_sentence_with_its_key(
    change: dict[str, Any], sentence: str
) -> None:
    config = Config(models={"m": ModelConfig()}, source="here.toml")
    with pytest.raises(ConfigurationError) as caught:
        select(msgspec.structs.replace(config, **change), load(Plugin()))
    assert sentence in text(caught)


class First(Plugin):
    """Another plugin, which wants to be asked first."""

    @hookimpl(tryfirst=True)
    def gateway_model_profile(self, model: ModelInfo) -> ModelProfile | None:
        return self.profile


class Second(Plugin):
    """Another plugin of the same rank as the first."""


def profiled(plugin: Plugin, kind: type[Plugin]) -> Any:
    """A plugin with a profile alone."""
    own = kind(profile=plugin.profile)
    return SimpleNamespace(
        __name__=f"gateway_{kind.__name__.lower()}",
        gateway_model_profile=own.gateway_model_profile,
    )


OTHER = ModelProfile(renderer="twin", parser="twin", why="it is another")


@pytest.mark.parametrize("reverse", [False, True])
async def test_the_order_of_plugins_decides_nothing(reverse: bool) -> None:
    """Whichever is loaded first: a plugin that wants to be first is, and two of equal rank must agree."""

    async def profile_of(*plugins: Any) -> ModelProfile | None:
        several = load_plugins(extra=plugins[::-1] if reverse else plugins, installed=False)
        async with AsyncExitStack() as stack:
            return (await open_model(resolve_model("m", ModelConfig(), several), stack)).profile

    base = Plugin()
    assert await profile_of(base, profiled(Plugin(profile=OTHER), First)) == OTHER
    same = msgspec.structs.replace(PROFILE, why="so do I")
    agreed = await profile_of(base, profiled(Plugin(profile=same), Second))
    assert agreed is not None
    assert agreed.renderer == PROFILE.renderer
    with pytest.raises(ConfigurationError, match=r"both know this model, and differ.*\[plugins\]"):
        await profile_of(base, profiled(Plugin(profile=OTHER), Second))

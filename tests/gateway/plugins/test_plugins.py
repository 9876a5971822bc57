"""Loading plugins: what they offer is found by name, and what is wrong with them is said in a sentence."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec import Struct

from gateway import hookimpl
from gateway.base.errors import ConfigurationError
from gateway.config import PluginsConfig
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.plugins.protocols import ModelInfo, ModelProfile, NoConfig


class ToolConfig(Struct, frozen=True):
    size: int = 0


def plugin(name: str, **functions: Any) -> ModuleType:
    module = ModuleType(f"gateway_{name}")
    vars(module).update(functions)
    return module


def offering(name: str, *tools: str, **options: Any) -> ModuleType:
    """A plugin that offers tools of these names."""

    @hookimpl
    def gateway_register_tools(register: Any) -> None:
        for tool in tools:
            register(tool, print, **options)

    return plugin(name, gateway_register_tools=gateway_register_tools)


def load(*plugins: object, strict: bool = True) -> PluginSet:
    return load_plugins(extra=plugins, installed=False, strict=strict)


def mistake(*plugins: object) -> str:
    """Why these plugins stop the start."""
    with pytest.raises(ConfigurationError) as caught:
        load(*plugins)
    [failure] = [each for each in load(*plugins, strict=False).failures if each.fatal]
    assert failure.reason in str(caught.value)
    return failure.reason


def test_an_offer_is_found_by_its_name_and_its_aliases() -> None:
    plugins = load(offering("one", "dice", aliases=("die",), summary="rolls", config=ToolConfig))
    offer = plugins.tool("dice")
    assert plugins.tool("die") is offer
    assert (offer.kind, offer.summary, offer.plugin) == ("tool", "rolls", "one")
    assert plugins.offers() == plugins.offers("tool") == [offer]
    assert (plugins.aliases(offer), plugins.offers("engine")) == (["die"], [])


def test_an_unknown_name_is_answered_with_the_nearest_and_with_all() -> None:
    plugins = load(offering("one", "dice", "cards"))
    with pytest.raises(ConfigurationError) as caught:
        plugins.tool("dcie", "tools.dcie")
    assert str(caught.value) == (
        "tools.dcie: no loaded plugin offers a tool named 'dcie'; did you mean \"dice\"? "
        "Installed: cards, dice."
    )


def test_kinds_have_names_of_their_own() -> None:
    @hookimpl
    def gateway_register_stores(register: Any) -> None:
        register("dice", print)

    plugins = load(
        offering("one", "dice"), plugin("two", gateway_register_stores=gateway_register_stores)
    )
    assert plugins.tool("dice").plugin == "one"
    assert plugins.store("dice").plugin == "two"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (offering("one", "a"), offering("two", "a")),
        (offering("one", "a", aliases=("b",)), offering("two", "b")),
        (offering("one", "a"), offering("two", "b", aliases=("a",))),
    ],
)
def test_one_name_from_two_plugins_stops_the_start(one: ModuleType, other: ModuleType) -> None:
    reason = mistake(one, other)
    assert "it offers a tool named" in reason
    assert "so does the plugin 'one'" in reason


def test_one_name_twice_from_one_plugin_stops_the_start() -> None:
    assert "it registers a tool named 'a' twice" in mistake(offering("one", "a", "a"))
    assert "it registers a tool named 'a' twice" in mistake(offering("one", "a", aliases=("a",)))


def test_a_plugin_with_a_mistake_offers_nothing() -> None:
    plugins = load(offering("one", "a"), offering("two", "b", "a"), strict=False)
    assert plugins.names("tool") == ["a"]


def misspelt() -> ModuleType:
    @hookimpl
    def gateway_register_tool(register: Any) -> None: ...

    return plugin("p", gateway_register_tool=gateway_register_tool)


def misspelt_by_specname() -> ModuleType:
    @hookimpl(specname="gateway_register_tool")
    def offer(register: Any) -> None: ...

    return plugin("p", offer=offer)


def misspelt_argument() -> ModuleType:
    @hookimpl
    def gateway_register_tools(registr: Any) -> None: ...

    return plugin("p", gateway_register_tools=gateway_register_tools)


def unmarked() -> ModuleType:
    def gateway_register_tools(register: Any) -> None: ...

    return plugin("p", gateway_register_tools=gateway_register_tools)


def asynchronous() -> ModuleType:
    @hookimpl
    async def gateway_register_tools(register: Any) -> None: ...

    return plugin("p", gateway_register_tools=gateway_register_tools)


class Unresolved(Struct):
    """Its annotation names something that is only there for the type checker."""

    path: Elsewhere  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (misspelt, 'there is no hook gateway_register_tool; did you mean "gateway_register_tools"?'),
        (misspelt_by_specname, 'there is no hook gateway_register_tool; did you mean "gateway_register_tools"?'),
        (misspelt_argument, 'gateway_register_tools has no argument registr; did you mean "register"?'),
        (unmarked, "its gateway_register_tools is not marked with @gateway.hookimpl"),
        (asynchronous, "gateway_register_tools is asynchronous"),
        (lambda: offering("p", "no name"), "'no name' is not a valid name for a tool"),
        (lambda: offering("p", ""), "'' is not a valid name for a tool"),
        (lambda: offering("p", "a", aliases="bc"), "the aliases of the tool 'a' are one string"),
        (lambda: offering("p", "a", config=dict), "the config of the tool 'a' is not a msgspec Struct class"),
        (lambda: offering("p", "a", config=Unresolved), "name 'Elsewhere' is not defined"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_plugin_stops_the_start_with_a_sentence(
    broken: Callable[[], ModuleType], reason: str
) -> None:
    assert reason in mistake(broken())


def test_hooks_may_leave_arguments_out_and_be_methods() -> None:
    class Observer:
        @hookimpl
        def gateway_response_finished(self) -> None: ...

    plugins = load(Observer())
    assert plugins.hooks_of(plugins.plugins[0]) == ["gateway_response_finished"]


def test_a_plugin_that_fails_as_it_registers_stops_only_those_who_select_it() -> None:
    @hookimpl
    def gateway_register_tools(register: Any) -> None:
        register("a", print)
        raise OSError("no disk")

    plugins = load(plugin("a", gateway_register_tools=gateway_register_tools))
    assert plugins.offers() == []
    with pytest.raises(ConfigurationError, match="registering failed: OSError: no disk"):
        plugins.tool("a")


def test_a_plugin_without_hooks_is_shown_as_failed() -> None:
    [failure] = load(plugin("nothing")).failures
    assert failure.reason == "it implements no hook"


def test_a_table_is_decoded_into_the_offers_config() -> None:
    plugins = load(offering("one", "dice", config=ToolConfig), offering("two", "cards"))
    assert plugins.decode_config(plugins.tool("dice"), {"size": 3}, "tools.dice") == ToolConfig(3)
    assert plugins.decode_config(plugins.tool("cards"), {}, "tools.cards") == NoConfig()
    with pytest.raises(ConfigurationError) as caught:
        plugins.decode_config(plugins.tool("dice"), {"sise": 3}, "tools.dice")
    assert str(caught.value) == 'tools.dice.sise: there is no such key; did you mean "size"?'


def test_the_first_profile_that_is_not_none_counts() -> None:
    def knowing(name: str, answer: ModelProfile | None, *, first: bool = False) -> ModuleType:
        @hookimpl(tryfirst=first)
        def gateway_model_profile(model: ModelInfo) -> ModelProfile | None:
            return answer

        return plugin(name, gateway_model_profile=gateway_model_profile)

    first = ModelProfile(renderer="first")
    plugins = load(
        knowing("one", None),
        knowing("two", first, first=True),
        knowing("three", ModelProfile(renderer="other")),
    )
    model = ModelInfo(name="m", engine="e")
    assert plugins.hook.gateway_model_profile(model=model) is first


def install(folder: Path, distribution: str, entry_points: dict[str, str], **modules: str) -> None:
    """Install a distribution as pip would: its metadata, and its modules' source."""
    metadata = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
    )
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[gateway]", *lines, ""]))
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)


TOOL = """
from gateway import hookimpl
@hookimpl
def gateway_register_tools(register):
    register("{name}", print)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path; what is imported from it is forgotten at the end."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def test_an_installed_plugin_is_found(site: Path) -> None:
    install(site, "third-party", {"zz_good": "zz_good"}, zz_good=TOOL.format(name="zz_tool"))
    offer = load_plugins(PluginsConfig(allow=["zz_good"])).tool("zz_tool")
    assert (offer.plugin, offer.distribution, offer.version) == ("zz_good", "third-party", "1.0")


def test_a_plugin_that_is_installed_and_handed_over_is_one(site: Path) -> None:
    """As in the tests of a plugin that is installed: they hand their module over."""
    install(site, "third-party", {"zz_good": "zz_good"}, zz_good=TOOL.format(name="zz_tool"))
    module = importlib.import_module("zz_good")
    plugins = load_plugins(PluginsConfig(allow=["zz_good"]), extra=[module, module])
    assert plugins.tool("zz_tool").distribution == "third-party"
    assert not plugins.failures or all(each.wanted for each in plugins.failures)
    # One that the configuration does not let load is there because it was handed over.
    plugins = load_plugins(PluginsConfig(allow=[]), extra=[module])
    assert plugins.tool("zz_tool").distribution == "this program"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module", "its import failed: ModuleNotFoundError: No module named"),
        ("1 / 0", "its import failed: ZeroDivisionError: division by zero"),
        ("def broken(:", "its import failed: SyntaxError"),
        ("raise SystemExit(3)", "its import failed: SystemExit: 3"),
        ("raise ValueError", "its import failed: ValueError"),
    ],
)
def test_a_plugin_that_cannot_be_imported_stops_only_those_who_select_it(
    site: Path, source: str, reason: str
) -> None:
    install(site, "third-party", {"zz_bad": "zz_bad"}, zz_bad=source)
    plugins = load_plugins(PluginsConfig(allow=["zz_bad"]))
    with pytest.raises(ConfigurationError) as caught:
        plugins.tool("zz_bad", "tools.zz_bad")
    assert "'zz_bad' (third-party 1.0) is installed but not loaded" in str(caught.value)
    assert reason in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"Not loaded: zz_bad \(see"):
        plugins.tool("other")


def test_one_entry_point_name_from_two_distributions_stops_the_start(site: Path) -> None:
    for name in ("third-party", "fourth-party"):
        install(site, name, {"zz_tool": "zz_tool"}, zz_tool=TOOL.format(name="zz_tool"))
    with pytest.raises(ConfigurationError) as caught:
        load_plugins(PluginsConfig(allow=["zz_tool"]))
    assert "third-party" in str(caught.value)
    assert "fourth-party" in str(caught.value)


def test_one_offer_from_two_distributions_names_both(site: Path) -> None:
    install(site, "third-party", {"zz_one": "zz_one"}, zz_one=TOOL.format(name="zz_tool"))
    install(site, "fourth-party", {"zz_two": "zz_two"}, zz_two=TOOL.format(name="zz_tool"))
    both = PluginsConfig(allow=["zz_one", "zz_two"])
    with pytest.raises(ConfigurationError, match=r"third-party 1\.0.*uninstall fourth-party"):
        load_plugins(both)
    disabled = PluginsConfig(allow=["zz_one", "zz_two"], disable=["zz_one"])
    assert load_plugins(disabled).tool("zz_tool").plugin == "zz_two"


def test_what_is_not_allowed_is_not_even_imported(site: Path) -> None:
    install(site, "third-party", {"zz_good": "zz_good"}, zz_good=TOOL.format(name="zz_tool"))
    plugins = load_plugins(PluginsConfig(allow=[]))
    assert "zz_good" not in sys.modules
    with pytest.raises(ConfigurationError, match=r"\[plugins\] in the configuration"):
        plugins.tool("zz_good")


@pytest.mark.parametrize("key", ["allow", "disable"])
def test_a_list_that_names_what_is_not_installed_is_refused(site: Path, key: str) -> None:
    install(site, "third-party", {"zz_good": "zz_good"}, zz_good=TOOL.format(name="zz_tool"))
    lists: dict[str, list[str]] = {key: ["zz_godo"]}
    with pytest.raises(ConfigurationError, match=f'plugins.{key}: .*did you mean "zz_good"'):
        load_plugins(PluginsConfig(**lists))

"""The table of this project's packages agrees with what they offer."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from gateway.base import packages
from gateway.base.errors import ConfigurationError
from gateway.plugins.loading import load_plugins

ROOT = Path(__file__).parents[3]
PYTHON = "Programming Language :: Python :: "


def pythons_of_the_gate() -> list[str]:
    """The versions of Python that the gate looks for."""
    [found] = re.findall(r"^PYTHONS=\"(.*)\"", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    return found.split()


def test_the_table_is_what_the_installed_packages_offer() -> None:
    plugins = load_plugins()
    offered = {
        (offer.kind, name): offer.distribution
        for offer in plugins.offers()
        for name in (offer.name, *plugins.aliases(offer))
        if offer.distribution.startswith("litegate-") and offer.distribution != packages._FORMATS
    }
    installed = {
        key: package for key, package in packages._OFFERS.items() if packages.is_installed(package)
    }
    assert installed == offered


def test_every_package_of_the_project_is_known() -> None:
    names = {
        tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"]
        for pattern in ("plugins/*/pyproject.toml", "backends/*/pyproject.toml")
        for file in ROOT.glob(pattern)
    }
    assert names == set(packages.PACKAGES)


def test_every_package_has_what_a_wheel_needs() -> None:
    folders = [
        file.parent
        for kind in ("plugins", "backends")
        for file in ROOT.glob(f"{kind}/*/pyproject.toml")
    ]
    for folder in folders:
        assert (folder / "LICENSE").is_file(), folder
        assert (folder / "README.md").is_file(), folder
        assert list(folder.glob("gateway_*/py.typed")), folder


def members(extra: str) -> set[str]:
    """The packages that `litegate[extra]` installs beside the core."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    found: set[str] = set()
    for requirement in extras[extra]:
        if inner := re.match(r"litegate\[(.*)\]", requirement):
            for name in inner[1].split(","):
                found |= members(name)
        else:
            found.add(requirement.partition(">=")[0])
    return found


def test_the_extras_are_made_of_packages_of_the_project() -> None:
    ours = {
        extra: {name for name in members(extra) if name.startswith("litegate")}
        for extra in ("local", "vllm", "redis", "tools", "all")
    }
    assert ours["all"] == set(packages.PACKAGES) - set(packages.WITHOUT_PLUGIN)
    assert members("testing") == {"litegate-testing"}
    assert ours["local"] | ours["vllm"] | ours["redis"] | ours["tools"] < ours["all"]
    assert ours["local"] == packages.LOCAL
    assert "litegate-vllm" in ours["vllm"]


@pytest.mark.parametrize(
    ("kind", "name", "package"),
    [
        ("store", "redis", "litegate-redis"),
        ("tool", "browser", "litegate-browser"),
        ("api", "messages", "litegate-messages"),
        ("parser", "qwen3", "litegate-parsers"),
        ("parser", "harmony", "litegate-harmony"),
        ("renderer", "chat_template", "litegate-chat-template"),
    ],
)
def test_what_is_missing_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, package: str
) -> None:
    def not_installed(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", not_installed)
    plugins = load_plugins(installed=False)
    with pytest.raises(ConfigurationError) as raised:
        getattr(plugins, kind)(name, "here")
    assert f" Installed: none. `pip install {package}` installs it" in str(raised.value)
    assert str(raised.value).endswith(
        "`pip install 'litegate[local]'` all that one machine needs."
    ) == (package in packages.LOCAL)


def test_nothing_is_to_be_installed_for_a_name_that_nobody_offers() -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_plugins(installed=False).store("cassandra", "server.store")
    assert "pip install" not in str(raised.value)


@pytest.mark.parametrize("file", sorted([ROOT / "pyproject.toml", *ROOT.glob("*/*/pyproject.toml")]), ids=lambda file: file.parent.name)  # fmt: skip
def test_every_package_is_classified(file: Path) -> None:
    """Addresses of the project are not among its metadata: it has no public one yet."""
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    found = project["classifiers"]
    assert found == sorted(set(found))
    assert "Typing :: Typed" in found
    pythons = {each.rpartition(" ")[2] for each in found if each.startswith(PYTHON + "3.")}
    assert pythons == set(pythons_of_the_gate())
    # The license is an expression (PEP 639), beside which there is no classifier of it.
    assert not [each for each in found if each.startswith("License ::")]
    if "urls" in project:
        assert all(url.startswith("https://") for url in project["urls"].values())

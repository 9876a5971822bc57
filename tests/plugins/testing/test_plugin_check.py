"""The check of an installed plugin, on distributions that are made for it."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

from gateway.plugins import hookspecs
from gateway_testing import check_plugin

GOOD = """
from gateway import hookimpl

@hookimpl
def gateway_register_parsers(register):
    register("{name}-format", lambda config, context: None)

@hookimpl
def gateway_response_finished(response):
    pass
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Put a distribution with one plugin on the path of every process that is started from here."""
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), known])))

    def put(name: str, source: str, *, distribution: str | None = None) -> None:
        distribution = distribution or f"third_{name}"
        (tmp_path / f"gateway_{name}.py").write_text(source.replace("{name}", name))
        folder = tmp_path / f"{distribution}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {distribution}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[gateway]\n{name} = gateway_{name}\n")

    return put


def test_a_good_plugin_is_reported(install) -> None:  # type: ignore[no-untyped-def]
    install("fine", GOOD)
    report = check_plugin("fine")
    assert report.distribution == "third_fine"
    assert report.offers == ["parser fine-format"]
    assert report.hooks == ["gateway_response_finished"]


@pytest.mark.parametrize(
    ("hook", "parameters"),
    [
        (hook, ", ".join(inspect.signature(function).parameters))
        for hook, function in vars(hookspecs).items()
        if hasattr(function, f"{hookspecs.PROJECT}_spec")
        and not hook.startswith("gateway_register_")
    ],
)
def test_a_plugin_may_have_one_hook_and_no_offers(  # type: ignore[no-untyped-def]
    install, hook: str, parameters: str
) -> None:
    install(
        "one",
        f"from gateway import hookimpl\n\n@hookimpl\ndef {hook}({parameters}):\n    pass\n",
    )
    report = check_plugin("one")
    assert (report.offers, report.hooks) == ([], [hook])


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import nothing_of_that_name", "cannot be imported(?s:.)*ModuleNotFoundError"),
        ("", "no hook"),
        (GOOD[: GOOD.index('    register("')] + "    pass", "offers nothing"),
        (GOOD.replace("gateway_register_parsers", "gateway_register_parser"), "no hook"),
        (GOOD.replace("(register)", "(registry)", 1), "registry"),
        (GOOD.replace("{name}-format", "qwen3"), "qwen3"),
        ("import sys, types\nsys.modules['torch'] = types.ModuleType('torch')" + GOOD, "torch"),
    ],
)
def test_what_is_wrong_is_said(install, source: str, complaint: str) -> None:  # type: ignore[no-untyped-def]
    install("wrong", source)
    with pytest.raises(AssertionError, match=complaint):
        check_plugin("wrong")


def test_a_name_with_two_owners_is_said(install) -> None:  # type: ignore[no-untyped-def]
    install("twice", GOOD)
    install("twice", GOOD, distribution="another")
    with pytest.raises(
        AssertionError, match=r"several owners.*another|several owners.*third_twice"
    ):
        check_plugin("twice")


def test_a_plugin_that_is_not_installed_is_said() -> None:
    with pytest.raises(AssertionError, match="no installed distribution"):
        check_plugin("nobody_has_this")

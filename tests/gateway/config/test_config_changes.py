"""What the log says of a configuration that was read again: names, and no value."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from gateway.config import load_config
from gateway.config.reloading import changes, needing_restart, reloaded
from gateway.config.structs import Config

DIGEST = hashlib.sha256(b"one").hexdigest()
BEFORE = f"""
[server]
ping_interval = 10
[[server.api_keys]]
name = "a"
sha256 = "{DIGEST}"

[models.kept]
engine = "scripted"
[models."some/model:v1.5"]
engine = "scripted"
[models.gone]
engine = "scripted"

[tools.browser]
[tools.container]
[prompts.greet]
text = "Hello"
"""


def read(folder: Path, text: str) -> Config:
    file = folder / "gateway.toml"
    file.write_text(text)
    return load_config(file, {})


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("", "", []),
        ("ping_interval = 10", "ping_interval = 20", ["server.ping_interval"]),
        (DIGEST, 64 * "5", ["server.api_keys"]),
        ("[models.gone]", "[models.new]", ["models.new (new)", "models.gone (removed)"]),
        ('v1.5"]\n', 'v1.5"]\nmax_running = 2\n', ['models."some/model:v1.5"']),
        ('"Hello"', '"SECRET"', ["prompts.greet"]),
        ("[tools.container]\n", "", ["tools.container (removed)"]),
        ("[tools.container]\n", "[tools.container]\nimage = 'SECRET'\n", ["tools.container"]),
        # Needs a restart, so nothing is used that was not before.
        ("[server]\n", "[server]\nport = 9000\n", []),
    ],
)
def test_changes_are_named(tmp_path: Path, old: str, new: str, names: list[str]) -> None:
    before = read(tmp_path, BEFORE)
    after = read(tmp_path, BEFORE.replace(old, new, 1) if old else BEFORE)
    assert changes(before, reloaded(before, after)) == names
    assert ("9000" in new) == (needing_restart(before, after) == ["server.port"])

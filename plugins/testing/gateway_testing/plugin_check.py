"""Checks that a gateway can load an installed plugin."""

from __future__ import annotations

import json
import subprocess
import sys

from msgspec import Struct

HEAVY_MODULES = ("torch", "vllm", "tensorrt_llm", "transformers", "xllamacpp", "llama_cpp", "jax")
"""Modules that are slow to import or need a GPU. They must be imported inside `open`."""

# Runs in a separate process without any imports. The plugin is loaded first, so that the imports of
# other plugins are not attributed to it.
_PROGRAM = """
import json, sys
from importlib import metadata

name, heavy = sys.argv[1], json.loads(sys.argv[2])
found = [entry for entry in metadata.entry_points(group="gateway") if entry.name == name]
answer = {"owners": [entry.dist.name for entry in found]}
if len(found) == 1:
    found[0].load()
    answer["heavy"] = [each for each in heavy if each in sys.modules]
    from gateway.plugins import hookspecs
    from gateway.plugins.loading import load_plugins
    plugins = load_plugins(strict=False)
    answer["failures"] = [each.reason for each in plugins.failures if each.plugin.name == name]
    answer["offers"] = [
        f"{offer.kind} {offer.name}" for offer in plugins.offers() if offer.plugin == name
    ]
    answer["hooks"] = [
        hook
        for hook, function in vars(hookspecs).items()
        if hasattr(function, f"{hookspecs.PROJECT}_spec")
        and not hook.startswith("gateway_register_")
        and any(each.plugin_name == name for each in getattr(plugins.hook, hook).get_hookimpls())
    ]
print(json.dumps(answer))
"""


class PluginReport(Struct, frozen=True):
    """The offers and hooks of a plugin."""

    distribution: str
    offers: list[str]
    """Kind and name of each offer: `engine scripted`."""
    hooks: list[str]
    """Hooks that do not register offers."""


def check_plugin(name: str) -> PluginReport:
    """Check that a gateway can load the installed plugin with this entry point.

    Checks in a new process that the plugin can be imported without importing any of `HEAVY_MODULES`, that its hooks are
    valid, that its names do not conflict with others, and that it has an offer or a hook. Raises AssertionError with
    the reason.
    """
    done = subprocess.run(  # noqa: S603 (this interpreter, our own program)
        [sys.executable, "-c", _PROGRAM, name, json.dumps(HEAVY_MODULES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"the plugin {name!r} cannot be imported:\n{done.stderr}"
    answer = json.loads(done.stdout.splitlines()[-1])
    owners = answer["owners"]
    assert owners, f"no installed distribution has an entry point {name!r} in the group 'gateway'"
    assert len(owners) == 1, f"the entry point {name!r} has several owners: {', '.join(owners)}"
    assert not answer["heavy"], (
        f"the plugin {name!r} imports {', '.join(answer['heavy'])}: do it inside open, for listing "
        "plugins imports every module"
    )
    assert not answer["failures"], f"the plugin {name!r}: {'; '.join(answer['failures'])}"
    assert answer["offers"] or answer["hooks"], f"the plugin {name!r} offers nothing"
    return PluginReport(owners[0], answer["offers"], answer["hooks"])

"""Whether an installed plugin is what a gateway may load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

HEAVY_MODULES = ("torch", "vllm", "tensorrt_llm", "transformers", "xllamacpp", "llama_cpp", "jax")
"""What takes seconds or a GPU to import, and belongs inside `open`."""

# Runs in a process of its own: what this process has imported already must not count.
_PROGRAM = """
import json, sys
from importlib import metadata
name, heavy = sys.argv[1], json.loads(sys.argv[2])
found = [entry for entry in metadata.entry_points(group="gateway") if entry.name == name]
answer = {"owners": [entry.dist.name for entry in found]}
if len(found) == 1:
    from gateway.plugins import load_plugins
    plugins = load_plugins(strict=False)
    answer["failures"] = [each.reason for each in plugins.failures if each.plugin.name == name]
    own = [offer for offer in plugins.offers() if offer.plugin == name]
    answer["offers"] = [f"{offer.kind} {offer.name}" for offer in own]
    loaded = plugins.hook.gateway_response_finished.get_hookimpls
    others = [
        spec for spec in ("gateway_model_profile", "gateway_response_finished")
        for each in getattr(plugins.hook, spec).get_hookimpls() if each.plugin_name == name
    ]
    answer["hooks"] = others
    # Alone: what other plugins import is not this one's fault.
    before = set(sys.modules)
answer["heavy"] = []
print(json.dumps(answer))
"""

_IMPORTS = """
import json, sys
from importlib import metadata
name, heavy = sys.argv[1], json.loads(sys.argv[2])
(entry,) = [each for each in metadata.entry_points(group="gateway") if each.name == name]
entry.load()
print(json.dumps([each for each in heavy if each in sys.modules]))
"""

"""The list of models in Codex's own format, which gives the context window and the inputs of each model.

Codex requests `GET /v1/models?client_version=…` if its provider has a `model_catalog_url` and its feature
`api_key_model_discovery` is on. It then knows only these models, and not even its built-in ones. The members are those
of `ModelInfo` in Codex 0.169; earlier releases ignore unknown members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gateway.wire.common import JsonObject
from gateway.wire.response import ModelObject

_INSTRUCTIONS: Final = """\
You are Codex, a coding agent. You and the user share one workspace, and you work in it until the task is done.

Look before you change: read the files that matter, and follow their style and the instructions in AGENTS.md files. Run commands with \
the shell tool, and prefer `rg` for searching. Change files with apply_patch, in small steps, and leave what the task does not concern. \
Check what you did: run the tests, or the program. Do not commit, and undo no change of the user, unless you are asked to.

Say shortly what you are about to do before you call tools, and at the end what you did, what you checked, and what is left open. If a \
command fails, read its output and find the cause. Ask only if you cannot go on without an answer."""
"""The model's base instructions. Codex requires them in each entry, and adds the instructions of its tools."""
_EFFORTS: Final = {
    "low": "Fast, with little reasoning",
    "medium": "Balanced",
    "high": "Thorough, with more reasoning",
}


def codex_catalogue(models: Iterable[ModelObject]) -> list[JsonObject]:
    """An entry for each generating model, followed by entries for its aliases."""
    names = [
        (name, model)
        for model in models
        if not model.capabilities or "generation" in model.capabilities
        for name in (model.id, *(model.aliases or ()))
    ]
    return [_entry(name, model, place) for place, (name, model) in enumerate(names)]


def _entry(name: str, model: ModelObject, priority: int) -> JsonObject:
    capabilities: Sequence[str] = model.capabilities or ()
    modalities = ["text", "image"] if "images" in capabilities else ["text"]
    return {
        "slug": name,
        "display_name": name,
        "description": model.description or None,
        "default_reasoning_level": "medium",
        "supported_reasoning_levels": [
            {"effort": effort, "description": text} for effort, text in _EFFORTS.items()
        ],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "upgrade": None,
        "base_instructions": _INSTRUCTIONS,
        "supports_reasoning_summaries": True,
        "supports_reasoning_summary_parameter": True,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",
        "truncation_policy": {"mode": "tokens", "limit": 10_000},
        "supports_parallel_tool_calls": True,
        "supports_search_tool": True,
        "multi_agent_version": "v2",
        "context_window": model.max_model_len or None,
        "experimental_supported_tools": [],
        "input_modalities": modalities,
    }

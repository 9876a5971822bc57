"""What to say of a path that is not served: which table of the configuration serves it, or what is wrong with the client's `base_url`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gateway.packages import how_to_install, package_of

_TABLES: Final = {
    "files": ("files", "[resources.files]"),
    "vector_stores": ("file_search", "[tools.file_search]"),
    "containers": ("containers", "[tools.container] or [tools.python]"),
    "batches": ("batches", "[apis.batches] and a table [resources.files]"),
    "prompts": ("prompts", "[apis.prompts]"),
    "messages": ("messages", "[apis.messages]"),
}
"""By the first part of the path below `/v1`: the API that serves it, and the table that selects it."""
_ABSENT: Final = frozenset(
    [
        "assistants",
        "audio",
        "evals",
        "fine_tuning",
        "images",
        "moderations",
        "organization",
        "realtime",
        "threads",
        "uploads",
        "videos",
    ]
)
"""Parts of OpenAI's API that the gateway does not have."""
_BELOW_V1: Final = frozenset(
    ("responses", "chat", "completions", "embeddings", "models", "conversations", *_TABLES)
)


def unknown_url_hint(path: str, served: Collection[str]) -> str:
    """A sentence about `path`, after a space, or nothing. `served`: the names of the further APIs that are served."""
    parts = path.strip("/").split("/")
    if parts[:2] == ["v1", "v1"]:
        return " The path begins with /v1 twice: leave one of them out of the client's base_url."
    if parts[0] != "v1":
        if parts[0] in _BELOW_V1:
            return " The API is below /v1: the client's base_url must end with /v1."
        return ""
    part = parts[1] if len(parts) > 1 else ""
    if part in _ABSENT:
        return f" Litegate has no /v1/{part}."
    if part not in _TABLES:
        return ""
    name, table = _TABLES[part]
    if name in served:
        return ""
    return (
        f" It is served if gateway.toml has a table {table}, and server.apis, if set, names '{name}'."
        f"{how_to_install(package_of('api', name))}"
    )

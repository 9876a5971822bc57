"""Hints for paths that are not served: which table of the configuration enables them, or what is wrong with the
client's `base_url`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gateway.base.packages import how_to_install, package_of

_TABLES: Final = {
    "files": ("files", "[resources.files]"),
    "uploads": ("files", "[resources.files]"),
    "vector_stores": ("file_search", "[tools.file_search]"),
    "containers": ("containers", "[tools.container] or [tools.python]"),
    "batches": ("batches", "[apis.batches] and a table [resources.files]"),
    "prompts": ("prompts", "[apis.prompts]"),
    "messages": ("messages", "[apis.messages]"),
}
"""Maps the first part of a path below `/v1` to the API that serves it, and to the table that selects that API."""
_IN_PLACE_OF_ASSISTANTS: Final = "/v1/responses and /v1/conversations are in its place."
_ABSENT: Final = {
    "agents": "",
    "assistants": _IN_PLACE_OF_ASSISTANTS,
    "audio": "Models with 'audio' among their capabilities take sounds as input_audio parts.",
    "chatkit": "",
    "content_provenance_checks": "",
    "decisions": "",
    "evals": "",
    "fine_tuning": "Engines serve adapters that were trained elsewhere, as models.",
    "images": "Models with 'images' among their capabilities take images as input_image parts; none makes any.",
    "live": "",
    "moderations": "A policy plugin can check requests and answers.",
    "realtime": "/v1/responses takes WebSocket connections, for text.",
    "safety": "",
    "skills": "",
    "threads": _IN_PLACE_OF_ASSISTANTS,
    "vaults": "",
    "videos": "",
    "webhook_endpoints": "Background responses are polled, or followed by GET /v1/responses/{id}?stream=true.",
}
"""Maps the first part of a path below `/v1`, for parts of OpenAI's API that the gateway does not have, to a hint about
what it offers instead."""
_OTHER_SERVERS: Final = {
    "api": "The own APIs of Ollama and LM Studio are not here: set the client to an OpenAI-compatible server, with a base_url that ends with /v1.",
    "completion": "/v1/completions is in its place.",
    "openai": "Azure's paths are not here: use the client of OpenAI itself, with a base_url that ends with /v1.",
}
"""Maps the first part of a path that other servers have to a hint about what to use instead."""
_ORGANIZATION: Final = (
    " Of /v1/organization, Litegate has usage/completions, usage/embeddings and costs."
)
_ENDPOINTS: Final = ("chat/completions", "completions", "responses", "embeddings", "messages")
"""Paths below `/v1` that clients append to their `base_url`."""
_BELOW_V1: Final = frozenset(
    ("responses", "chat", "completions", "embeddings", "models", "conversations", *_TABLES)
)


def appended_path_hint(path: str) -> str:
    """A hint, preceded by a space, if the client has appended a path to a `base_url` that already has one; otherwise
    empty."""
    for first in _ENDPOINTS:
        if path.rstrip("/") in (f"/v1/{first}/{each}" for each in _ENDPOINTS):
            return f" The client appends the path itself: its base_url must end with /v1, without /{first}."
    return ""


def unknown_url_hint(path: str, served: Collection[str]) -> str:
    """A hint about `path`, preceded by a space; empty if there is none. `served`: the names of the further APIs that
    are served."""
    parts = path.strip("/").split("/")
    if parts[:2] == ["v1", "v1"]:
        return " The path begins with /v1 twice: leave one of them out of the client's base_url."
    if parts == [""]:
        return " The API is below /v1."
    if parts[0] != "v1":
        if parts[0] in _BELOW_V1:
            return " The API is below /v1: the client's base_url must end with /v1."
        return f" {_OTHER_SERVERS[parts[0]]}" if parts[0] in _OTHER_SERVERS else ""
    if parts[1:3] == ["messages", "batches"]:
        return " Litegate has no batches of Messages. /v1/batches runs those of the other APIs."
    if hint := appended_path_hint(path):
        return hint
    part = parts[1] if len(parts) > 1 else ""
    if part in _OTHER_SERVERS:
        return f" {_OTHER_SERVERS[part]}"
    if part == "organization":
        return _ORGANIZATION
    if part in _ABSENT:
        return f" Litegate has no /v1/{part}. {_ABSENT[part]}".rstrip()
    if part not in _TABLES:
        return ""
    name, table = _TABLES[part]
    if name in served:
        return ""
    return (
        f" It is served if gateway.toml has a table {table}, and server.apis, if set, names '{name}'."
        f"{how_to_install(package_of('api', name))}"
    )

"""The packages of this project and the implementations that each offers, for messages about packages to install."""

from __future__ import annotations

from importlib import metadata
from typing import Final

_OFFERS: Final = {
    ("api", "batches"): "litegate-batches",
    ("api", "console"): "litegate-console",
    ("api", "containers"): "litegate-container",
    ("api", "file_search"): "litegate-file-search",
    ("api", "files"): "litegate-files",
    ("api", "messages"): "litegate-messages",
    ("api", "prompts"): "litegate-prompts",
    ("authenticator", "oidc"): "litegate-oidc",
    ("command", "chat"): "litegate-chat",
    ("command", "conform"): "litegate-conform",
    ("command", "doctor"): "litegate-doctor",
    ("engine", "llamacpp"): "litegate-llamacpp",
    ("engine", "openai"): "litegate-openai",
    ("engine", "remote"): "litegate-remote",
    ("engine", "scripted"): "litegate-scripted",
    ("engine", "trtllm"): "litegate-trtllm",
    ("engine", "vllm"): "litegate-vllm",
    ("parser", "gpt-oss"): "litegate-harmony",
    ("parser", "gpt_oss"): "litegate-harmony",
    ("parser", "harmony"): "litegate-harmony",
    ("parser", "native"): "litegate-openai",
    ("parser", "openai"): "litegate-harmony",
    ("parser", "openai_gptoss"): "litegate-harmony",
    ("policy", "redact"): "litegate-redact",
    ("renderer", "chat_template"): "litegate-chat-template",
    ("renderer", "gpt_oss"): "litegate-harmony",
    ("renderer", "harmony"): "litegate-harmony",
    ("renderer", "openai"): "litegate-openai",
    ("resource", "containers"): "litegate-container",
    ("resource", "files"): "litegate-files",
    ("store", "memory"): "litegate-memory",
    ("store", "postgres"): "litegate-postgres",
    ("store", "redis"): "litegate-redis",
    ("store", "sqlite"): "litegate-sqlite",
    ("tool", "browser"): "litegate-browser",
    ("tool", "container"): "litegate-container",
    ("tool", "file_search"): "litegate-file-search",
    ("tool", "mcp"): "litegate-mcp",
    ("tool", "python"): "litegate-python",
}
_OTHER_NAMES: Final = {
    ("api", "anthropic"): "messages",
    ("api", "vector_stores"): "file_search",
    ("engine", "llama.cpp"): "llamacpp",
    ("engine", "ollama"): "remote",
    ("engine", "sglang"): "remote",
    ("engine", "tensorrt_llm"): "trtllm",
    ("store", "valkey"): "redis",
    ("tool", "code_interpreter"): "python",
    ("tool", "retrieval"): "file_search",
    ("tool", "shell"): "container",
    ("tool", "search"): "browser",
    ("tool", "web_search"): "browser",
    ("tool", "web_search_preview"): "browser",
}
"""Other names by which users know an offer, such as OpenAI's tool types."""
_FORMATS: Final = "litegate-parsers"
"""The package with the output formats of most model families, under about a hundred names."""

_HOOKS: Final = {"litegate-otel": "otel"}
"""Packages that register no named offer, with the names of their plugins. They are active if they are installed."""

WITHOUT_PLUGIN: Final = ("litegate-sql", "litegate-testing")
"""Packages that register no plugin: the common base of the SQL stores, and the contract kits."""

PACKAGES: Final = tuple(sorted({*_OFFERS.values(), _FORMATS, *_HOOKS, *WITHOUT_PLUGIN}))
"""The names of this project's packages, without the core package."""


LOCAL: Final = frozenset(
    f"litegate-{name}"
    for name in (
        "batches",
        "chat",
        "chat-template",
        "conform",
        "console",
        "doctor",
        "files",
        "harmony",
        "llamacpp",
        "memory",
        "messages",
        "openai",
        "parsers",
        "prompts",
        "remote",
        "sqlite",
        "vllm",
    )
)
"""The packages that the extra `litegate[local]` installs."""


def package_of(kind: str, name: str) -> str | None:
    """The package to install for the offer `name`; for an unknown parser, the package with most output formats.

    None if no package of this project offers it, or if the package is already installed.
    """
    package = package_with(kind, name) or (_FORMATS if kind == "parser" else None)
    return None if package is None or is_installed(package) else package


def package_with(kind: str, name: str) -> str | None:
    """The package of this project that offers `name`, installed or not.

    None if there is none, and for the output formats of `litegate-parsers`, which are not listed by name.
    """
    return _OFFERS.get((kind, name))


def names_of(kind: str) -> list[str]:
    """The names of that kind that this project's packages offer, installed or not, except those of
    `litegate-parsers`."""
    return [name for of, name in _OFFERS if of == kind]


def other_names_of(kind: str) -> dict[str, str]:
    """Maps other names that users know, such as `web_search`, to the names of the offers of that kind."""
    return {name: offer for (of, name), offer in _OTHER_NAMES.items() if of == kind}


def offers_of(package: str) -> list[tuple[str, str]]:
    """The kinds and names of the offers of a package. For `litegate-parsers`, one entry with the name `-`."""
    if package == _FORMATS:
        return [("parser", "-")]
    if package in _HOOKS:
        return [("hooks", _HOOKS[package])]
    return [key for key, each in _OFFERS.items() if each == package]


def is_installed(package: str) -> bool:
    """Whether the package is installed in this environment."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def how_to_install(package: str | None) -> str:
    """A sentence with the command that installs `package`, preceded by a space; empty if `package` is None."""
    if package is None:
        return ""
    command = f" `pip install {package}` installs it"
    if package in LOCAL:
        command += ", and `pip install 'litegate[local]'` all that one machine needs"
    return f"{command}."

"""The packages of this project: which one offers what, for messages about what is not installed."""

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
"""Names that people know an offer by, such as OpenAI's types of tools."""
_FORMATS: Final = "litegate-parsers"
"""Offers the output formats of most model families, under about a hundred names."""

_HOOKS: Final = {"litegate-otel": "otel"}
"""Packages that offer nothing by name, with the names of their plugins: they run if they are installed."""

WITHOUT_PLUGIN: Final = ("litegate-sql", "litegate-testing")
"""Packages that register no plugin: the base of several stores, and the contract kits."""

PACKAGES: Final = tuple(sorted({*_OFFERS.values(), _FORMATS, *_HOOKS, *WITHOUT_PLUGIN}))
"""The names of this project's packages other than the core."""


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
    """The package of this project that offers `name`; for a parser, the one with most formats. None if there is none, or if
    it is installed."""
    package = package_with(kind, name) or (_FORMATS if kind == "parser" else None)
    return None if package is None or is_installed(package) else package


def package_with(kind: str, name: str) -> str | None:
    """The package of this project that offers `name`, installed or not. None if there is none, and for formats of the one with most."""
    return _OFFERS.get((kind, name))


def names_of(kind: str) -> list[str]:
    """The names of that kind that packages of this project offer, installed or not; of parsers, none."""
    return [name for of, name in _OFFERS if of == kind]


def other_names_of(kind: str) -> dict[str, str]:
    """Other names that people know offers of that kind by, such as `web_search`, each with the name of the offer."""
    return {name: offer for (of, name), offer in _OTHER_NAMES.items() if of == kind}


def offers_of(package: str) -> list[tuple[str, str]]:
    """Kind and name of what a package of this project offers; for the one with most formats, none of their names."""
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
    """A sentence with the command that installs `package`, after a space; empty without one."""
    if package is None:
        return ""
    command = f" `pip install {package}` installs it"
    if package in LOCAL:
        command += ", and `pip install 'litegate[local]'` all that one machine needs"
    return f"{command}."

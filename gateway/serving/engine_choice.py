"""Which engine serves a model whose configuration names none."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from gateway.errors import ConfigurationError
from gateway.plugins import PluginSet

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?\Z")
_WEIGHT_ENGINES = {"vllm": "vllm", "trtllm": "tensorrt_llm"}
"""Engines for Hugging Face models, the preferred first, and the library that each is useless without."""


def choose_engine(path: str | None, plugins: PluginSet) -> tuple[str, str]:
    """The engine for a model that names none, and why. Raises `ConfigurationError` if none fits that is installed."""
    installed = plugins.names("engine")
    if path is None:
        return _installed(
            "llamacpp",
            "no path is set, and this engine brings a model of its own",
            installed,
            plugins,
        )
    if path.startswith(("http://", "https://")):
        return _installed("remote", "the model is a URL", installed, plugins)
    place = Path(path).expanduser()
    if path.endswith(".gguf") and not place.exists():
        raise ConfigurationError(f"there is no file {path!r}.")
    if place.is_file():
        if not _is_gguf(place):
            raise ConfigurationError(
                f"{path!r} is not a GGUF file; give a GGUF file, a folder of weights or a hub id."
            )
        return _installed("llamacpp", "the model is a GGUF file", installed, plugins)
    if place.is_dir():
        if not (place / "config.json").exists() and not any(place.glob("*.safetensors")):
            files = sorted(each.name for each in place.glob("*.gguf"))
            hint = f"; give one of its GGUF files: {', '.join(files)}." if files else "."
            raise ConfigurationError(
                f"the folder {path!r} has neither config.json nor safetensors{hint}"
            )
        what = "the model is a folder of Hugging Face weights"
    elif _HUB_ID.match(path):
        what = "the model is a hub id"
    else:
        raise ConfigurationError(f"there is no file or folder {path!r}, and it is no hub id.")
    candidates = [name for name in _WEIGHT_ENGINES if name in installed]
    ready = [name for name in candidates if _importable(_WEIGHT_ENGINES[name])]
    for name in ready or candidates:
        return name, what
    return _installed(next(iter(_WEIGHT_ENGINES)), what, installed, plugins)


def _installed(name: str, why: str, installed: list[str], plugins: PluginSet) -> tuple[str, str]:
    if name in installed:
        return name, why
    if any(failure.plugin.name == name for failure in plugins.failures):
        plugins.engine(name)  # raises with the reason
    known = f", or name one of the installed engines: {', '.join(installed)}" if installed else ""
    raise ConfigurationError(
        f"the engine {name!r} is not installed ({why}): install litegate-{name}{known}."
    )


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False

"""Chooses the engine of a model whose configuration names none."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

from gateway.base.errors import ConfigurationError
from gateway.base.packages import how_to_install, package_of
from gateway.config.hub_names import HubName, hub_name_of
from gateway.models.hub.client import Hub
from gateway.models.hub.fetching import gguf_repository_for, is_gguf_repository
from gateway.models.hub.folders import models_in_folder
from gateway.plugins.loading import PluginSet

_WEIGHT_ENGINES = {"vllm": "vllm", "trtllm": "tensorrt_llm"}
"""Maps the engines for Hugging Face models, in order of preference, to the library that each requires."""

HUB_ENGINES = ("llamacpp", *_WEIGHT_ENGINES)
"""Engines whose models may be given by a name on the hub."""

_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}(?:[/#].*)?\Z", re.ASCII)


def choose_engine(
    path: str | None, plugins: PluginSet, hub: Callable[[], Hub] = Hub.from_environment
) -> tuple[str, str]:
    """The engine for a model whose configuration names none, and the reason. Raises `ConfigurationError` if no
    installed engine fits.

    Blocks while it looks up a repository on the hub. This only happens if the repository's name does not show whether
    it has GGUF files, and no installed engine loads safetensors.
    """
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
    if (name := hub_name_of(path)) is not None:
        return _for_hub(name, installed, plugins, hub)
    if path.endswith(".gguf") and not place.exists():
        raise ConfigurationError(f"there is no file {path!r}.")
    if place.is_file():
        if not _is_gguf(place):
            raise ConfigurationError(
                f"{path!r} is not a GGUF file; give a GGUF file, a folder of weights or a name of the hub."
            )
        return _installed("llamacpp", "the model is a GGUF file", installed, plugins)
    if not place.is_dir() and _HOST_AND_PORT.match(path):
        raise ConfigurationError(
            f"there is no file or folder {path!r}. The address of a server begins with http:// or https://, as "
            f"http://{path}."
        )
    if not place.is_dir():
        raise ConfigurationError(
            f"there is no file or folder {path!r}, and it is not a name of the hub, such as owner/repository or "
            "owner/repository-GGUF:Q4_K_M."
        )
    if not (place / "config.json").exists() and not any(place.glob("*.safetensors")):
        files = [each.name for each in models_in_folder(place)]
        if len(files) == 1:
            why = "the model is a folder with a GGUF file"
            return _installed("llamacpp", why, installed, plugins)
        if files:
            raise ConfigurationError(
                f"the folder {path!r} has several GGUF files; give one of them: {', '.join(files)}."
            )
        raise ConfigurationError(
            f"the folder {path!r} has neither config.json, safetensors nor a GGUF file."
        )
    what = "the model is a folder of Hugging Face weights"
    ready, candidates = _weight_engines(installed)
    for engine in ready or candidates:
        return engine, what
    return _installed(next(iter(_WEIGHT_ENGINES)), what, installed, plugins)


def _for_hub(
    name: HubName, installed: list[str], plugins: PluginSet, hub: Callable[[], Hub]
) -> tuple[str, str]:
    """The engine for a model on the hub, and the reason."""
    gguf = "the model is GGUF files of the hub"
    if name.names_gguf:
        return _installed("llamacpp", gguf, installed, plugins)
    ready, candidates = _weight_engines(installed)
    if ready:
        return ready[0], "the model is a repository of the hub"
    if "llamacpp" in installed:
        if is_gguf_repository(name, hub()):
            return "llamacpp", gguf
        other = gguf_repository_for(name, hub())
        example = f"as {other}" if other is not None else "most of which end in -GGUF"
        raise ConfigurationError(
            f"{name} has safetensors, which vLLM loads (pip install vllm); llamacpp, which is installed, loads GGUF files: "
            f"name a repository of those, {example}."
        )
    what = "the model is a repository of the hub"
    return _installed((candidates or [*_WEIGHT_ENGINES])[0], what, installed, plugins)


def _weight_engines(installed: list[str]) -> tuple[list[str], list[str]]:
    """The installed engines for Hugging Face weights: those whose libraries are also installed, and all of them."""
    candidates = [name for name in _WEIGHT_ENGINES if name in installed]
    return [name for name in candidates if _importable(_WEIGHT_ENGINES[name])], candidates


def _installed(name: str, why: str, installed: list[str], plugins: PluginSet) -> tuple[str, str]:
    if name in installed:
        return name, why
    if any(failure.plugin.name == name for failure in plugins.failures):
        plugins.engine(name)  # raises with the reason
    known = f" Or name one of the installed engines: {', '.join(installed)}." if installed else ""
    raise ConfigurationError(
        f"the engine {name!r} is not installed ({why})."
        + how_to_install(package_of("engine", name))
        + known
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

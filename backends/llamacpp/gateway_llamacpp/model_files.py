"""Which files make up a model for llama.cpp: the GGUF file, its multimodal projector, its LoRA adapters."""

from __future__ import annotations

from pathlib import Path

from gateway.sdk import ConfigurationError
from gateway.sdk.hub import (
    Hub,
    fetch_gguf,
    hub_name_of,
    in_thread,
    models_in_folder,
    projector_in_folder,
)
from gateway_llamacpp.config import LlamaCppConfig

TINY_MODEL = Path(__file__).parent / "models" / "tiny-qwen3.gguf"
"""The model that comes with this package."""


async def model_files(config: LlamaCppConfig, path: str | None) -> tuple[Path, Path | None]:
    """The GGUF file of the model and its multimodal projector, if it has one. A model of the hub is downloaded."""
    name = None if path is None else hub_name_of(path)
    if name is None:
        return model_file(path), projector_file(config, path)
    hub = Hub.from_environment()
    files = await in_thread(lambda stop: fetch_gguf(name, hub, stop))
    return files.model, projector_file(config, path) or files.projector


def projector_file(config: LlamaCppConfig, path: str | None) -> Path | None:
    """The configured projector, or the only one in the model's folder, if the folder has no other model.

    Raises `ConfigurationError` if the configured one is not a file.
    """
    if config.mmproj is None:
        if path is None:
            return None
        place = Path(path).expanduser()
        return projector_in_folder(place if place.is_dir() else place.parent)
    file = Path(config.mmproj).expanduser()
    if not file.is_file():
        raise ConfigurationError(f"mmproj: there is no file {file}.")
    return file


def model_file(path: str | None) -> Path:
    """The GGUF file at `path`: a file, or a folder with a single (possibly split) model; None: the bundled tiny
    model."""
    if path is None:
        return TINY_MODEL
    found = Path(path).expanduser()
    if found.is_dir():
        models = models_in_folder(found)
        if not models:
            raise ConfigurationError(f"The folder {path} has no complete GGUF model.")
        if len(models) > 1:
            raise ConfigurationError(
                f"The folder {path} has {len(models)} GGUF models; name the file that llamacpp shall load."
            )
        return models[0]
    if not found.is_file():
        raise ConfigurationError(
            f"There is no file {path}; llamacpp loads a GGUF file, or GGUF files of the hub (owner/repository-GGUF)."
        )
    return found


def adapter_files(config: LlamaCppConfig) -> dict[str, Path]:
    """Paths of the LoRA adapters. Raises `ConfigurationError` if one is not a file."""
    files = {name: Path(path).expanduser() for name, path in config.lora_modules.items()}
    for name, file in files.items():
        if not file.is_file():
            raise ConfigurationError(
                f"lora_modules: there is no file {file} for the adapter '{name}'; llama.cpp takes adapters as GGUF files."
            )
    return files

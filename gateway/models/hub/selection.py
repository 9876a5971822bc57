"""Choosing the files of a model in a repository: GGUF files of one quantization, or safetensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.config.hub_names import HubName
from gateway.config.tables import nearest
from gateway.models.hub.repository import Repository, RepositoryFile

DEFAULT_QUANTS = ("Q4_K_M", "UD-Q4_K_XL", "Q4_K_S", "Q4_K_L", "Q4_0", "MXFP4", "MXFP4_MOE", "IQ4_XS", "IQ4_NL", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "Q3_K_M")  # fmt: skip
"""Quantizations in order of preference, for names without a quantization."""
PROJECTOR_TYPES = ("F16", "BF16", "Q8_0", "F32")
"""Types of multimodal projectors in order of preference."""

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf\Z")
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])(?:UD-)?(?:I?Q[1-9](?:_[0-9A-Z]+)*|TQ[1-9]_[0-9]|BF16|FP?16|FP?32|MXFP4(?:_MOE)?|NVFP4)",
    re.IGNORECASE,
)
_OTHER = re.compile(r"mmproj|imatrix|(?:\A|[-_.])lora(?:[-_.]|\Z)", re.IGNORECASE)
"""GGUF files that are not language models: projectors, importance matrices, adapters."""
_PYTORCH = re.compile(r"pytorch_model(?:-\d+-of-\d+)?\.bin\Z")
_MODULE = re.compile(r"\d+_\w+/(?:config\.json|model\.safetensors)\Z", re.ASCII)
"""Files of the additional modules of an embedding model, such as its pooling."""
_BESIDE_WEIGHTS = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".py")
"""Suffixes of the configuration and tokenizer files that are needed with safetensors."""


class GgufModel(Struct, frozen=True):
    """A model in GGUF format."""

    quant: str | None
    """Its quantization according to the file name; None if the name contains none."""
    files: tuple[RepositoryFile, ...]
    """One file, or all parts of a split file in order."""

    @property
    def name(self) -> str:
        """Path of the file, or of its first part."""
        return self.files[0].name

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(file.size for file in self.files)


def gguf_models(repository: Repository) -> list[GgufModel]:
    """The complete models in GGUF format."""
    whole: list[GgufModel] = []
    parts: dict[tuple[str, int], dict[int, RepositoryFile]] = {}
    for file in _gguf_files(repository):
        if _OTHER.search(_base(file.name)):
            continue
        split = _SPLIT.match(file.name)
        if split is None:
            whole.append(GgufModel(quant_of(file.name), (file,)))
        else:
            parts.setdefault((split["stem"], int(split["parts"])), {})[int(split["part"])] = file
    for (stem, count), found in parts.items():
        if len(found) == count and set(found) == set(range(1, count + 1)):
            ordered = tuple(found[number] for number in sorted(found))
            whole.append(GgufModel(quant_of(f"{stem}.gguf"), ordered))
    return sorted(whole, key=lambda model: (model.size, model.name))


def quant_of(path: str) -> str | None:
    """The quantization in the name of a GGUF file or, if there is none, of its folder, in capitals."""
    for part in reversed(path.removesuffix(".gguf").split("/")):
        found = _QUANT.findall(part)
        if found:
            last: str = found[-1]
            return last.upper()
    return None


def choose_gguf(repository: Repository, name: HubName) -> GgufModel:
    """The model that `name` selects. If `name` has no quantization, the first of `DEFAULT_QUANTS` that the repository
    has is chosen, otherwise the smallest model.

    Raises `ConfigurationError`, with a list of the available models, if none or several match.
    """
    models = gguf_models(repository)
    if name.file is not None:
        return _by_file(repository, models, name)
    if not models:
        raise ConfigurationError(_no_gguf(repository))
    if name.quant is not None:
        wanted = name.quant.upper()
        fitting = _of_quant(models, wanted) or _of_quant(models, f"UD-{wanted}")
        if not fitting:
            raise ConfigurationError(_no_quant(name, models))
    else:
        found = (_of_quant(models, each) for each in DEFAULT_QUANTS)
        fitting = next((each for each in found if each), models[:1])
    if len(fitting) > 1:
        files = ", ".join(model.name for model in fitting)
        raise ConfigurationError(
            f"{name} means several models: {files}; name one of these files, as in {name.repo}/{fitting[0].name}."
        )
    return fitting[0]


def choose_projector(repository: Repository, model: GgufModel) -> RepositoryFile | None:
    """The multimodal projector for `model`, from its folder or a folder above. The nearest one is preferred, then the
    first type of `PROJECTOR_TYPES`."""
    folder = model.name.rpartition("/")[0]
    found = [
        file
        for file in _gguf_files(repository)
        if is_projector(file.name)
        and f"{folder}/".startswith(f"{file.name.rpartition('/')[0]}/".lstrip("/"))
    ]
    return min(found, key=_projector_rank, default=None)


def is_projector(path: str) -> bool:
    """Whether the name of a GGUF file says that it is a multimodal projector."""
    return path.endswith(".gguf") and "mmproj" in _base(path).lower()


def choose_weights(repository: Repository) -> tuple[RepositoryFile, ...]:
    """The safetensors of a Hugging Face model (its PyTorch weights if it has none), with its configuration and
    tokenizer.

    Raises `ConfigurationError`, with a list of the available files, if the repository has no weights.
    """
    top = [file for file in repository.files if "/" not in file.name]
    weights = [file for file in top if file.name.endswith(".safetensors")]
    # Repositories of Mistral contain the same weights a second time, in Mistral's format.
    weights = [file for file in weights if not file.name.startswith("consolidated")] or weights
    weights = weights or [file for file in top if _PYTORCH.match(file.name)]
    if not weights:
        models = gguf_models(repository)
        hint = (
            f"it has GGUF files, which llamacpp loads: {_listed(models)}."
            if models
            else "name another repository."
        )
        raise ConfigurationError(f"{repository.repo} has no safetensors; {hint}")
    beside = [
        file
        for file in repository.files
        if _MODULE.match(file.name)
        or ("/" not in file.name and file.name.endswith(_BESIDE_WEIGHTS))
    ]
    return tuple(weights + beside)


def has_weights(repository: Repository) -> bool:
    """Whether the repository contains a Hugging Face model with safetensors."""
    return any(
        "/" not in file.name and file.name.endswith(".safetensors") for file in repository.files
    )


def _projector_rank(file: RepositoryFile) -> tuple[int, int, str]:
    quant = quant_of(_base(file.name))
    known = PROJECTOR_TYPES.index(quant) if quant in PROJECTOR_TYPES else len(PROJECTOR_TYPES)
    return -file.name.count("/"), known, file.name


def _gguf_files(repository: Repository) -> Iterable[RepositoryFile]:
    return (file for file in repository.files if file.name.endswith(".gguf"))


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _of_quant(models: Sequence[GgufModel], quant: str) -> list[GgufModel]:
    return [model for model in models if model.quant == quant]


def _by_file(repository: Repository, models: Sequence[GgufModel], name: HubName) -> GgufModel:
    for model in models:
        if any(file.name == name.file for file in model.files):
            return model
    names = [model.name for model in models]
    near = nearest(name.file or "", names)
    if near is not None:
        raise ConfigurationError(
            f"{repository.repo} has no complete model {name.file!r}; did you mean {name.repo}/{near}?"
        )
    if not names:
        raise ConfigurationError(_no_gguf(repository))
    raise ConfigurationError(
        f"{repository.repo} has no complete model {name.file!r}; it has {', '.join(names)}."
    )


def _no_gguf(repository: Repository) -> str:
    if has_weights(repository):
        return (
            f"{repository.repo} has no complete GGUF model; it has safetensors, which vLLM and TensorRT-LLM load. "
            "For llamacpp, name a repository of GGUF files."
        )
    return f"{repository.repo} has no complete GGUF model; name another repository."


def _no_quant(name: HubName, models: Sequence[GgufModel]) -> str:
    quants = [model.quant for model in models if model.quant is not None]
    near = nearest(name.quant or "", quants)
    hint = f"; did you mean {name.repo}:{near}?" if near is not None else "."
    return f"{name.repo} has no {name.quant}{hint} It has {_listed(models)}."


def _listed(models: Sequence[GgufModel]) -> str:
    return ", ".join(dict.fromkeys(model.quant or model.name for model in models))

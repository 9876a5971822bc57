"""Finding the files of a model by name: on the hub, from where they are downloaded, or in the cache."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.config.hub_names import HubName, hub_name_of
from gateway.config.tables import nearest
from gateway.models.hub.cache import cached_path, cached_repositories, cached_repository
from gateway.models.hub.client import (
    Hub,
    HubAnswerInvalid,
    HubRefusal,
    HubUnreachable,
    refusal_sentence,
)
from gateway.models.hub.progress import human_size
from gateway.models.hub.repository import Repository, RepositoryFile
from gateway.models.hub.selection import (
    choose_gguf,
    choose_projector,
    choose_weights,
    gguf_models,
    has_weights,
)
from gateway.models.hub.transfer import download, missing_bytes

logger = logging.getLogger("gateway.models.hub")
T = TypeVar("T")


class GgufFiles(Struct, frozen=True, kw_only=True):
    """A GGUF model in the cache."""

    name: str
    """Its full name, with the quantization: `owner/repo:Q4_K_M`."""
    model: Path
    """The file, or the first part of a split file; the other parts are in the same folder."""
    projector: Path | None
    """Its multimodal projector, if the repository has one."""
    size: int
    """Total size in bytes."""


class WeightFiles(Struct, frozen=True, kw_only=True):
    """A Hugging Face model in the cache."""

    folder: Path
    """The folder with its safetensors, configuration and tokenizer."""
    size: int
    """Total size in bytes."""


def fetch_gguf(name: HubName, hub: Hub, stop: threading.Event | None = None) -> GgufFiles:
    """Download the files of the GGUF model that `name` selects, with its projector, if they are not cached.

    Blocks. If the hub cannot be reached, cached files are used. Raises `ConfigurationError`, with a sentence that says
    what to do, and `gateway.models.hub.transfer.DownloadStopped` once `stop` is set.
    """
    repository, cached = _look_up(name, hub)
    model = _within_cache(hub, cached, lambda: choose_gguf(repository, name))
    projector = choose_projector(repository, model)
    whole = str(name) if name.file or not model.quant else f"{name.repo}:{model.quant}"
    files = [*model.files, *([projector] if projector is not None else [])]
    paths = _fetch(name, hub, repository, files, whole, cached=cached, stop=stop)
    return GgufFiles(
        name=whole,
        model=paths[0],
        projector=paths[-1] if projector is not None else None,
        size=sum(file.size for file in files),
    )


def fetch_weights(name: HubName, hub: Hub, stop: threading.Event | None = None) -> WeightFiles:
    """Like `fetch_gguf`, for the safetensors of a Hugging Face model."""
    repository, cached = _look_up(name, hub)
    files = _within_cache(hub, cached, lambda: choose_weights(repository))
    paths = _fetch(name, hub, repository, files, str(name), cached=cached, stop=stop)
    return WeightFiles(folder=paths[0].parent, size=sum(file.size for file in files))


def look_up(name: HubName, hub: Hub) -> str:
    """A text that says how large the model selected by `name` is, and whether it must be downloaded. Downloads nothing.

    Raises `ConfigurationError` like `fetch_gguf`.
    """
    repository, cached = _look_up(name, hub)
    if name.names_gguf or (not has_weights(repository) and gguf_models(repository)):
        model = choose_gguf(repository, name)
        projector = choose_projector(repository, model)
        files = [*model.files, *([projector] if projector is not None else [])]
    else:
        files = [*choose_weights(repository)]
    size = human_size(sum(file.size for file in files))
    left = 0 if cached else missing_bytes(hub, repository, files)
    return f"{size}, in the cache" if not left else f"{size}, {human_size(left)} to be downloaded"


def fetch(name: HubName, hub: Hub) -> GgufFiles | WeightFiles:
    """Download the model that `name` selects: a GGUF model if `name` specifies one, or if the repository has no
    safetensors; otherwise the safetensors."""
    if name.names_gguf or is_gguf_repository(name, hub):
        return fetch_gguf(name, hub)
    return fetch_weights(name, hub)


def is_gguf_repository(name: HubName, hub: Hub) -> bool:
    """Whether a repository has GGUF models and no safetensors. Raises `ConfigurationError` like `fetch_gguf`."""
    repository, _ = _look_up(name, hub)
    return not has_weights(repository) and gguf_models(repository) != []


def gguf_repository_for(name: HubName, hub: Hub) -> str | None:
    """The name of a repository on the hub whose name says that it has GGUF files of the same model; None if there is
    none."""
    if hub.offline:
        return None
    wanted = f"{name.repo}-GGUF"
    found = [repo for repo in hub.search(wanted.rpartition("/")[2]) if "gguf" in repo.lower()]
    return wanted if wanted in found else nearest(wanted, found)


async def downloaded_weights(path: str | None, *, complete: bool = True) -> str | None:
    """Download the safetensors of a model for an engine whose library finds repositories of the hub itself. Returns
    `path` without the prefix `hf:`.

    Downloads them so that the gateway shows progress and errors. Does not if `path` is not a repository, or if
    `complete` is false because the engine's settings select other files. Raises `ConfigurationError` like `fetch_gguf`.
    """
    name = None if path is None else hub_name_of(path)
    if name is None or name.file is not None:
        return path
    if complete and name.quant is None:
        hub = Hub.from_environment()
        await in_thread(lambda stop: fetch_weights(name, hub, stop))
    return str(name)


async def in_thread(function: Callable[[threading.Event], T]) -> T:
    """Run a download in a separate thread. If the task is cancelled, sets the event that `function` has received, and
    does not wait for the thread: it ends when the next bytes arrive, or at the time limit for them."""
    stop = threading.Event()
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = function(stop)
        except BaseException as error:
            _notify_loop(loop, future, partial(future.set_exception, error))
        else:
            _notify_loop(loop, future, partial(future.set_result, result))

    threading.Thread(target=run, name="hub-download", daemon=True).start()
    try:
        return await future
    finally:
        stop.set()


def _notify_loop(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], end: Callable[[], None]
) -> None:
    """Call `end` in the loop, unless the future is done or cancelled."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(lambda: None if future.done() else end())


def _look_up(name: HubName, hub: Hub) -> tuple[Repository, bool]:
    """The repository as the hub lists it or, if the hub cannot be reached, as it is cached; and whether it is from the
    cache."""
    if hub.offline:
        cached = cached_repository(hub, name.repo)
        if cached is None:
            raise ConfigurationError(
                f"{name.repo} is not in the cache {hub.cache}, and HF_HUB_OFFLINE is set: unset it, or run "
                f"`gateway pull {name}` where the hub can be reached."
            )
        return cached, True
    try:
        return hub.repository(name), False
    except (HubUnreachable, HubAnswerInvalid) as error:
        cached = cached_repository(hub, name.repo)
        if cached is None and isinstance(error, HubAnswerInvalid):
            raise _rejected(error, name, hub) from error
        if cached is None:
            raise ConfigurationError(_unreachable_error(name, hub, str(error))) from error
        logger.warning("%s cannot be reached (%s); using the cached files", hub.endpoint, error)
        return cached, True
    except HubRefusal as error:
        raise _rejected(error, name, hub) from error


def _within_cache(hub: Hub, cached: bool, choose: Callable[[], T]) -> T:
    """Call `choose`, and return its result. If only the cache was examined (`cached`), its error says so."""
    try:
        return choose()
    except ConfigurationError as error:
        if not cached:
            raise
        why = "HF_HUB_OFFLINE is set" if hub.offline else f"{hub.endpoint} cannot be reached"
        raise ConfigurationError(f"In the cache, the only source because {why}, {error}") from error


def _fetch(
    name: HubName,
    hub: Hub,
    repository: Repository,
    files: list[RepositoryFile] | tuple[RepositoryFile, ...],
    what: str,
    *,
    cached: bool,
    stop: threading.Event | None,
) -> list[Path]:
    if cached:
        return [cached_path(hub, repository, file) for file in files]
    try:
        return download(hub, repository, files, what, stop)
    except HubUnreachable as error:
        raise ConfigurationError(
            f"The download of {what} stopped: {hub.endpoint} cannot be reached ({error}). Try again: it goes on where it "
            "stopped."
        ) from error
    except (HubRefusal, HubAnswerInvalid) as error:
        raise _rejected(error, name, hub) from error


def _rejected(error: HubRefusal | HubAnswerInvalid, name: HubName, hub: Hub) -> ConfigurationError:
    if isinstance(error, HubRefusal):
        known = cached_repositories(hub)
        if error.code == "RepoNotFound":
            known = [*hub.search(name.repo.rpartition("/")[2]), *known]
        return ConfigurationError(refusal_sentence(error, name, hub, known))
    return ConfigurationError(
        f"The answer of {hub.endpoint} about {name.repo} is not accepted: {error}. Check HF_ENDPOINT, or try again later."
    )


def _unreachable_error(name: HubName, hub: Hub, why: str) -> str:
    local = "" if name.explicit else f"there is no file or folder {str(name)!r} here, and "
    return (
        f"{local}{hub.endpoint} cannot be reached ({why}), and {name.repo} is not in the cache: check the network, the "
        "proxy and HF_ENDPOINT, or give a local file."
    )

"""Models of a hub by name: finding and downloading the files of repositories, and showing the progress."""

from gateway.config.hub_names import HubName, hub_name_of
from gateway.models.hub.client import Hub
from gateway.models.hub.fetching import (
    GgufFiles,
    WeightFiles,
    downloaded_weights,
    fetch_gguf,
    fetch_weights,
    in_thread,
)
from gateway.models.hub.folders import models_in_folder, projector_in_folder
from gateway.models.hub.progress import DownloadProgress, human_size, progress

__all__ = [
    "DownloadProgress",
    "GgufFiles",
    "Hub",
    "HubName",
    "WeightFiles",
    "downloaded_weights",
    "fetch_gguf",
    "fetch_weights",
    "hub_name_of",
    "human_size",
    "in_thread",
    "models_in_folder",
    "progress",
    "projector_in_folder",
]

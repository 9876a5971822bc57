"""`gateway pull`, `gateway rm` and `gateway models --cached`: the downloaded models of the hub."""

from __future__ import annotations

import argparse
import json
from datetime import datetime

from msgspec import to_builtins

from gateway.base.errors import ConfigurationError
from gateway.commands.arguments import Commands, table
from gateway.config.hub_names import PREFIX, HubName, parse_name
from gateway.models.hub.cache import cached_models, remove
from gateway.models.hub.client import Hub
from gateway.models.hub.fetching import GgufFiles, fetch
from gateway.models.hub.progress import human_size
from gateway.process.logs import set_up_logging

NAMES = """\
MODEL is one of:
  owner/repo-GGUF             GGUF files of the hub: the quantization Q4_K_M, or the nearest to it
  owner/repo-GGUF:Q8_0        another quantization
  owner/repo-GGUF/file.gguf   one file, or all parts of a split one
  owner/repo                  a Hugging Face model with safetensors

HF_TOKEN is sent to the hub, HF_ENDPOINT selects another one, and HF_HOME another folder for the cache.
"""


def add_to(commands: Commands) -> None:
    """Add the commands to the command line."""
    parser = commands.add_parser(
        "pull",
        help="download models of the hub",
        description="Download models into the cache that all libraries of the hub share. A download that was\n"
        "interrupted goes on where it stopped.",
        epilog=NAMES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="see below")
    parser.set_defaults(command=pull)

    parser = commands.add_parser(
        "rm",
        help="remove downloaded models",
        description="Remove models of the hub from the cache. `gateway models --cached` lists them. Without a quantization, the "
        "whole repository is removed, with what an interrupted download has left.",
    )
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help="owner/repo, or a single model in it"
    )
    parser.set_defaults(command=rm)


def pull(arguments: argparse.Namespace) -> int:
    """Download models."""
    names = [_name(text) for text in arguments.models]
    set_up_logging("info")
    hub = Hub.from_environment()
    for name in names:
        files = fetch(name, hub)
        whole = files.name if isinstance(files, GgufFiles) else str(name)
        print(f"{whole} is in the cache ({human_size(files.size)}).", flush=True)
    return 0


def rm(arguments: argparse.Namespace) -> int:
    """Remove models."""
    names = [_name(text) for text in arguments.models]
    hub = Hub.from_environment()
    for name in names:
        print(f"{name} is removed ({human_size(remove(hub, name))}).", flush=True)
    return 0


def show_cached(*, as_json: bool) -> int:
    """List the models in the cache."""
    hub = Hub.from_environment()
    models = cached_models(hub)
    if as_json:
        print(json.dumps(to_builtins(models), indent=2, ensure_ascii=False))
    elif not models:
        print(f"The cache {hub.cache} has no model. `gateway pull MODEL` downloads one.")
    else:
        rows = [("NAME", "KIND", "SIZE", "LAST USED")]
        for model in models:
            used = datetime.fromtimestamp(model.used).astimezone().strftime("%Y-%m-%d %H:%M")
            rows.append((model.name, model.kind, human_size(model.size), used))
        print(table(rows))
    return 0


def _name(text: str) -> HubName:
    """Parse a name of the hub, even if a file or folder of that name exists here."""
    name = parse_name(text if text.startswith(PREFIX) else f"{PREFIX}{text}")
    if name is None or ("/" not in name.repo and not text.startswith(PREFIX)):
        raise ConfigurationError(
            f"{text!r} is not a name of the hub, such as owner/repository, owner/repository-GGUF:Q4_K_M or "
            "owner/repository-GGUF/file.gguf."
        )
    return name

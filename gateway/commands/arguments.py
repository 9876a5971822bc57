"""Arguments that several commands share, and their meaning; tables for output."""

from __future__ import annotations

import argparse
import ipaddress
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from gateway.config import Config, ServerConfig, load_config, load_listening

# argparse has no public name for the return type of `add_subparsers`.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

MODELS = """\
MODEL is one of:
  NAME                        a model of the configuration
  ./model.gguf                a GGUF file
  ./folder                    a folder with a Hugging Face model
  owner/repo-GGUF             GGUF files of the hub: the quantization Q4_K_M, or the nearest to it
  owner/repo-GGUF:Q8_0        another quantization
  owner/repo-GGUF/file.gguf   one file, or all parts of a split one
  owner/repo                  safetensors of the hub, for vLLM or TensorRT-LLM
  hf:NAME                     one of the hub, even if a file or folder of that name exists here
  http://host:port            a server of vLLM, SGLang or llama.cpp, with a tokenizer here or on the hub
  https://host/v1#NAME        the model NAME of another server with OpenAI's API
"""
"""Explains `MODEL` in help texts."""


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--config FILE`."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration (default: $GATEWAY_CONFIG, else ./gateway.toml if it exists)",
    )


def configuration(arguments: argparse.Namespace, **overrides: Any) -> Config:
    """Load the configuration from `--config` and the environment. Raises `ConfigurationError`."""
    return load_config(arguments.config, os.environ, **overrides)


API = "http://127.0.0.1:8000/v1"
"""The address of the API if no other is given."""
API_DEFAULT = (
    f"default: $OPENAI_BASE_URL, else where the configuration listens on this machine, else {API}"
)


def api_url(named: str | None, environ: Mapping[str, str]) -> str:
    """The URL of the API to use: `named`, else `OPENAI_BASE_URL`, else the URL of the server on this machine with the
    configuration of the environment or of the current folder. Raises `ConfigurationError` if that cannot be read.

    The configured address is used only if it is a loopback address or stands for all addresses. Otherwise the author of
    the file could receive the API key of a user who runs a command in its folder.
    """
    url = named or environ.get("OPENAI_BASE_URL")
    if url:
        return url
    server = load_listening(None, environ)
    if server.unix_socket is None and server.port and _is_here(reached(server.host)):
        return f"{listening_url(server)}/v1"
    return API


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def listening_url(server: ServerConfig) -> str:
    """The address at which a server with a port is reached from this machine, without a path."""
    scheme = "http" if server.tls_certificate is None else "https"
    host = reached(server.host).strip("[]")
    return f"{scheme}://[{host}]:{server.port}" if ":" in host else f"{scheme}://{host}:{server.port}"  # fmt: skip


def reached(host: str) -> str:
    """The address at which a server that listens on `host` is reached from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}.get(host, host)  # noqa: S104  # compared with, not bound to


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as aligned columns. The first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)

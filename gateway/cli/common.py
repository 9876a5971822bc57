"""Helpers shared by several commands."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from gateway.config import Config, load_config

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
"""What `MODEL` may be, for help texts."""


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    """`--config FILE`."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration (default: $GATEWAY_CONFIG, else ./gateway.toml if it exists)",
    )


def configuration(arguments: argparse.Namespace, **overrides: Any) -> Config:
    """The configuration from `--config` and the environment. Raises `ConfigurationError`."""
    return load_config(arguments.config, os.environ, **overrides)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as aligned columns. The first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)

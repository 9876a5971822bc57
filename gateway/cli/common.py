"""What several commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from gateway.config import Config, load_config

# argparse has no public name for what `add_subparsers` returns.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    """`--config FILE`."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration (default: $GATEWAY_CONFIG, else ./gateway.toml if it exists)",
    )


def configuration(arguments: argparse.Namespace, **overrides: Any) -> Config:
    """The configuration that `--config` and the environment give; raises `ConfigurationError`."""
    return load_config(arguments.config, os.environ, **overrides)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned columns; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)

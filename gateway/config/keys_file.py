"""The file of API keys (`server.keys_file`)."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.config.sources import line_of, read_toml
from gateway.config.structs import ApiKey, check_same_keys
from gateway.config.tables import TableError, decode_table


class _KeysFile(Struct, frozen=True):
    api_keys: list[ApiKey] = []


def read_keys(path: Path) -> list[ApiKey]:
    """Read the keys of a file with tables `[[api_keys]]`. Raises `ConfigurationError`."""
    tables, text = read_toml(path)
    try:
        keys = decode_table(tables, _KeysFile, ()).api_keys
        check_same_keys(keys)
    except TableError as error:
        line = line_of(text, error.path)
        place = f"{path} line {line}" if line else str(path)
        raise ConfigurationError(f"{place}: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return keys

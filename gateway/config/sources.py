"""Sources of settings: a TOML file, with line numbers, and the environment."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.config.tables import KeyPath, suggestion

SECTIONS = (
    "server",
    "models",
    "routes",
    "prompts",
    "tools",
    "stores",
    "apis",
    "resources",
    "authenticators",
    "routers",
    "policies",
    "plugins",
    "media",
    "documents",
)
FLAT_SECTIONS = ("server", "plugins", "media", "documents")
"""Sections that are one table, not a table of tables."""
NAMED_SECTIONS = tuple(each for each in SECTIONS if each not in FLAT_SECTIONS)
"""Sections with a table for each name."""
PREFIX = "GATEWAY_"

_HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]\]?\s*(?:#.*)?\Z")
_ASSIGNMENT = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)


class Variable(Struct, frozen=True, kw_only=True):
    """A setting from an environment variable."""

    name: str
    path: KeyPath
    value: Any


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Read a TOML file. Returns its tables and its text, without the byte order mark that editors on Windows write. Raises
    `ConfigurationError` if it cannot be read or is not TOML."""
    try:
        text = path.read_bytes().decode("utf-8").removeprefix("\ufeff")
    except OSError as error:
        raise ConfigurationError(
            f"{path}: the configuration cannot be read: {error.strerror or error}."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8."
        ) from error
    lines = text.replace("\r\n", "\n")
    try:
        return tomllib.loads(lines), text
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: {_not_toml(str(error), lines)}.") from error
    except RecursionError:
        raise ConfigurationError(f"{path}: its values are nested too deeply.") from None


def _not_toml(problem: str, text: str) -> str:
    """Explain a message of `tomllib` about `text`. Shows nothing of `text`, which may contain secrets."""
    if twice := re.fullmatch(r"Cannot declare \((.*?),?\) twice (\(.*\))", problem):
        names = re.findall(r"""'[^']*'|"[^"]*\"""", twice[1])
        table = ".".join(each[1:-1] for each in names)
        return f"there are two tables [{table}] {twice[2]}; write one with the keys of both"
    if again := re.fullmatch(r"Cannot overwrite a value (\(.*\))", problem):
        return f"a key is set twice {again[1]}; keep one of them"
    return f"this is not TOML: {problem}{_slip(problem, text)}"


def _slip(problem: str, text: str) -> str:
    """The usual mistake behind a missing value or `=` that `tomllib` reports; empty if it is not known."""
    found = re.search(r"\(at line (\d+), column (\d+)\)", problem)
    lines = text.split("\n")
    if found is None or int(found[1]) > len(lines):
        return ""
    line, column = lines[int(found[1]) - 1], int(found[2]) - 1
    if problem.startswith("Expected '=' after a key") and line[column : column + 1] == ":":
        return ": TOML has = where YAML and JSON have :"
    value = line.partition("=")[2].strip()
    if re.match(r"(?i:true|false)\b", value) or not re.match(r"[\w/.~$*-]", value, re.ASCII):
        return ": true and false have small letters" if re.match(r"T|F", value) else ""
    if problem.startswith(("Invalid value", "Expected newline or end of document")):
        return ": a text is written in quotes"
    return ""


def line_of(text: str, path: KeyPath) -> int | None:
    """The line, counted from 1, on which a TOML text sets `path`, or else opens the nearest enclosing table.

    For messages only: a line inside a multi-line string can be mistaken for a setting.
    """
    return Lines(text).of(path)


class Lines:
    """The lines, counted from 1, on which a TOML text sets its keys."""

    def __init__(self, text: str) -> None:
        self._named: dict[KeyPath, int] = {}
        """The first line that names a path."""
        self._within: dict[KeyPath, int] = {}
        """The first line that names a path, or one within it."""
        for found, number in _named_paths(text):
            self._named.setdefault(found, number)
            for length in range(1, len(found) + 1):
                self._within.setdefault(found[:length], number)

    def of(self, path: KeyPath) -> int | None:
        """Return the line of `path`; see `line_of`."""
        if path in self._within:
            return self._within[path]
        shorter = (path[:length] for length in range(len(path) - 1, 0, -1))
        return next((self._named[each] for each in shorter if each in self._named), None)


def _named_paths(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Yield the path that each line sets or opens, with the number of the line."""
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _keys(header[1])
            yield table, number
        elif assignment := _ASSIGNMENT.match(line):
            yield table + _keys(assignment[1]), number


def _keys(written: str) -> KeyPath:
    try:
        value: Any = tomllib.loads(f"{written} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    keys = []
    while isinstance(value, dict):
        [(key, value)] = value.items()
        keys.append(key)
    return tuple(keys)


def environment(
    environ: Mapping[str, str], tables: Mapping[str, Any], known: Mapping[str, Iterable[str]]
) -> Iterator[Variable]:
    """The settings in environment variables: `GATEWAY_SERVER__PORT=8001` sets `server.port`.

    A key is matched against the keys of `tables`, then against `known[section]`, ignoring case and with `_` for any
    character that is not valid in a variable name. A key without a match is lower-cased. Values are parsed as TOML, or
    else used as strings. Variables without `__` are ignored, since Kubernetes sets some for every service named
    `gateway`.
    """
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or "__" not in name[len(PREFIX) :]:
            continue
        written = name[len(PREFIX) :].split("__")
        section = written[0].lower()
        if section not in SECTIONS:
            if not section:
                continue
            raise ConfigurationError(
                f"environment variable {name}: there is no section {section!r}; {suggestion(section, SECTIONS)}"
            )
        if len(written) < (2 if section in FLAT_SECTIONS else 3) or "" in written:
            raise ConfigurationError(
                f"environment variable {name}: it names no key; "
                f"the form is {PREFIX}SERVER__PORT or {PREFIX}MODELS__<MODEL>__PATH."
            )
        path = [section]
        level: Any = tables.get(section, {})
        for depth, word in enumerate(written[1:], start=1):
            candidates = list(level) if isinstance(level, Mapping) else []
            if depth == (1 if section in FLAT_SECTIONS else 2):
                candidates += known.get(section, ())
            key = _match(word, candidates)
            path.append(key)
            level = level.get(key, {}) if isinstance(level, Mapping) else {}
        yield Variable(name=name, path=tuple(path), value=_value(environ[name]))


def _match(word: str, candidates: Iterable[str]) -> str:
    folded = word.casefold()
    for candidate in candidates:
        if re.sub(r"[^a-z0-9_]", "_", candidate.casefold()) == folded:
            return candidate
    return word.lower()


def _value(text: str) -> Any:
    try:
        tables = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return tables["value"] if len(tables) == 1 else text

"""Compare an installed `tensorrt_llm` with what this plugin was written for (`signatures.json`).

    python backends/trtllm/check_signatures.py

Prints what differs, one line each; the exit code is 1 if something does. New parameters that may be left out are no
difference.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("signatures.json")


def differences(record: dict[str, Any]) -> Iterator[str]:
    """Yield the differences between the importable `tensorrt_llm` and the record."""
    for name, parameters in record["callables"].items():
        found = _resolve(name)
        if found is None:
            yield f"{name} is missing"
        else:
            yield from _of_callable(name, found, parameters)
    for name, members in record["members"].items():
        found = _resolve(name)
        if found is None:
            yield f"{name} is missing"
        else:
            yield from (f"{name}.{each} is missing" for each in members if not hasattr(found, each))
    for name, wanted in record["fields"].items():
        found = _resolve(name)
        has = {field.name for field in dataclasses.fields(found)} if found is not None else set()
        yield from (f"{name} has no field {each}" for each in wanted if each not in has)
    for name, wanted in record["arguments"].items():
        takes = set(getattr(_resolve(name), "model_fields", ()))
        yield from (f"{name} takes no {each}" for each in wanted if each not in takes)


def _of_callable(name: str, found: Any, parameters: list[dict[str, Any]]) -> Iterator[str]:
    actual = inspect.signature(found).parameters
    for wanted in parameters:
        parameter = actual.get(wanted["name"])
        if parameter is None:
            yield f"{name} takes no {wanted['name']}"
            continue
        if parameter.kind.name != wanted["kind"]:
            yield f"{name}({wanted['name']}) is {parameter.kind.name}, and was {wanted['kind']}"
        default = parameter.default
        if "default" not in wanted:
            if default is not inspect.Parameter.empty:
                yield f"{name}({wanted['name']}) may be left out now"
        elif default is inspect.Parameter.empty or default != wanted["default"]:
            yield f"{name}({wanted['name']}) has the default {default!r}, and had {wanted['default']!r}"
    known = {wanted["name"] for wanted in parameters}
    optional = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    for parameter in actual.values():
        if parameter.name.startswith("_") or parameter.kind in optional:
            continue
        if parameter.name not in known and parameter.default is inspect.Parameter.empty:
            yield f"{name} needs {parameter.name} now"


def _resolve(name: str) -> Any:
    """The object of a dotted name; None if it does not exist."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
            if found is None:
                return None
        return found
    return None


def main() -> int:
    """Print the differences. Returns 1 if there are any, 2 if TensorRT-LLM is not installed, else 0."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    try:
        package = importlib.import_module("tensorrt_llm")
    except ImportError as error:
        print(f"TensorRT-LLM cannot be imported: {error}")
        return 2
    found = list(differences(record))
    for each in found:
        print(each)
    print(f"tensorrt_llm {package.__version__}: {len(found)} differences from {record['versions']}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

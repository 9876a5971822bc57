#!/usr/bin/env python3
"""Writes the tables of docs/parameters.md, from the table of parameters and the types of requests. With `--check`, fails if the page
is out of date."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import inspect

from gateway.wire.api_parameters import Parameter
from gateway.wire.chat import ChatRequest
from gateway.wire.completions import CompletionRequest
from gateway.wire.embeddings import EmbeddingsRequest
from gateway.wire.parameter_table import EMBEDDING, GENERATING, OTHER_SERVERS, SCORING
from gateway.wire.request import ResponseRequest
from gateway.wire.scoring import RerankRequest, ScoreTextsRequest
from gateway_messages.parameters import PARAMETERS
from gateway_messages.request import MessagesRequest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "parameters.md"
MARK = "<!-- From here on written by scripts/parameters_page.py; do not edit it. -->\n"
TYPES: dict[str, type[msgspec.Struct]] = {
    "responses": ResponseRequest,
    "chat": ChatRequest,
    "completions": CompletionRequest,
    "messages": MessagesRequest,
    "embeddings": EmbeddingsRequest,
    "rerank": RerankRequest,
    "score": ScoreTextsRequest,
}
TITLES = {
    "responses": "Responses",
    "chat": "Chat Completions",
    "completions": "Completions",
    "messages": "Messages",
    "embeddings": "Embeddings",
    "rerank": "Rerank",
    "score": "Score",
}
_UNBOUNDED = 2**31 - 1
"""From here on, a limit only keeps a number in the range of an integer."""


def page(written: str) -> str:
    """`written`, the page, with its tables as they should be."""
    return written.partition(MARK)[0] + MARK + "\n".join(_tables()) + "\n"


def _tables() -> Iterator[str]:
    generating = ("responses", "chat", "completions", "messages")
    yield "\n## Table\n"
    yield from _table(generating, [*_with_messages(GENERATING), *_with_messages(OTHER_SERVERS)])
    yield "\n## Table of embeddings, rerank and score\n"
    yield from _table(("embeddings", "rerank", "score"), [[row] for row in (*EMBEDDING, *SCORING)])


def _with_messages(rows: Iterable[Parameter]) -> Iterator[list[Parameter]]:
    """The rows of each parameter: of the core's table, and of the plugin's."""
    own = {row.name: row for row in PARAMETERS}
    yield from ([row, *([own[row.name]] if row.name in own else [])] for row in rows)
    if rows is GENERATING:
        core = {row.name for row in rows}
        yield from ([row] for row in PARAMETERS if row.name not in core)


def _table(apis: Sequence[str], parameters: Iterable[Sequence[Parameter]]) -> Iterator[str]:
    titles = [TITLES[api] for api in apis]
    yield f"| parameter | values | {' | '.join(titles)} | meaning, or what the 400 says |"
    yield "|---" * (len(apis) + 3) + "|"
    for rows in _merged(parameters):
        cells = [_cell(rows, api) for api in apis]
        values = {api: _values(rows[0].name, api) for api, cell in zip(apis, cells, strict=True) if cell in ("yes", "with beams")}  # fmt: skip
        usual = next(filter(None, values.values()), "")
        for index, api in enumerate(apis):
            if values.get(api) and values[api] != usual:
                cells[index] += f" ({values[api]})"
        line = f"| `{rows[0].name}` | {usual} | {' | '.join(cells)} | {_text(rows, apis, cells)} |"
        yield re.sub(r"\|  (?=\|)", "| ", line)


def _merged(parameters: Iterable[Sequence[Parameter]]) -> Iterable[list[Parameter]]:
    """One list for each name."""
    found: dict[str, list[Parameter]] = {}
    for rows in parameters:
        found.setdefault(rows[0].name, []).extend(rows)
    return found.values()


def _cell(rows: Sequence[Parameter], api: str) -> str:
    """What `api` does. Of Messages the plugin's row comes first, then that of the shared parameters."""
    for name in (api, *(("plugins",) if api == "messages" else ())):
        for row in rows:
            for refusal in row.refused:
                if name in refusal.apis.split():
                    return "with beams" if refusal.unless_beams else "400"
            if name in row.honoured.split():
                return "yes"
            if name in row.ignored.split():
                return "ignored"
    return ""


def _text(rows: Sequence[Parameter], apis: Sequence[str], cells: Sequence[str]) -> str:
    parts = [row.meaning for row in rows if row.meaning]
    having = {api for api, cell in zip(apis, cells, strict=True) if cell}
    for refusal in (refusal for row in rows for refusal in row.refused):
        names = refusal.apis.replace("plugins", "messages").split()
        titles = ", ".join(TITLES[name] for name in names if name in having)
        parts.append(f"{'' if having <= {*names} else f'{titles}: '}{refusal.message}")
    for need in (row.needs for row in rows if row.needs is not None):
        named = " or ".join(f"`{each}`" for each in need.capabilities)
        parts.append(
            f"Needs {named} in `engine_parameters` of the model, and an engine that takes it."
            if need.permission
            else f"Needs an engine with {named}."
        )
    return " ".join(parts).replace("|", "\\|")


def _values(name: str, api: str) -> str:
    """The type and bounds of a parameter, where they are simple."""
    for field in msgspec.structs.fields(TYPES[api]):
        if field.encode_name == name:
            kinds = list(_alternatives(inspect.type_info(field.type)))
            texts = [_described(kind) for kind in kinds if not isinstance(kind, inspect.NoneType)]
            return " or ".join(filter(None, texts)) if None not in texts else ""
    return ""


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    match kind:
        case inspect.Metadata(type=inner):
            yield from _alternatives(inner)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _alternatives(each)
        case _:
            yield kind


def _described(kind: inspect.Type) -> str | None:
    """None for what is not simple."""
    match kind:
        case inspect.BoolType():
            return "boolean"
        case inspect.IntType():
            return "integer" + _range(kind.ge, kind.le)
        case inspect.FloatType():
            return "number" + _range(kind.ge, kind.le)
        case inspect.StrType():
            return "string" + ("" if kind.max_length is None else f" of up to {kind.max_length}")
        case inspect.LiteralType():
            return ", ".join(f"`{value}`" for value in kind.values)
        case _:
            return None


def _range(low: float | None, high: float | None) -> str:
    least = None if low is None or low <= -_UNBOUNDED else f"{low:g}"
    most = None if high is None or high >= _UNBOUNDED else f"{high:g}"
    if least is not None and most is not None:
        return f", {least} to {most}"
    return f", from {least}" if least is not None else f", up to {most}" if most is not None else ""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="only say whether it is up to date")
    check = options.parse_args().check
    written = PAGE.read_text(encoding="utf-8")
    wanted = page(written)
    if check:
        if wanted != written:
            print("docs/parameters.md is out of date; run scripts/parameters_page.py")
        return int(wanted != written)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Prints the reference of `gateway.sdk`, as Markdown: what it offers, from the source. `scripts/build_site.py` makes a page of it.

Reads the source without importing it, because `help()` shows no docstrings of fields, and some modules need packages that
are not installed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

ROOT = Path(__file__).resolve().parent.parent
HEAD = """# Reference of the SDK

What the modules of `gateway.sdk` offer: signatures, fields and what they promise. [plugins.md](plugins.md) explains how they are used.
Made by `scripts/sdk_reference.py` from the docstrings of the source.
"""
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """A top-level statement that defines a name, and the docstring that follows it if it is an assignment."""

    node: ast.stmt
    doc: str
    source: str
    file: Path


@cache
def read(file: Path) -> tuple[str, ast.Module]:
    source = file.read_text(encoding="utf-8")
    return source, ast.parse(source)


def file_of(module: str) -> Path | None:
    """The file of a module of the core; None if there is none."""
    path = ROOT.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def with_docs(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Statements, each with the string literal that follows it, on one line."""
    for statement, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        match following:
            case ast.Expr(ast.Constant(str(text))):
                yield statement, " ".join(text.split())
            case _:
                yield statement, ""


def find(module: str, name: str) -> Definition | Path:
    """The definition of a name of `module`, wherever it is imported from; a file if it is a module."""
    file = file_of(module)
    assert file is not None, module
    source, tree = read(file)
    for node, doc in with_docs(tree.body):
        match node:
            case ast.ClassDef(defined) | ast.FunctionDef(defined) | ast.AsyncFunctionDef(defined):
                found = defined == name
            case ast.AnnAssign(ast.Name(defined)) | ast.Assign([ast.Name(defined)]):
                found = defined == name
            case ast.ImportFrom(str(origin), names) if any(
                name == (each.asname or each.name) for each in names
            ):
                real = next(each.name for each in names if name == (each.asname or each.name))
                as_module = file_of(f"{origin}.{real}")
                if as_module is not None:
                    return as_module
                return find(origin, real)
            case _:
                found = False
        if found:
            return Definition(node, doc, source, file)
    raise LookupError(f"{module} has no {name}")


def exported(file: Path) -> list[str]:
    """The names in `__all__`; without one, the public classes that the file defines."""
    _, tree = read(file)
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name("__all__")], ast.List(elements)):
                return [str(ast.literal_eval(each)) for each in elements]
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def paragraphs(doc: str | None) -> str:
    """A docstring as Markdown: paragraphs on one line each, blocks that are indented as code."""
    made = []
    for block in (doc or "").split("\n\n"):
        if block.startswith("    "):
            made.append("```\n" + re.sub("^    ", "", block, flags=re.MULTILINE) + "\n```")
        elif re.match(r"[-*|]|\d+\.", block):
            made.append(block)
        else:
            made.append(" ".join(block.split()))
    return "\n\n".join(each for each in made if each)


def code(text: str) -> str:
    """Code in a cell of a table."""
    return "`" + " ".join(text.split()).replace("|", "\\|") + "`"


def signature(function: Function) -> str:
    before = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    arguments = ast.unparse(function.args)
    arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    result = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{before}{function.name}({arguments}){result}"


def decorators(function: Function) -> set[str]:
    return {ast.unparse(each).rpartition(".")[2] for each in function.decorator_list}


def fields(node: ast.ClassDef) -> Iterator[str]:
    """Rows of a table: the fields of a Struct or of a protocol."""
    for statement, doc in with_docs(node.body):
        match statement:
            case ast.AnnAssign(ast.Name(name), annotation, value) if not name.startswith("_"):
                default = "" if value is None else code(ast.unparse(value))
                cells = (f"`{name}`", code(ast.unparse(annotation)), default, doc)
                yield "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def methods(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if not isinstance(statement, Function) or "overload" in decorators(statement):
            continue
        special = statement.name in ("__init__", "__call__", "__aenter__")
        if statement.name.startswith("_") and not special:
            continue
        doc = paragraphs(ast.get_docstring(statement))
        if statement.name == "__init__" and not doc:
            continue
        if "property" in decorators(statement) and statement.returns is not None:
            shown = f"{statement.name}: {ast.unparse(statement.returns)}"
        else:
            shown = signature(statement)
        yield "\n\n  ".join((f"- `{shown}`", *filter(None, doc.split("\n\n"))))


def of_class(node: ast.ClassDef) -> Iterator[str]:
    bases = [ast.unparse(each) for each in (*node.bases, *node.keywords)]
    yield f"```python\nclass {node.name}" + (f"({', '.join(bases)})" if bases else "") + "\n```"
    yield paragraphs(ast.get_docstring(node))
    if rows := list(fields(node)):
        yield "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows])
    yield "\n\n".join(methods(node))


def of_name(module: str, name: str, level: str) -> Iterator[str]:
    found = find(module, name)
    yield f"{level} `{name}`"
    if isinstance(found, Path):
        _, tree = read(found)
        yield paragraphs(ast.get_docstring(tree))
        inner = ".".join(found.relative_to(ROOT).with_suffix("").parts)
        for each in exported(found):
            yield from of_name(inner, each, level + "#")
        return
    match found.node:
        case ast.ClassDef() as node:
            yield from of_class(node)
        case ast.FunctionDef() | ast.AsyncFunctionDef() as function:
            yield f"```python\n{signature(function)}\n```"
            yield paragraphs(ast.get_docstring(function))
        case other:
            yield f"```python\n{ast.get_source_segment(found.source, other)}\n```"
            yield found.doc


def page() -> str:
    parts = [HEAD.strip()]
    files = sorted((ROOT / "gateway" / "sdk").glob("*.py"), key=lambda file: file.stem)
    for file in files:
        module = "gateway.sdk" + ("" if file.stem == "__init__" else f".{file.stem}")
        _, tree = read(file)
        parts += [f"## {module}", paragraphs(ast.get_docstring(tree))]
        for name in exported(file):
            parts += of_name(module, name, "###")
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())

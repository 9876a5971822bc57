"""Finding the request parameter that an engine's error about a constraint refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gateway.constraints import Constraint, JsonSchema
from gateway.errors import InvalidRequest, ParamPath
from gateway.protocols import Engine, EngineRequest, Turn
from gateway.tools.client_functions import qualified_name
from gateway.wire import tools as wire

TEXT_SCHEMA: ParamPath = ("text", "format", "schema")
"""The place of the schema of the final text. Each API renames it to that of its own parameter."""

_ENGINES_WORDS = frozenset[ParamPath]({("schema",), ("pattern",), ("grammar",)})
"""What engines call a constraint, of which they do not know the place in the request."""


def tool_params(tools: Sequence[wire.Tool], param: ParamPath = ("tools",)) -> dict[str, ParamPath]:
    """The places of the schemas and grammars of a request's tools, by the name that the model sees."""
    found: dict[str, ParamPath] = {}
    for index, tool in enumerate(tools):
        match tool:
            case wire.NamespaceTool(name=namespace):
                inner = tool_params(tool.tools, (*param, index, "tools"))
                found |= {qualified_name(name, namespace): path for name, path in inner.items()}
            case wire.FunctionTool():
                found[tool.name] = (*param, index, "parameters")
            case wire.CustomTool():
                found[tool.name] = (*param, index, "format", "definition")
            case _:
                pass
    return found


async def locate_fault(
    error: InvalidRequest,
    request: EngineRequest,
    structure: Constraint | None,
    engine: Engine,
    tools: Mapping[str, ParamPath],
) -> None:
    """Set the place of `error`, which the engine's `check` raised for `request`, to a parameter of the client's request,
    if it is about a constraint.

    If several are possible, the engine checks each separately. `structure`, if given, is the constraint on the final
    text. `tools` are the places of the constraints of tools, as from `tool_params`.
    """
    if not _about_constraint(error.at):
        return
    suspects = _suspects(request.turn, structure, tools)
    if error.at == ("tools",):
        suspects = [(path, each) for path, each in suspects if path != TEXT_SCHEMA]
    elif error.at not in _ENGINES_WORDS:
        suspects = [(path, each) for path, each in suspects if path == TEXT_SCHEMA]
    asked = () if request.turn is None else request.turn.tools
    # The gateway's own tools have no place in the request.
    sure = len(suspects) == 1 and all(tool.name in tools for tool in asked)
    for path, suspect in suspects:
        if sure or await _refuses(engine, request, suspect):
            error.at = path
            return
    if error.at in _ENGINES_WORDS:
        error.at = ()


def _about_constraint(path: ParamPath) -> bool:
    return path in _ENGINES_WORDS or path == ("tools",) or path[:2] == TEXT_SCHEMA[:2]


def _suspects(
    turn: Turn | None, structure: Constraint | None, tools: Mapping[str, ParamPath]
) -> list[tuple[ParamPath, Constraint]]:
    found: list[tuple[ParamPath, Constraint]] = []
    if structure is not None:
        found.append((TEXT_SCHEMA, structure))
    if turn is None:
        return found
    if structure is None and turn.text_format.schema is not None:
        found.append((TEXT_SCHEMA, JsonSchema(turn.text_format.schema)))
    for tool in turn.tools:
        path = tools.get(tool.name)
        wanted = tool.grammar if tool.kind == "custom" else JsonSchema(tool.parameters or {})
        if path is not None and wanted is not None:
            found.append((path, wanted))
    return found


async def _refuses(engine: Engine, request: EngineRequest, suspect: Constraint) -> bool:
    try:
        await engine.check(msgspec.structs.replace(request, constraint=suspect))
    except InvalidRequest as error:
        return not error.at or _about_constraint(error.at)
    return False

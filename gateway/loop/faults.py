"""Which part of a request an engine means that refuses a schema, a pattern or a grammar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from gateway.constraints import Constraint, JsonSchema
from gateway.errors import InvalidRequest
from gateway.protocols import Engine, EngineRequest, Turn
from gateway.tools.toolset import qualified_name
from gateway.wire import tools as wire

_ENGINES_WORDS = frozenset(
    {
        "schema", "pattern", "grammar", "tools",
        "text.format", "text.format.schema", "structured_outputs",
    }
)  # fmt: skip
"""What engines, which know no requests but constraints, call the parameter at fault."""


class Places(Struct, frozen=True, kw_only=True):
    """Where in a request there stands what is to be enforced, as paths in the words of its API."""

    text: str = "text.format.schema"
    """What the final text must be."""
    tools: Mapping[str, str] = {}
    """A tool's schema or grammar, by the name that the model is told."""


def tool_places(tools: Sequence[wire.Tool], param: str = "tools") -> dict[str, str]:
    """Where the schemas and grammars of a request's tools stand, in the Responses API."""
    found: dict[str, str] = {}
    for index, tool in enumerate(tools):
        where = f"{param}[{index}]"
        match tool:
            case wire.NamespaceTool(name=namespace):
                found |= {
                    qualified_name(name, namespace): path
                    for name, path in tool_places(tool.tools, f"{where}.tools").items()
                }
            case wire.FunctionTool():
                found[tool.name] = f"{where}.parameters"
            case wire.CustomTool():
                found[tool.name] = f"{where}.format.definition"
            case _:
                pass
    return found


async def name_fault(
    error: InvalidRequest,
    request: EngineRequest,
    structure: Constraint | None,
    engine: Engine,
    places: Places,
) -> None:
    """Have `error`, which the engine's `check` raised for `request`, name the parameter of the client's request.

    Where several might be meant, the engine is asked about each alone. `structure`, if given, is what the final text must be.
    """
    if error.param not in _ENGINES_WORDS:
        return
    suspects = _suspects(request.turn, structure, places)
    if error.param == "tools":
        suspects = [(path, each) for path, each in suspects if path != places.text]
    elif error.param not in ("schema", "pattern", "grammar"):
        suspects = [(path, each) for path, each in suspects if path == places.text]
    tools = () if request.turn is None else request.turn.tools
    # The gateway's own tools are nowhere in the request.
    sure = len(suspects) == 1 and all(tool.name in places.tools for tool in tools)
    for path, suspect in suspects:
        if sure or await _refuses(engine, request, suspect):
            error.param = path
            return


def _suspects(
    turn: Turn | None, structure: Constraint | None, places: Places
) -> list[tuple[str, Constraint]]:
    found: list[tuple[str, Constraint]] = []
    if structure is not None:
        found.append((places.text, structure))
    if turn is None:
        return found
    if structure is None and turn.text_format.schema is not None:
        found.append((places.text, JsonSchema(turn.text_format.schema)))
    for tool in turn.tools:
        path = places.tools.get(tool.name)
        wanted = tool.grammar if tool.kind == "custom" else JsonSchema(tool.parameters or {})
        if path is not None and wanted is not None:
            found.append((path, wanted))
    return found


async def _refuses(engine: Engine, request: EngineRequest, suspect: Constraint) -> bool:
    try:
        await engine.check(msgspec.structs.replace(request, constraint=suspect))
    except InvalidRequest as error:
        return error.param is None or error.param in _ENGINES_WORDS
    return False

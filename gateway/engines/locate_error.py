"""Finding the part of a request from which an unenforceable constraint comes."""

from __future__ import annotations

from collections.abc import Callable

from gateway.base.constraints import Constraint, Grammar, JsonSchema, Regex
from gateway.base.errors import InvalidRequest
from gateway.engines.xgrammar import UnenforceableSchemaError, nodes
from gateway.plugins.protocols import EngineRequest


def locate_error(
    error: InvalidRequest, request: EngineRequest, enforceable: Callable[[Constraint], bool]
) -> None:
    """Set the position of `error`, if the request's turn shows which part is unenforceable.

    `enforceable` tells whether the engine supports a single node. Tools are given by name, in the message, because
    their indices in the request may differ from those in the turn.
    """
    turn, constraint = request.turn, request.constraint
    if error.at or turn is None or constraint is None:
        return
    suspects: list[Constraint]
    if isinstance(error, UnenforceableSchemaError):
        suspects = [error.node]
    else:
        leaves = [n for n in nodes(constraint) if isinstance(n, JsonSchema | Regex | Grammar)]
        suspects = [leaf for leaf in leaves if not enforceable(leaf)]
    for suspect in suspects:
        schema = suspect.schema if isinstance(suspect, JsonSchema) else None
        if schema is not None and schema == turn.text_format.schema:
            error.at = ("text", "format", "schema")
            return
        for tool in turn.tools:
            of_grammar = tool.grammar is not None and suspect in nodes(tool.grammar)
            if of_grammar or (schema is not None and schema == tool.parameters):
                error.at = ("tools",)
                error.message = f"Tool '{tool.name}': {error.message}"
                return

"""Which part of a request brought a constraint that cannot be enforced."""

from __future__ import annotations

from collections.abc import Callable

from gateway.constraints import Constraint, Grammar, JsonSchema, Regex
from gateway.engines.xgrammar import UnenforceableSchemaError, nodes
from gateway.errors import InvalidRequest
from gateway.protocols import EngineRequest


def blame(
    error: InvalidRequest, request: EngineRequest, enforceable: Callable[[Constraint], bool]
) -> None:
    """Have `error` name the parameter at fault, where the request's turn shows which it is.

    `enforceable` tells of one node alone whether the engine takes it. Tools are named in the message: their places in
    the request may be others than in the turn.
    """
    turn, constraint = request.turn, request.constraint
    if error.param is not None or turn is None or constraint is None:
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
            error.param = "text.format.schema"
            return
        for tool in turn.tools:
            of_grammar = tool.grammar is not None and suspect in nodes(tool.grammar)
            if of_grammar or (schema is not None and schema == tool.parameters):
                error.param = "tools"
                error.message = f"Tool '{tool.name}': {error.message}"
                return

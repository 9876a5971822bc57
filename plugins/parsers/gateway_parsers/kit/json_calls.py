"""Calls written as JSON objects between markers: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gateway.constraints import Const, Constraint, OneOf
from gateway.constraints import Sequence as InOrder
from gateway.protocols.output import CallPiece
from gateway.protocols.prompt import ToolDefinition
from gateway_parsers.kit.constrain import arguments_constraint, repeated
from gateway_parsers.kit.json_call_reader import JsonCallReader, JsonShape
from gateway_parsers.kit.syntax import Accept, CallReader


class JsonCalls(JsonShape, frozen=True, kw_only=True):
    """A family whose calls are JSON objects between markers; a `CallSyntax`.

    `before`, `between`, `after` are what the model writes next to the markers; reading does not depend on them.
    """

    before: str = "\n"
    after: str = "\n"
    between: str = "\n"

    def reader(self, marker: str, accept: Accept | None) -> CallReader:
        return JsonCallReader(self, marker, accept)

    def write(self, calls: Sequence[CallPiece]) -> str:
        return self.between.join(
            self._opening(call.name) + (call.arguments.strip() or "{}") + self._closing
            for call in calls
        )

    def constraint(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        options = tuple(
            InOrder(
                (
                    Const(self._opening(tool.name)),
                    arguments_constraint(tool, schema=schemas or tool.strict),
                    Const(self._closing),
                )
            )
            for tool in tools
        )
        call = options[0] if len(options) == 1 else OneOf(options)
        return repeated(call, separator=self.between) if parallel else call

    def _opening(self, name: str) -> str:
        keys = (self.name_keys[0], self.argument_keys[0])
        quoted = json.dumps(name, ensure_ascii=False)
        return f'{self.start}{self.before}{{"{keys[0]}": {quoted}, "{keys[1]}": '

    @property
    def _closing(self) -> str:
        return "}" + (self.after + self.end if self.end else "")

"""The rows of the table of parameters, and what an API does by it. `gateway.wire.parameter_table` has the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from gateway.errors import Unsupported

Names: TypeAlias = str
"""The names of APIs, separated by spaces."""
NOTHING: tuple[Any, ...] = (False, "", [], {})


class Refusal(Struct, frozen=True):
    """A parameter that some APIs reject with status 400."""

    apis: Names
    message: str
    harmless: tuple[Any, ...] = NOTHING
    """Values that change nothing, which are accepted; null always is."""
    unless_beams: bool = False
    """Whether it is honoured with beam search."""
    code: str | None = None
    """None: `unsupported_parameter`."""

    def refuses(self, value: Any) -> bool:
        """Whether `value` would change the answer."""
        return value is not None and value not in self.harmless

    def error(self, name: str) -> Unsupported:
        """The error for the parameter `name`."""
        return Unsupported(self.message, param=name, code=self.code)


class Need(Struct, frozen=True):
    """What a parameter needs of the engine of a model; without it, the parameter is rejected with `message`."""

    capabilities: tuple[str, ...]
    """One of these capabilities."""
    message: str
    harmless: tuple[Any, ...] = NOTHING
    permission: bool = False
    """Whether `engine_parameters` of the model's configuration has to name it."""


class Parameter(Struct, frozen=True):
    """A row of the table: a parameter at the top level of a request, and what the APIs do with it."""

    name: str
    meaning: str = ""
    honoured: Names = ""
    ignored: Names = ""
    """Accepted, and reported like an unknown one."""
    refused: Sequence[Refusal] = ()
    openai: Names = ""
    """Where OpenAI has it: what `compatibility = "strict"` accepts."""
    needs: Need | None = None


class ApiParameters:
    """What one API does with the parameters of its requests."""

    def __init__(
        self, api: str, rows: Iterable[Parameter], *, base: ApiParameters | None = None
    ) -> None:
        """`base` are parameters that it has besides those of `rows`; what a row says takes precedence."""
        self.name = api
        rows = [*rows]
        self.refusals: Mapping[str, Refusal] = {
            row.name: refusal
            for row in rows
            for refusal in row.refused
            if api in refusal.apis.split()
        }
        self.honoured = frozenset(row.name for row in rows if api in row.honoured.split())
        self.ignored = frozenset(row.name for row in rows if api in row.ignored.split())
        self.openai = frozenset(row.name for row in rows if api in row.openai.split())
        self.known = self.honoured | self.refusals.keys()
        """Those that are not reported."""
        if base is not None:
            self.known = (self.known | base.known) - self.ignored

    def refuse(self, values: Mapping[str, Any], *, but: Collection[str] = ()) -> None:
        """Raise `Unsupported` for the first refused parameter that `values` has; `but` are not refused."""
        if self.refusals.keys().isdisjoint(values):
            return
        for name, refusal in self.refusals.items():
            if refusal.refuses(values.get(name)) and name not in but:
                raise refusal.error(name)

"""Types of the parameter table: `Parameter` is a row, `ApiParameters` is what the table says about one API. The rows
are in `gateway.wire.parameter_table`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from gateway.base.errors import Unsupported

Names: TypeAlias = str
"""The names of APIs, separated by spaces."""
NOTHING: tuple[Any, ...] = (False, "", [], {})
"""The empty values. 0 is one of them, since it equals False."""


class Refusal(Struct, frozen=True):
    """Says that some APIs reject a parameter, with status 400."""

    apis: Names
    message: str
    harmless: tuple[Any, ...] = NOTHING
    """Values that change nothing and are accepted, in addition to null."""
    unless_beams: bool = False
    """Whether requests with `use_beam_search` may have the parameter. Only `gateway.wire.refusals.refuse` looks at
    this."""
    code: str | None = None
    """The error code; None stands for `unsupported_parameter`."""

    def refuses(self, value: Any) -> bool:
        """Whether `value` is rejected: it is neither null nor harmless."""
        return value is not None and value not in self.harmless

    def error(self, name: str) -> Unsupported:
        """The error for the parameter `name`."""
        return Unsupported(self.message, param=name, code=self.code)


class Need(Struct, frozen=True):
    """What a parameter requires of a model's engine and configuration. If it is missing, the parameter is rejected with
    `message`."""

    capabilities: tuple[str, ...]
    """The engine must have one of these capabilities."""
    message: str
    harmless: tuple[Any, ...] = NOTHING
    permission: bool = False
    """Whether `engine_parameters` in the model's configuration must list the parameter."""


class Parameter(Struct, frozen=True):
    """A row of the table: a parameter at the top level of a request, and what each API does with it."""

    name: str
    meaning: str = ""
    honoured: Names = ""
    ignored: Names = ""
    """APIs that accept the parameter without effect, and report it to the client like an unknown one."""
    refused: Sequence[Refusal] = ()
    openai: Names = ""
    """APIs in which OpenAI has the parameter. They accept it with `compatibility = "strict"`."""
    needs: Need | None = None


class ApiParameters:
    """What one API does with the parameters of its requests."""

    def __init__(
        self, api: str, rows: Iterable[Parameter], *, base: ApiParameters | None = None
    ) -> None:
        """The known parameters of `base` are known to this API too, unless a row ignores them. Its refusals are not
        taken over."""
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
        """Names of the parameters that are not reported as unknown."""
        if base is not None:
            self.known = (self.known | base.known) - self.ignored

    def refuse(self, values: Mapping[str, Any], *, but: Collection[str] = ()) -> None:
        """Raise `Unsupported` for the first refused parameter in `values`, in the order of the table. Parameters in
        `but` are accepted."""
        if self.refusals.keys().isdisjoint(values):
            return
        for name, refusal in self.refusals.items():
            if refusal.refuses(values.get(name)) and name not in but:
                raise refusal.error(name)

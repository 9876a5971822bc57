"""Protocols of tool-call syntaxes and their readers, as the machine uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from gateway.sdk import CallPiece, Delta, ToolDefinition
from gateway.sdk.constraints import Constraint

Accept: TypeAlias = Callable[[str], bool | None]
"""Whether a call of this name is acceptable here; inside unclosed reasoning only certain calls are. None: acceptable if
arguments follow, for example for bare JSON at the start of the text."""

MAX_NAME = 256
"""Maximum length of a name in characters, which bounds how much is held."""


class CallReader(Protocol):
    """Reads from after a start marker to the end of its calls. One reader per start marker. Never raises."""

    @property
    def status(self) -> Literal["more", "done", "failed"]:
        """State of the reader. failed: this is not a call; `raw` is the text read so far, which is then treated as
        text."""
        ...

    @property
    def undecided(self) -> bool:
        """Whether the text read so far may still turn out not to be a call."""
        ...

    @property
    def unclosed(self) -> bool:
        """Whether the calls ended without their end marker, which may still follow."""
        ...

    @property
    def verbatim(self) -> bool:
        """Whether a failed call is shown with its markup, because it may be prose about calls."""
        ...

    @property
    def recoveries(self) -> int: ...

    @property
    def out(self) -> list[Delta]:
        """Deltas not yet taken. The caller clears the list."""
        ...

    @property
    def raw(self) -> str: ...

    def read(self, text: str, pos: int, *, final: bool) -> int:
        """Continue at `pos` and return where reading stopped. The rest is passed again with more text."""
        ...

    def finish(self, *, stopped: bool) -> None:
        """End the output. `stopped`: the model or a stop string ended it, rather than a limit or a failure."""
        ...


class CallSyntax(Protocol):
    """A model family's syntax for tool calls. Stateless."""

    @property
    def starts(self) -> tuple[str, ...]:
        """Markers that start calls."""
        ...

    @property
    def ends(self) -> tuple[str, ...]:
        """Markers that end calls. Late or repeated ones are hidden."""
        ...

    @property
    def bare(self) -> frozenset[str]:
        """Those `starts` that are also ordinary text, such as `{`. They start a call only if an offered tool's name
        follows."""
        ...

    @property
    def markup(self) -> tuple[str, ...]:
        """All texts that may be special tokens, which the engine must not omit."""
        ...

    @property
    def trigger(self) -> str | None:
        """Text with which all calls, and nothing else, start; None if there is none."""
        ...

    @property
    def sectioned(self) -> bool:
        """Whether several calls share one pair of outer markers."""
        ...

    def reader(
        self, marker: str, accept: Accept | None, tools: Mapping[str, ToolDefinition]
    ) -> CallReader:
        """A reader for the text after `marker`. `accept` None: any name is accepted. `tools` by name: their schemas
        determine types."""
        ...

    def write(self, calls: Sequence[CallPiece]) -> str:
        """Consecutive calls as the model writes them."""
        ...

    def constraint(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        """One call of `tools`, or several if `parallel`.

        `schemas`: arguments follow the tools' schemas; otherwise those of non-strict tools are any object. Raises
        `Unsupported` for what the syntax cannot express.
        """
        ...

"""What a tool-call syntax has to offer, and how the machine drives its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from gateway.constraints import Constraint
from gateway.deltas import Delta
from gateway.protocols.output import CallPiece
from gateway.protocols.prompt import ToolDefinition

Accept: TypeAlias = Callable[[str], bool | None]
"""Whether a call of this name may be one here: inside unclosed thinking, only what is certain to be one counts. None: it
may if arguments follow, as where JSON that stands for itself begins the text."""

MAX_NAME = 256
"""Characters. What is longer is no name: nothing may be held without a limit."""


class CallReader(Protocol):
    """Reads from behind a start marker to the end of its calls. One per start marker; it never raises."""

    @property
    def status(self) -> Literal["more", "done", "failed"]:
        """failed: this is no call. `raw` is what has been read of it, to be shown as text; reading goes on as text."""
        ...

    @property
    def undecided(self) -> bool:
        """Whether what has been read may still turn out to be text."""
        ...

    @property
    def unclosed(self) -> bool:
        """The calls ended without their end marker, which may yet come."""
        ...

    @property
    def recoveries(self) -> int: ...

    @property
    def out(self) -> list[Delta]:
        """What has been read and is not yet fetched; whoever fetches it clears it."""
        ...

    @property
    def raw(self) -> str: ...

    def read(self, text: str, pos: int, *, final: bool) -> int:
        """Read on from `pos`, and return where it stopped; what is left is handed in again with what follows."""
        ...

    def finish(self, *, stopped: bool) -> None:
        """The output has ended. `stopped`: the model (or a stop string) ended it, rather than a limit or a failure."""
        ...


class CallSyntax(Protocol):
    """How a model family writes tool calls. Stateless."""

    @property
    def starts(self) -> tuple[str, ...]:
        """The markers that begin calls."""
        ...

    @property
    def ends(self) -> tuple[str, ...]:
        """The markers that end calls: one that comes late, or twice, is not shown."""
        ...

    @property
    def bare(self) -> frozenset[str]:
        """Those of `starts` that are ordinary text too, such as `{`: only the name of an offered tool makes them calls."""
        ...

    @property
    def markup(self) -> tuple[str, ...]:
        """All texts that may be special tokens, which an engine must not leave out."""
        ...

    @property
    def trigger(self) -> str | None:
        """What calls begin with and nothing else does; None: there is no such text."""
        ...

    @property
    def sectioned(self) -> bool:
        """Several calls stand in one pair of outer markers."""
        ...

    def reader(
        self, marker: str, accept: Accept | None, tools: Mapping[str, ToolDefinition]
    ) -> CallReader:
        """A reader for what follows `marker`. `accept` None: any name will do. `tools` by name: their schemas type values."""
        ...

    def write(self, calls: Sequence[CallPiece]) -> str:
        """Calls in a row, as the model writes them."""
        ...

    def constraint(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        """One call of `tools`, or several if `parallel`.

        `schemas`: arguments follow the tools' schemas; otherwise those of tools that are not strict are any object.
        Raises `Unsupported` for what the syntax cannot hold.
        """
        ...

"""Common base of the builders of searches that the gateway runs."""

from __future__ import annotations

from typing import ClassVar, Generic, Literal, TypeVar

from gateway.assembly.item_builders.announced import Announced, ProgressEvent
from gateway.assembly.item_builders.item import EndStatus, ServerCallBuilder
from gateway.protocols import ToolResult
from gateway.wire import items

SearchStatus = Literal["in_progress", "searching", "completed", "failed"]
ItemT = TypeVar("ItemT", bound=items.WebSearchCall | items.FileSearchCall)


class SearchCallBuilder(ServerCallBuilder, Generic[ItemT]):
    """Builds a search call. Query and results are in the finished item."""

    def __init__(self, item_id: str, name: str, *, shown: bool) -> None:
        """`shown`: whether the client requested the results with `include`."""
        super().__init__(item_id, name)
        self._shown = shown

    def _item(self, status: SearchStatus, result: ToolResult | None = None) -> ItemT:
        """The item in `status`."""
        raise NotImplementedError

    def finish(self, result: ToolResult) -> ItemT:
        return self._item("failed" if result.failed else "completed", result)

    def close(self, status: EndStatus) -> ItemT:
        return self._item("failed")


class AnnouncedSearchCall(Announced, SearchCallBuilder[ItemT]):
    """Announces a search by three events without content. The API has none for its arguments."""

    in_progress: ClassVar[ProgressEvent]
    searching: ClassVar[ProgressEvent]
    completed: ClassVar[ProgressEvent]

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        self._added(self._item("in_progress"))
        self._progress(self.in_progress)

    def running(self) -> None:
        self._progress(self.searching)

    def progressed(self) -> None:
        self._progress(self.searching)

    def finish(self, result: ToolResult) -> ItemT:
        self._progress(self.completed)
        item = super().finish(result)
        self._done(item)
        return item

    def close(self, status: EndStatus) -> ItemT:
        item = super().close(status)
        self._done(item)
        return item

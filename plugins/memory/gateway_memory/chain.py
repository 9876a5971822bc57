"""Histories as linked chains: each node holds a response's own items and a link to its predecessor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.sdk import CallRecord
from gateway.sdk.wire import Item


class Node:
    """The items of one response and the results of its calls. Immutable, shared by all descendants.

    A conversation of n responses therefore takes n nodes, not n² items. A node outlives its response for as long
    as a descendant needs it. `broken` is true if the predecessor was no longer stored when this response was.
    """

    __slots__ = ("broken", "items", "parent", "results", "size", "texts", "users")

    def __init__(
        self,
        items: Sequence[Item],
        results: Mapping[str, CallRecord],
        size: int,
        parent: Node | None,
        *,
        texts: Sequence[str] = (),
        broken: bool = False,
    ) -> None:
        self.items = items
        self.results = results
        self.size = size
        """Bytes of the items and results, without `texts`."""
        self.texts = texts
        """The large texts in the items, which are shared."""
        self.parent = parent
        self.broken = broken
        self.users = 0
        """Number of responses and nodes that refer to this one."""
        if parent is not None:
            parent.users += 1

    def history(self) -> list[Item] | None:
        """All items, oldest first, or None if the chain is broken."""
        parts: list[Sequence[Item]] = []
        node: Node | None = self
        while node is not None:
            if node.broken:
                return None
            parts.append(node.items)
            node = node.parent
        return [item for part in reversed(parts) for item in part]


def release(node: Node) -> list[Node]:
    """Release one reference to `node`. Returns the nodes that became unused: the node itself and any of its
    ancestors."""
    freed: list[Node] = []
    node.users -= 1
    while node.users == 0:
        freed.append(node)
        parent, node.parent = node.parent, None
        if parent is None:
            break
        parent.users -= 1
        node = parent
    return freed

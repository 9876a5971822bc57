"""Histories as linked chains: a response's own items, and a link to what came before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.protocols import CallRecord
from gateway.wire.items import Item


class Node:
    """The items of one response, and the results of its calls, immutable, shared by all its descendants.

    So a conversation of n responses takes n nodes, not n² items, and a node outlives its response for as long as a
    descendant needs it. `broken` says that what came before was no longer stored when this one was.
    """

    __slots__ = ("broken", "items", "parent", "results", "size", "users")

    def __init__(
        self,
        items: Sequence[Item],
        results: Mapping[str, CallRecord],
        size: int,
        parent: Node | None,
        *,
        broken: bool = False,
    ) -> None:
        self.items = items
        self.results = results
        self.size = size
        self.parent = parent
        self.broken = broken
        self.users = 0
        """Responses and nodes that refer to this one."""
        if parent is not None:
            parent.users += 1

    def history(self) -> list[Item] | None:
        """All items from the first on; None where the chain is broken."""
        parts: list[Sequence[Item]] = []
        node: Node | None = self
        while node is not None:
            if node.broken:
                return None
            parts.append(node.items)
            node = node.parent
        return [item for part in reversed(parts) for item in part]


def release(node: Node) -> list[Node]:
    """Take one user from a node; returns the nodes that nobody needs now, among it and its ancestors."""
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

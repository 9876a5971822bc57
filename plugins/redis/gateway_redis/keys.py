"""The names of keys. See the module `gateway_redis` for what they hold."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote


class Keys:
    """All keys of one prefix. What belongs to one thing has one hash tag, and so one slot of a cluster."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.index = f"{prefix}:{{index}}"
        self.leases = [f"{prefix}:{{leases}}", f"{prefix}:{{leases}}:holders"]
        self.log = lru_cache(4096)(self._log)
        """The record and its events; asked for with every event."""
        self.cancel = f"{prefix}:{{cancel}}"
        self.all_completions = f"{prefix}:{{completions}}"

    def response(self, response_id: str) -> list[str]:
        """The record, its events and its children."""
        record = self.record(response_id)
        return [record, f"{record}:events", f"{record}:children"]

    def record(self, response_id: str) -> str:
        return f"{self._prefix}:{{{_tag(response_id)}}}"

    def _log(self, response_id: str) -> tuple[str, str]:
        record = self.record(response_id)
        return record, f"{record}:events"

    def conversation(self, conversation_id: str) -> list[str]:
        """The conversation, its items and their order."""
        own = f"{self._prefix}:conversation:{{{_tag(conversation_id)}}}"
        return [own, f"{own}:items", f"{own}:order"]

    def completion(self, completion_id: str) -> str:
        return f"{self._prefix}:completion:{{{_tag(completion_id)}}}"

    def completions(self, owner: bytes) -> str:
        """The completions of an owner, by time."""
        return f"{self._prefix}:completions:{owner.decode()}"

    def item(self, item_id: str, owner: str | None) -> str:
        """The responses of an owner that hold an item."""
        return f"{self._prefix}:item:{{{_tag(item_id)}}}:{'' if owner is None else '=' + owner}"

    def wake(self, process: str) -> str:
        """The stream by which a process wakes itself."""
        return f"{self._prefix}:{{wake}}:{process}"


def _tag(name: str) -> str:
    """A name as a hash tag: braces would end it, and an empty one is none."""
    return name if name.isidentifier() else quote(name, safe=":@") or "%"

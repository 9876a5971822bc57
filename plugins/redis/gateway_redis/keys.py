"""Names of keys. The docstring of `gateway_redis` describes their contents."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from gateway.sdk import UsageWidth


class Keys:
    """All keys of one prefix. Keys of one object share a hash tag, and therefore a slot of a cluster."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.ledger = f"{prefix}:{{ledger}}"
        self.leases = [f"{prefix}:{{leases}}", f"{prefix}:{{leases}}:holders"]
        self.log = lru_cache(4096)(self._log)
        """The keys of the record and its events; cached because they are used for every event."""
        self.cancel = f"{prefix}:{{cancel}}"
        self.health = f"{prefix}:{{health}}"

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
        """The completions of an owner, ordered by time."""
        return f"{self._prefix}:completions:{owner.decode()}"

    def item(self, item_id: str, owner: str | None) -> str:
        """The responses of an owner that contain an item."""
        return f"{self._prefix}:item:{{{_tag(item_id)}}}:{_owner(owner)}"

    def part(self, name: str, owner: bytes) -> list[str]:
        """A large part of an owner's responses, and its uses."""
        own = f"{self._prefix}:part:{{{name}{_tag(owner.decode())}}}"
        return [own, f"{own}:uses"]

    def values(self, name: str, owner: str | None) -> list[str]:
        """A shared value, the expiry times of the owner's values, and their sizes."""
        own = f"{self._prefix}:values:{{{_tag(_owner(owner))}}}"
        return [f"{own}:value:{name}", own, f"{own}:sizes"]

    def limits(self, principal: str) -> list[str]:
        """The counters of a principal, and its running requests."""
        own = f"{self._prefix}:limits:{{{_tag(principal)}}}"
        return [own, f"{own}:running"]

    def usage(self, width: UsageWidth, bucket: int, batch: str) -> list[str]:
        """The sums of a minute, hour or day, and the mark of a batch that was added to them."""
        own = f"{self._prefix}:usage:{{{bucket if width == '1d' else f'{width}:{bucket}'}}}"
        return [own, f"{own}:batch:{batch}"]

    def wake(self, process: str) -> str:
        """The stream by which a process interrupts its own blocking read."""
        return f"{self._prefix}:{{wake}}:{process}"


def stored_owner(owner: str | None) -> bytes:
    """An owner as records and keys have it. No name of an owner gives that of nobody."""
    return _owner(owner).encode()


def _owner(owner: str | None) -> str:
    return "" if owner is None else f"={owner}"


def _tag(name: str) -> str:
    """A name as a hash tag. Braces would end the tag, and an empty tag has no effect."""
    return name if name.isidentifier() else quote(name, safe=":@") or "%"

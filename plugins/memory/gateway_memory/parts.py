"""Large texts in stored values, such as images in base64, each kept once for its owner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from gateway.sdk.stores import LARGE
from gateway.sdk.wire import encode
from gateway_memory.shares import OwnerUsage

T = TypeVar("T")


class Held(msgspec.Struct, frozen=True):
    """Values whose large texts are shared."""

    values: Sequence[Any]
    texts: Sequence[str]
    """The large texts in the values, one of which may occur several times. Released with `PartTable.release`."""
    size: int
    """Bytes of the values as JSON, without the large texts."""

    @property
    def whole_size(self) -> int:
        """Bytes of the values as JSON."""
        return self.size + sum(map(len, self.texts))


class PartTable:
    """The large texts of all owners, and how often each is used."""

    def __init__(self, bytes_used: OwnerUsage) -> None:
        """`bytes_used` is updated with the size of the texts: each counts once for an owner."""
        self._bytes_used = bytes_used
        self._texts: dict[tuple[str | None, str], tuple[str, int]] = {}

    def hold(self, owner: str | None, values: Iterable[T]) -> Held:
        """The same values with shared texts, to be released when they are removed."""
        shared: list[T] = []
        texts: list[str] = []
        size = 0
        for value in values:
            encoded = len(encode(value))
            size += encoded
            shared.append(value if encoded < LARGE else self._shared(owner, value, texts))
        return Held(shared, texts, size - sum(map(len, texts)))

    def release(self, owner: str | None, texts: Iterable[str]) -> None:
        for text in texts:
            kept, uses = self._texts[owner, text]
            if uses > 1:
                self._texts[owner, text] = kept, uses - 1
            else:
                del self._texts[owner, text]
                self._bytes_used.add(owner, -len(text))

    def _shared(self, owner: str | None, value: T, texts: list[str]) -> T:
        """`value`, or a copy in which texts that are kept already are those."""
        changed: Any = value
        match value:
            case str() if len(value) >= LARGE:
                kept, uses = self._texts.get((owner, value), (value, 0))
                self._texts[owner, kept] = kept, uses + 1
                if not uses:
                    self._bytes_used.add(owner, len(kept))
                texts.append(kept)
                changed = kept
            case list() | tuple():
                changed = type(value)(self._shared(owner, each, texts) for each in value)
            case dict():
                changed = {name: self._shared(owner, each, texts) for name, each in value.items()}
            case msgspec.Struct():
                fields = {name: getattr(value, name) for name in value.__struct_fields__}
                new = {name: self._shared(owner, each, texts) for name, each in fields.items()}
                if any(new[name] is not each for name, each in fields.items()):
                    changed = msgspec.structs.replace(value, **new)
            case _:
                pass
        return cast("T", changed)

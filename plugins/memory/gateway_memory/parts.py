"""Large texts in stored values, such as images in base64, each kept once for its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from gateway.sdk.stores import LARGE
from gateway.sdk.wire import encode
from gateway_memory.shares import OwnerUsage

T = TypeVar("T")
_LARGE: Final = 65_536
"""Bytes of values as JSON above which texts are looked for in a thread."""


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

    async def shared(self, owner: str | None, values: Sequence[T]) -> Held:
        """The same values, with the texts that are kept already instead of equal ones. To be kept by `keep`."""
        sizes: list[int] = []
        if _is_small(values, sizes):
            return self._share(owner, values, sizes)
        held = await asyncio.to_thread(self._share, owner, values, sizes)
        return self._share(owner, values, sizes) if self._has_others(owner, [held]) else held

    async def each_shared(self, owner: str | None, values: Sequence[T]) -> list[Held]:
        """Like `shared`, for each value by itself."""
        sizes: list[int] = []
        if _is_small(values, sizes):
            return self._share_each(owner, values, sizes)
        each = await asyncio.to_thread(self._share_each, owner, values, sizes)
        return self._share_each(owner, values, sizes) if self._has_others(owner, each) else each

    def _has_others(self, owner: str | None, made: Iterable[Held]) -> bool:
        """Whether an equal text of somebody else was kept while a thread worked."""
        return any(
            self._texts.get((owner, text), (text, 0))[0] is not text
            for held in made
            for text in held.texts
        )

    def keep(self, owner: str | None, held: Held) -> None:
        """Keep the texts of values that are stored now. They are released when the values are removed."""
        for text in held.texts:
            kept, uses = self._texts.get((owner, text), (text, 0))
            self._texts[owner, kept] = kept, uses + 1
            if not uses:
                self._bytes_used.add(owner, len(kept))

    def release(self, owner: str | None, texts: Iterable[str]) -> None:
        for text in texts:
            kept, uses = self._texts[owner, text]
            if uses > 1:
                self._texts[owner, text] = kept, uses - 1
            else:
                del self._texts[owner, text]
                self._bytes_used.add(owner, -len(text))

    # What follows may run in a thread: it changes nothing, and each look at the table is one operation.

    def _share(self, owner: str | None, values: Sequence[T], sizes: list[int]) -> Held:
        """`sizes` are those of the first values."""
        sizes += [len(encode(value)) for value in values[len(sizes) :]]
        return self._shared(owner, values, sizes, {})

    def _shared(
        self, owner: str | None, values: Sequence[T], sizes: Sequence[int], own: dict[str, str]
    ) -> Held:
        """`own` are the texts that are not kept yet, of these values and of others that are to be kept with them."""
        texts: list[str] = []
        shared = [
            value if size < LARGE else self._with_shared(owner, value, texts, own)
            for value, size in zip(values, sizes, strict=True)
        ]
        return Held(shared, texts, sum(sizes) - sum(map(len, texts)))

    def _share_each(self, owner: str | None, values: Sequence[T], sizes: list[int]) -> list[Held]:
        sizes += [len(encode(value)) for value in values[len(sizes) :]]
        own: dict[str, str] = {}
        return [
            self._shared(owner, [value], [size], own)
            for value, size in zip(values, sizes, strict=True)
        ]

    def _with_shared(
        self, owner: str | None, value: Any, texts: list[str], own: dict[str, str]
    ) -> Any:
        """`value`, or a copy in which texts that are kept already are those. Adds its large texts to `texts`; `own` are the texts
        that are not kept yet."""
        match value:
            case str():
                if len(value) < LARGE:
                    return value
                known = self._texts.get((owner, value))
                kept = own.setdefault(value, value) if known is None else known[0]
                texts.append(kept)
                return kept
            case list() | tuple():
                return type(value)([self._with_shared(owner, each, texts, own) for each in value])
            case dict():
                return {
                    name: self._with_shared(owner, each, texts, own) for name, each in value.items()
                }
            case msgspec.Struct():
                fields = {name: getattr(value, name) for name in value.__struct_fields__}
                new = {
                    name: self._with_shared(owner, each, texts, own)
                    for name, each in fields.items()
                }
                if any(new[name] is not each for name, each in fields.items()):
                    return msgspec.structs.replace(value, **new)
        return value


def _is_small(values: Sequence[Any], sizes: list[int]) -> bool:
    """Whether the values are at most 64 KiB as JSON. Adds the sizes of the first ones to `sizes`, of all if so."""
    total = 0
    for value in values:
        sizes.append(size := len(encode(value)))
        total += size
        if total > _LARGE:
            return False
    return True

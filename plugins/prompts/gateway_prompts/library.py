"""The prompts of API keys, as shared values of the gateway's store: one value for each prompt, and one with their ids.

Changes are compare-and-set, so that gateways with one store do not lose each other's.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from gateway.sdk import Conflict, InvalidRequest, NotFound, SharedValues
from gateway_prompts.config import PromptsConfig

T = TypeVar("T")

_LIST: Final = "prompts:list"
_FOREVER: Final = 100 * 365 * 86_400.0
_DELETED: Final = b"null"
"""The value of a deleted prompt until it expires, because values are not deleted."""
_DELETED_SECONDS: Final = 1.0
_ATTEMPTS: Final = 20
_AT_ONCE: Final = 16
_ID: Final = re.compile(r"pmpt_[0-9a-f]{48}")


class Version(Struct, frozen=True, kw_only=True):
    """One version of a prompt."""

    prompt: str
    variables: Sequence[str] = ()


class PromptRecord(Struct, frozen=True, kw_only=True):
    """A prompt with its versions, which are numbered from 1."""

    default: int
    versions: Sequence[Version]


class PromptLibrary:
    """The prompts of all owners."""

    def __init__(self, values: SharedValues, config: PromptsConfig) -> None:
        self._values = values
        self._config = config

    async def create(self, owner: str | None, version: Version) -> tuple[str, PromptRecord]:
        """Store a new prompt. Returns it with its id. Raises `InvalidRequest` if a limit is exceeded."""
        prompt_id = f"pmpt_{secrets.token_hex(24)}"
        record = PromptRecord(default=1, versions=[version])
        encoded = self._encoded(record)

        def added(ids: list[str]) -> list[str]:
            if len(ids) >= self._config.max_prompts:
                raise InvalidRequest(
                    f"You have {len(ids)} prompts, this server's limit. Delete some.",
                    code="too_many_prompts",
                )
            return [*ids, prompt_id]

        # The list comes first: what it names and is not there is left out.
        await self._change_list(owner, added)
        set_now = await self._values.compare_and_set(
            _name(prompt_id), encoded, expected=None, seconds=_FOREVER, owner=owner
        )
        if set_now != encoded:
            await self._change_list(owner, lambda ids: [each for each in ids if each != prompt_id])
            raise _full()
        return prompt_id, record

    async def find(self, owner: str | None, prompt_id: str) -> PromptRecord | None:
        """The prompt; None if the owner has none of that id."""
        if not _ID.fullmatch(prompt_id):
            return None
        return _decoded(await self._values.get_value(_name(prompt_id), owner=owner))

    async def all(self, owner: str | None) -> list[tuple[str, PromptRecord]]:
        """All prompts of an owner with their ids, the latest first."""
        held = await self._values.get_value(_LIST, owner=owner)
        ids = _ids(held)[::-1]
        records: list[PromptRecord | None] = []
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            records += await asyncio.gather(*(self.find(owner, each) for each in some))
        return [
            (each, record) for each, record in zip(ids, records, strict=True) if record is not None
        ]

    async def change(
        self, owner: str | None, prompt_id: str, change: Callable[[PromptRecord], PromptRecord]
    ) -> PromptRecord:
        """Replace a prompt by what `change` makes of it. Raises `NotFound`, and what `change` raises."""
        for _ in range(_ATTEMPTS):
            held = (
                await self._values.get_value(_name(prompt_id), owner=owner)
                if _ID.fullmatch(prompt_id)
                else None
            )
            record = _decoded(held)
            if record is None:
                raise no_such_prompt(prompt_id)
            changed = change(record)
            encoded = self._encoded(changed)
            now = await self._values.compare_and_set(
                _name(prompt_id), encoded, expected=held, seconds=_FOREVER, owner=owner
            )
            if now == encoded:
                return changed
            if now == held:
                raise _full()
        raise _busy()

    async def delete(self, owner: str | None, prompt_id: str) -> None:
        """Delete a prompt with all its versions. Raises `NotFound`."""
        for _ in range(_ATTEMPTS):
            held = (
                await self._values.get_value(_name(prompt_id), owner=owner)
                if _ID.fullmatch(prompt_id)
                else None
            )
            if _decoded(held) is None:
                raise no_such_prompt(prompt_id)
            now = await self._values.compare_and_set(
                _name(prompt_id), _DELETED, expected=held, seconds=_DELETED_SECONDS, owner=owner
            )
            if now == _DELETED:
                break
        else:
            raise _busy()
        await self._change_list(owner, lambda ids: [each for each in ids if each != prompt_id])

    async def _change_list(
        self, owner: str | None, change: Callable[[list[str]], list[str]]
    ) -> None:
        for _ in range(_ATTEMPTS):
            held = await self._values.get_value(_LIST, owner=owner)
            encoded = msgspec.json.encode(change(_ids(held)))
            if encoded == held:
                return
            now = await self._values.compare_and_set(
                _LIST, encoded, expected=held, seconds=_FOREVER, owner=owner
            )
            if now == encoded:
                return
            if now == held:
                raise _full()
        raise _busy()

    def _encoded(self, record: PromptRecord) -> bytes:
        if len(record.versions) > self._config.max_versions:
            raise InvalidRequest(
                f"A prompt has at most {self._config.max_versions} versions on this server. Create a new one.",
                code="too_many_prompt_versions",
            )
        encoded = msgspec.json.encode(record)
        if len(encoded) > self._config.max_bytes:
            raise InvalidRequest(
                f"The prompt with all its versions has {len(encoded)} bytes, more than the limit of "
                f"{self._config.max_bytes}.",
                param="prompt",
                code="string_above_max_length",
            )
        return encoded


def no_such_prompt(prompt_id: str) -> NotFound:
    """The error for an unknown prompt."""
    return NotFound(f"Prompt with id '{prompt_id[:100]}' not found.", code="prompt_not_found")


def _full() -> InvalidRequest:
    return InvalidRequest(
        "The store has no room for more of your prompts. Delete some.",
        code="storage_limit_exceeded",
    )


def _busy() -> Conflict:
    return Conflict("Other requests change the same prompts all the time. Try again.")


def _name(prompt_id: str) -> str:
    return f"prompts:{prompt_id}"


def _ids(held: bytes | None) -> list[str]:
    return [] if held is None else msgspec.json.decode(held, type=list[str])


def _decoded(held: bytes | None) -> PromptRecord | None:
    return None if held is None else msgspec.json.decode(held, type=PromptRecord | None)

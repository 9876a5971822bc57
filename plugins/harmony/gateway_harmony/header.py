"""Headers of messages: who speaks on which channel to whom. Read as meant, also where they are malformed."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from gateway_harmony.markers import PARTIAL

Channel: TypeAlias = Literal["analysis", "commentary", "final"]
CHANNELS: Final[tuple[Channel, ...]] = ("analysis", "commentary", "final")

LIMIT: Final = 256
"""Characters: what is longer is no header. Tool names have at most 128."""

_RECIPIENT = r"to=\s*(?P<{}>[^\s<{{]+)"
_WELL_FORMED = re.compile(
    r"(?:assistant)?(?: to=[\w.-]+)?<\|channel\|>(?:analysis|commentary|final)(?: to=[\w.-]+)?"
    r"(?:(?: ?<\|constrain\|>| )\w+)?"
)
_JUNK = re.compile(r"[\W\d_]*(?:(?:analysis|commentary)[\W\d_]*)*")
_CHANNEL = re.compile(r"<\|channel\|>\s*([^\s<]*)")
_BARE_CHANNEL = re.compile(r"\s*(?:assistant)?\s*(analysis|commentary|final)")
_ADDRESSEE = re.compile(_RECIPIENT.format("to"))
_BEGINNING = re.compile(
    r"\s*(?:assistant\b)?"
    rf"(?:\s*{_RECIPIENT.format('early')})?"
    r"(?:\s*<\|channel\|>\s*(?P<channel>analysis|commentary|final|\w*))?"
    rf"(?:\s*{_RECIPIENT.format('late')})?"
    r"(?:\s*<\|constrain\|>\s*[a-z]*|\s+(?:json|code)\b)?"
    r"\s*"
)
_HEADLESS = re.compile(
    r"\s*(?:assistant)?\s*(?:(?:analysis|commentary|final)\b)?(?:\s*to=[^\s<]+)?\s*(?:json|code)?\s*"
)
_PEOPLE = frozenset({"all", "assistant", "developer", "system", "user"})
_WORDS = ("assistant", "to=", "json", "code")
_LEFTOVERS = frozenset({"", "assistant", "json", "code", "<|endoftext|>", *CHANNELS})
_FIRST_WORDS = ("assistant", *CHANNELS)


class Header(Struct, frozen=True):
    """What a header says."""

    channel: str | None
    """A channel of `CHANNELS`, or another word as the model wrote it; None: it names none."""
    recipient: str | None
    """The tool that the message is for, as the model wrote it; None: it is for people."""
    well_formed: bool


def read_whole(text: str) -> Header:
    """The header that a `<|message|>` ended; `text` is all before that."""
    named = _CHANNEL.findall(text)
    channel = named[-1] if named else None
    if channel is None and (bare := _BARE_CHANNEL.match(text)):
        channel = bare[1]
    to = _ADDRESSEE.search(text)
    return Header(
        _known(channel), _tool(to["to"]) if to else None, _WELL_FORMED.fullmatch(text) is not None
    )


def read_beginning(text: str, pos: int, end: int) -> tuple[Header, int]:
    """The header at the beginning of `text[pos:end]`, which no `<|message|>` ends, and where its content begins."""
    found = _BEGINNING.match(text, pos, end)
    assert found is not None, "all of the pattern is optional"
    to = found["early"] or found["late"]
    return Header(_known(found["channel"]), _tool(to), well_formed=False), found.end()


def may_begin(text: str, *, whole: bool) -> bool:
    """Whether an output that begins with `text`, in which there is no marker, has a header or may yet have one.

    `whole`: a marker follows `text`.
    """
    said = text.lstrip()
    if whole:
        return said.startswith("to=") or said.rstrip() in ("", *_FIRST_WORDS)
    if not said or said in PARTIAL or "to=".startswith(said[:3]):
        return True
    for word in _FIRST_WORDS:
        if word.startswith(said):
            return True
        if said.startswith(word):
            rest = said[len(word) :].lstrip()
            return not rest or rest in PARTIAL
    return False


def is_headless(text: str) -> bool:
    """Whether `text`, behind which a marker of headers stands, is a header without the markers that begin one."""
    return _HEADLESS.fullmatch(text) is not None


def is_leftover(text: str) -> bool:
    """Whether `text`, found outside of messages, is a piece of a header that says nothing to a reader."""
    return text.strip() in _LEFTOVERS


def is_junk(text: str) -> bool:
    """Whether `text`, behind a channel and before an end marker, says nothing: punctuation, numbers and names of channels."""
    return _JUNK.fullmatch(text) is not None


def is_cut_short(text: str) -> bool:
    """Whether `text`, at the end of an output that stopped within a header, is still a part of it."""
    said = text.strip()
    return said in PARTIAL or any(word.startswith(said) for word in _WORDS)


def _known(channel: str | None) -> str | None:
    """The channel that was meant, by how it begins."""
    if not channel:
        return None
    for known in CHANNELS:
        if channel.startswith(known[:4]):
            return known
    return channel


def _tool(recipient: str | None) -> str | None:
    if recipient is None:
        return None
    name = recipient.strip("\"'`:,;?!()")
    return None if name in _PEOPLE or name.rstrip(".") in ("", "functions") else name

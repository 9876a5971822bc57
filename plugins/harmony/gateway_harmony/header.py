"""Parses message headers: author, channel and recipient. Malformed headers are interpreted leniently."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from gateway_harmony.markers import PARTIAL

Channel: TypeAlias = Literal["analysis", "commentary", "final"]
CHANNELS: Final[tuple[Channel, ...]] = ("analysis", "commentary", "final")

LIMIT: Final = 256
"""Maximum length of a header in characters. Tool names have at most 128."""

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
    """A parsed header."""

    channel: str | None
    """A channel of `CHANNELS`, or another word as the model wrote it; None if missing."""
    recipient: str | None
    """The recipient as the model wrote it; None if the message is for the user."""
    well_formed: bool


def read_whole(text: str) -> Header:
    """Parse a complete header. `text` is everything before its `<|message|>`."""
    named = _CHANNEL.findall(text)
    channel = named[-1] if named else None
    if channel is None and (bare := _BARE_CHANNEL.match(text)):
        channel = bare[1]
    to = _ADDRESSEE.search(text)
    return Header(
        _known(channel), _tool(to["to"]) if to else None, _WELL_FORMED.fullmatch(text) is not None
    )


def read_beginning(text: str, pos: int, end: int) -> tuple[Header, int]:
    """Parse the header at the start of `text[pos:end]`, which lacks a `<|message|>`. Also returns where its content
    starts."""
    found = _BEGINNING.match(text, pos, end)
    assert found is not None, "all of the pattern is optional"
    to = found["early"] or found["late"]
    return Header(_known(found["channel"]), _tool(to), well_formed=False), found.end()


def may_begin(text: str, *, whole: bool) -> bool:
    """Whether an output that starts with `text`, which contains no marker, has or may still have a header.

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
    """Whether `text`, which a header marker follows, is a header without its start markers."""
    return _HEADLESS.fullmatch(text) is not None


def is_leftover(text: str) -> bool:
    """Whether `text`, found outside messages, is a fragment of a header without content."""
    return text.strip() in _LEFTOVERS


def has_no_content(text: str) -> bool:
    """Whether `text`, between a channel and an end marker, has no content: punctuation, numbers or channel names."""
    return _JUNK.fullmatch(text) is not None


def is_cut_short(text: str) -> bool:
    """Whether `text`, at the end of an output that stopped within a header, still belongs to it."""
    said = text.strip()
    return said in PARTIAL or any(word.startswith(said) for word in _WORDS)


def _known(channel: str | None) -> str | None:
    """The intended channel, matched by prefix."""
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

"""How pages are shown to a model: numbered lines under a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from gateway.sdk import Source
from gateway_browser.documents import PageText, wrapped
from gateway_browser.providers import SearchHit

_MAX_MATCHES = 50


def results_document(query: str, hits: Sequence[SearchHit]) -> tuple[PageText, list[Source]]:
    """Hits as a document, and the sources of its lines; the cursor of the sources is set later."""
    lines: list[str] = []
    sources: list[Source] = []
    for number, hit in enumerate(hits):
        first = len(lines)
        host = urlsplit(hit.url).hostname or hit.url
        lines += wrapped(f"【{number}†{_clean(hit.title) or host}†{host}】")
        lines += wrapped(_clean(hit.snippet)) if hit.snippet else []
        sources.append(
            Source(cursor=-1, url=hit.url, title=hit.title, lines=(first, len(lines) - 1))
        )
        lines.append("")
    document = PageText(
        url="",
        title=f"Search results for: {query}",
        lines=tuple(lines[:-1]) or ("No results were found.",),
        links=tuple(hit.url for hit in hits),
    )
    return document, sources


def view(cursor: int, document: PageText, *, first: int, count: int, characters: int) -> str:
    """Show lines of a document, starting at `first`: `count` lines if positive, within `characters`, but at least
    one."""
    total = len(document.lines)
    first = min(max(first, 0), total - 1)
    last = first
    left = characters - len(document.lines[first])
    while last + 1 < total and (count <= 0 or last + 1 - first < count):
        left -= len(document.lines[last + 1]) + 6
        if left < 0:
            break
        last += 1
    shown = [f"L{number}: {document.lines[number]}" for number in range(first, last + 1)]
    head = [
        _title(cursor, document),
        f"**viewing lines [{first} - {last}] of {total - 1}**",
        "",
    ]
    return "\n".join((*head, *shown, "", _citing(cursor, first)))


def matching_lines(lines: Sequence[str], pattern: str) -> list[int]:
    """The numbers of the lines that contain `pattern`, ignoring case."""
    wanted = " ".join(pattern.split()).casefold()
    # A match may span lines, because lines are wrapped for display only.
    return [
        number
        for number, line in enumerate(lines)
        if wanted in line.casefold()
        or (
            number + 1 < len(lines)
            and wanted in f"{line} {lines[number + 1]}".casefold()
            and wanted not in lines[number + 1].casefold()
        )
    ]


def matches(
    cursor: int, document: PageText, pattern: str, found: Sequence[int], *, characters: int
) -> str:
    """The lines numbered `found`, which contain `pattern`, with their neighbours."""
    lines = document.lines
    parts = [_title(cursor, document), f"**{len(found)} matches for {pattern!r}**"]
    for number in found[:_MAX_MATCHES]:
        near = range(max(number - 1, 0), min(number + 3, len(lines)))
        part = "\n".join(f"L{each}: {lines[each]}" for each in near)
        characters -= len(part)
        if characters < 0:
            break
        parts += ("", part)
    if len(parts) < 3 and not found:
        return "\n".join(parts)
    shown = (len(parts) - 2) // 2
    if shown < len(found):
        parts += ("", f"(The first {shown} matches are shown.)")
    return "\n".join((*parts, "", _citing(cursor, found[0])))


def _title(cursor: int, document: PageText) -> str:
    where = f" ({document.url})" if document.url else ""
    return f"[{cursor}] {document.title}{where}"


def _citing(cursor: int, line: int) -> str:
    return f"(Cite a line of this as 【{cursor}†L{line}】, several as 【{cursor}†L{line}-L{line + 1}】.)"


def _clean(text: str) -> str:
    return text.replace("【", "〖").replace("】", "〗")

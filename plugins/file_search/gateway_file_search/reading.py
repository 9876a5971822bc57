"""A program: reads an HTML page or a PDF from standard input, writes its text as UTF-8 to standard output.

`reading.py html|pdf MEMORY_BYTES SECONDS MAX_CHARACTERS`. It runs by itself, so that a file that makes a parser hang or take all
memory ends this process only. Exit status 3: the file cannot be read, and standard error says why in a sentence.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from typing import Any, NoReturn

UNREADABLE = 3
_DEEPEST = 512
_PIECE = 16_384
_SKIPPED = frozenset({"audio", "canvas", "iframe", "math", "object", "script", "select", "style", "svg", "template", "video"})  # fmt: skip
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "div", "dl", "dt",
        "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav",
        "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "title", "tr", "ul",
    }
)  # fmt: skip


class TooDeep(Exception):
    """The page nests its elements deeper than browsers do."""


class HtmlText:
    """Takes what the parser finds: blocks become lines, headings those of Markdown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._text: list[str] = []
        self._skipped: list[str] = []
        self._depth = 0
        self._pre = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise TooDeep
        if tag in _SKIPPED:
            self._skipped.append(tag)
        if self._skipped:
            return
        if tag in ("td", "th") and self._text:
            self._text.append(" | ")
        elif tag in _BLOCKS:
            self._end_block()
            if tag == "pre":
                self._pre += 1
            elif tag == "li":
                self._text.append("* ")
            elif len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
                self.lines.append("")
                self._text.append("#" * int(tag[1]) + " ")

    def end(self, tag: str) -> None:
        self._depth -= 1
        if self._skipped:
            if tag == self._skipped[-1]:
                self._skipped.pop()
        elif tag in _BLOCKS:
            self._end_block()
            if tag == "pre":
                self._pre = max(self._pre - 1, 0)
            elif tag in ("p", "table", "ul", "ol"):
                self.lines.append("")

    def data(self, text: str) -> None:
        if not self._skipped:
            self._text.append(text)

    def comment(self, text: str) -> None:
        """Nothing to read."""

    def close(self) -> str:
        self._end_block()
        kept: list[str] = []
        for line in self.lines:
            if line or (kept and kept[-1]):
                kept.append(line)
        return "\n".join(kept)

    def _end_block(self) -> None:
        whole, self._text = "".join(self._text), []
        if self._pre:
            self.lines += [line.rstrip() for line in whole.strip("\n").splitlines()]
        elif (text := " ".join(whole.split())) and text != "*":
            self.lines.append(text)


def html_text(content: bytes) -> str:
    from lxml import etree  # type: ignore[import-untyped]

    target = HtmlText()
    utf8 = content.startswith(b"\xef\xbb\xbf") or _is_utf8(content)
    parser = etree.HTMLParser(target=target, huge_tree=False, encoding="utf-8" if utf8 else None)
    try:
        for start in range(0, len(content), _PIECE):
            parser.feed(content[start : start + _PIECE])
        if content:
            parser.close()
    except (TooDeep, etree.XMLSyntaxError):
        pass  # what was read so far
    return target.close()


def pdf_text(content: bytes, most: int) -> str:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            fail("The PDF is protected by a password.")
        parts: list[str] = []
        length = 0
        for page in reader.pages:
            parts.append(page.extract_text().strip())
            length += len(parts[-1])
            if length > most:
                break
    except DependencyError:
        fail("The PDF is encrypted.")
    except (PyPdfError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, OSError) as error:  # fmt: skip
        # What pypdf raises on files that are broken in ways that it does not look for.
        fail(f"The PDF is broken: {' '.join(str(error).split())[:200] or type(error).__name__}.")
    return "\n\n".join(part for part in parts if part)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def fail(reason: str) -> NoReturn:
    sys.stderr.write(reason)
    raise SystemExit(UNREADABLE)


def limit(memory: int, seconds: int) -> None:
    """Let this process take no more than that."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(arguments: list[str]) -> None:
    kind, memory, seconds, most = arguments[0], *map(int, arguments[1:])
    limit(memory, seconds)
    logging.disable()
    content = sys.stdin.buffer.read()
    readers: dict[str, Any] = {"html": html_text, "pdf": lambda data: pdf_text(data, most)}
    try:
        text: str = readers[kind](content)
    except MemoryError:
        fail("Reading it takes more memory than this server allows.")
    sys.stdout.buffer.write(text[: most + 1].encode("utf-8", "replace"))


if __name__ == "__main__":
    main(sys.argv[1:])

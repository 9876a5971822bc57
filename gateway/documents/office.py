"""Reads the text of Office Open XML: Word documents, Excel workbooks and PowerPoint presentations.

Archives and XML are untrusted. Parts are read in pieces, as a stream of elements, and counted as they are unpacked; the
archive's own sizes are not relied on. Document type declarations, which Office does not write, are refused, so there
are no entities to expand and nothing outside to load.
"""

from __future__ import annotations

import io
import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, Protocol
from xml.parsers import expat

from gateway.documents.failures import InvalidFile, UnsupportedFile, too_long

_MAX_BYTES: Final = 268_435_456
"""Unpacked bytes of all parts of one document together."""
_DEEPEST: Final = 256
_PIECE: Final = 65_536
_MAX_COLUMNS: Final = 16_384
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 1
_HEADING: Final = re.compile(r"heading ?([1-6])", re.IGNORECASE)
_KINDS: Final = "Of archives, Word documents (.docx), Excel workbooks (.xlsx) and presentations (.pptx) can be read."


class _Target(Protocol):
    """Receives the elements of a part, by their names without namespaces."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None: ...

    def end(self, name: str) -> None: ...

    def data(self, text: str) -> None: ...


def office_text(content: bytes, most: int) -> str:
    """The text of a document, of at most `most` characters. Raises `InvalidFile`."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _Package(archive).text(most)
    except expat.ExpatError as error:
        raise InvalidFile(f"The Office document is broken: {error}.") from None
    except (
        zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, NotImplementedError, OSError, RuntimeError,
        ValueError,
    ):  # fmt: skip
        # zipfile raises these errors on malformed archives.
        raise InvalidFile("The Office document is broken, or is not an archive.") from None


class _Package:
    """The parts of a document."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._names = frozenset(archive.namelist())
        self._left = _MAX_BYTES

    def text(self, most: int) -> str:
        main = next(self._targets("", "/officeDocument"), "")
        for folder, read in (("word", self._word), ("xl", self._excel), ("ppt", self._slides)):
            if main.startswith(f"{folder}/") and main in self._names:
                return read(main, most)
        raise UnsupportedFile(f"Files of this kind cannot be read. {_KINDS}")

    def _word(self, main: str, most: int) -> str:
        found = _Paragraphs(most)
        for name in (
            main,
            *(_relative_to(main, each) for each in ("footnotes.xml", "endnotes.xml")),
        ):
            if name in self._names:
                self._read(name, found)
        return found.text()

    def _slides(self, main: str, most: int) -> str:
        found = _Paragraphs(most)
        slides = self._in_order(main, "sldId", "/slide")
        for number, (_, name) in enumerate(slides, 1):
            found.add(f"# Slide {number}")
            self._read(name, found)
            found.add("")
        return found.text()

    def _excel(self, main: str, most: int) -> str:
        shared = _SharedStrings(most)
        for name in self._targets(main, "/sharedStrings"):
            if name in self._names:
                self._read(name, shared)
        found = _Rows(shared.strings, most)
        for title, name in self._in_order(main, "sheet", "/worksheet"):
            found.add(f"# {title}")
            self._read(name, found)
            found.add("")
        return "\n".join(found.lines)

    def _in_order(self, main: str, element: str, kind: str) -> Iterator[tuple[str, str]]:
        """The parts that the elements of a main part refer to, each once, with their names."""
        relations = self._relations(main)
        wanted = _Elements(element)
        self._read(main, wanted)
        seen: set[str] = set()
        for attributes in wanted.found:
            number = next((v for k, v in attributes.items() if k.endswith("/relationships id")), "")
            found, target = relations.get(number, ("", ""))
            if found.endswith(kind) and target in self._names and target not in seen:
                seen.add(target)
                yield attributes.get("name", ""), target

    def _targets(self, part: str, kind: str) -> Iterator[str]:
        """The targets of a part's relations of a kind. The package itself is the part without a name."""
        return (target for found, target in self._relations(part).values() if found.endswith(kind))

    def _relations(self, part: str) -> dict[str, tuple[str, str]]:
        """Kind and target of a part's relations, by their ids."""
        folder, name = posixpath.split(part)
        path = posixpath.join(folder, "_rels", f"{name}.rels")
        if path not in self._names:
            return {}
        wanted = _Elements("Relationship")
        self._read(path, wanted)
        return {
            each.get("Id", ""): (
                each.get("Type", ""),
                posixpath.normpath(posixpath.join("/", folder, each.get("Target", "")))[1:],
            )
            for each in wanted.found
            if each.get("TargetMode") != "External"
        }

    def _read(self, name: str, target: _Target) -> None:
        """Parse a part, piece by piece."""
        entry = self._archive.getinfo(name)
        if entry.flag_bits & _ENCRYPTED:
            raise InvalidFile("The Office document is protected by a password.")
        if entry.compress_type not in _METHODS:
            raise InvalidFile(
                "The Office document is compressed in a way that Office does not use."
            )
        parser = _parser(target)
        with self._archive.open(entry) as part:
            while piece := part.read(_PIECE):
                self._left -= len(piece)
                if self._left < 0:
                    raise InvalidFile(
                        f"The Office document unpacks to more than {_MAX_BYTES} bytes."
                    )
                parser.Parse(piece, False)
        parser.Parse(b"", True)


def _parser(target: _Target) -> expat.XMLParserType:
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise InvalidFile("The Office document nests its elements too deep.")
        target.start(_local(name), attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        target.end(_local(name))

    def refuse(*_: object) -> None:
        raise InvalidFile("The Office document declares a document type, which Office does not.")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = target.data
    return parser


class _Elements:
    """The attributes of all elements of a name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.found: list[dict[str, str]] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == self._name:
            self.found.append(dict(attributes))

    def end(self, name: str) -> None:
        pass

    def data(self, text: str) -> None:
        pass


class _Counted:
    """Counts characters, and raises `InvalidFile` beyond the limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._length = 0

    def count(self, text: str) -> str:
        self._length += len(text) + 1
        if self._length > self._most + 1:
            raise too_long(self._most)
        return text


class _Paragraphs(_Counted):
    """Lines of Word documents and slides: headings and lists as in Markdown, rows of tables with `|`."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._lines: list[str] = []
        self._paragraphs: list[list[str]] = []
        """Open paragraphs; those of text boxes stand in others."""
        self._cells: list[list[str]] = []
        """The texts of open cells; those of nested tables stand in others."""
        self._rows: list[list[str]] = []
        self._in_text = False
        self._skipped = 0

    def add(self, line: str) -> None:
        self._lines.append(self.count(line))

    def text(self) -> str:
        return "\n".join(self._lines).strip("\n")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if (
            self._skipped or name == "Fallback"
        ):  # what older programs show in place of a choice before it
            self._skipped += 1
            return
        match name:
            case "p":
                self._paragraphs.append([])
            case "t":
                self._in_text = True
            case "tab" if self._paragraphs and self._paragraphs[-1]:
                self._paragraphs[-1].append("\t")
            case "br" | "cr" if self._paragraphs:
                self._paragraphs[-1].append("\n")
            case "pStyle" if self._paragraphs and not self._paragraphs[-1]:
                style = next((v for k, v in attributes.items() if _local(k) == "val"), "")
                if heading := _HEADING.match(style):
                    self._paragraphs[-1].append("#" * int(heading[1]) + " ")
            case "numPr" if self._paragraphs and not self._paragraphs[-1]:
                self._paragraphs[-1].append("* ")
            case "tr":
                self._rows.append([])
            case "tc":
                self._cells.append([])

    def end(self, name: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        match name:
            case "t":
                self._in_text = False
            case "p" if self._paragraphs:
                whole = "".join(self._paragraphs.pop()).rstrip()
                self._put(whole if whole.strip("#* ") else "")
            case "tc" if self._cells:
                cell = " ".join(each for each in self._cells.pop() if each)
                if self._rows:
                    self._rows[-1].append(cell.replace("\n", " "))
            case "tr" if self._rows:
                self._put(" | ".join(self._rows.pop()))

    def data(self, text: str) -> None:
        if self._in_text and self._paragraphs and not self._skipped:
            self._paragraphs[-1].append(self.count(text))

    def _put(self, text: str) -> None:
        lines = self._cells[-1] if self._cells else self._lines
        if text or (lines and lines[-1]):  # of empty lines in a row, one is kept
            lines.append(text)


class _SharedStrings(_Counted):
    """The strings of a workbook, to which its cells refer by number."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.strings: list[str] = []
        self._parts: list[str] = []
        self._in_text = False
        self._phonetic = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "si":
                self._parts = []
            case "rPh":
                self._phonetic = True
            case "t":
                self._in_text = not self._phonetic

    def end(self, name: str) -> None:
        match name:
            case "si":
                self.strings.append(self.count("".join(self._parts)))
            case "rPh":
                self._phonetic = False
            case "t":
                self._in_text = False

    def data(self, text: str) -> None:
        if self._in_text:
            self._parts.append(text)


class _Rows(_Counted):
    """The rows of worksheets, with `|` between cells. Numbers, also of dates, are as the file has them."""

    def __init__(self, strings: list[str], most: int) -> None:
        super().__init__(most)
        self.lines: list[str] = []
        self._strings = strings
        self._row: list[str] = []
        self._column = 0
        self._type = ""
        self._value: list[str] = []
        self._in_value = False

    def add(self, line: str) -> None:
        self.lines.append(self.count(line))

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "row":
                self._row = []
            case "c":
                self._column = _column_of(attributes.get("r", ""))
                self._type = attributes.get("t", "n")
                self._value = []
            case "v" | "t":
                self._in_value = True

    def end(self, name: str) -> None:
        match name:
            case "v" | "t":
                self._in_value = False
            case "c":
                self._end_cell()
            case "row" if self._row:
                self.lines.append(" | ".join(self._row))
                self._row = []

    def data(self, text: str) -> None:
        if self._in_value:
            self._value.append(text)

    def _end_cell(self) -> None:
        value = "".join(self._value)
        if not value or len(self._row) >= _MAX_COLUMNS:
            return
        match self._type:
            case "s":
                at = int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else -1
                value = self._strings[at] if 0 <= at < len(self._strings) else ""
            case "b":
                value = "TRUE" if value == "1" else "FALSE"
        while len(self._row) < self._column:
            self._append("")
        self._append(value.replace("\n", " "))

    def _append(self, cell: str) -> None:
        self.count(f"{cell}  ")  # with the separator
        self._row.append(cell)


def _column_of(reference: str) -> int:
    """The number of a cell's column (`C7`: 2)."""
    number = 0
    for letter in reference[:3]:
        if not "A" <= letter <= "Z":
            break
        number = number * 26 + ord(letter) - 64
    return min(max(number - 1, 0), _MAX_COLUMNS - 1)


def _relative_to(main: str, name: str) -> str:
    return posixpath.join(posixpath.dirname(main), name)


def _local(name: str) -> str:
    return name.rpartition(" ")[2]

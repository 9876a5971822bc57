"""The parts of Office Open XML packages: XML files of an archive, and the relations between them.

Archives and XML are untrusted. Parts are read in pieces, as a stream of elements, and counted as they are unpacked; the
archive's own sizes are not relied on. Document type declarations, which Office does not write, are refused, so there
are no entities to expand and nothing outside to load.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator, Mapping
from typing import Final, Protocol
from xml.parsers import expat

from gateway.documents.failures import InvalidFile

MAX_BYTES: Final = 268_435_456
"""Unpacked bytes of all parts of one document together."""
_DEEPEST: Final = 256
_PIECE: Final = 65_536
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 1


class Target(Protocol):
    """Receives the elements of a part, by their names without namespaces."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None: ...

    def end(self, name: str) -> None: ...

    def data(self, text: str) -> None: ...


class Package:
    """The parts of a document."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._names = frozenset(archive.namelist())
        self._left = MAX_BYTES

    def __contains__(self, part: str) -> bool:
        return part in self._names

    def read(self, part: str, target: Target) -> None:
        """Parse a part, piece by piece. Raises `InvalidFile`."""
        entry = self._archive.getinfo(part)
        if entry.flag_bits & _ENCRYPTED:
            raise InvalidFile("The Office document is protected by a password.")
        if entry.compress_type not in _METHODS:
            raise InvalidFile(
                "The Office document is compressed in a way that Office does not use."
            )
        parser = _parser(target)
        with self._archive.open(entry) as content:
            while piece := content.read(_PIECE):
                self._left -= len(piece)
                if self._left < 0:
                    raise InvalidFile(
                        f"The Office document unpacks to more than {MAX_BYTES} bytes."
                    )
                parser.Parse(piece, False)
        parser.Parse(b"", True)

    def elements(self, part: str, name: str) -> list[dict[str, str]]:
        """The attributes of all elements of a part that have a name."""
        wanted = _Elements(name)
        self.read(part, wanted)
        return wanted.found

    def related(self, part: str, kind: str) -> Iterator[str]:
        """The parts that a part's relations of a kind lead to. The package itself is the part without a name."""
        return (
            target
            for found, target in self._relations(part).values()
            if found.endswith(kind) and target in self._names
        )

    def in_order(self, part: str, element: str, kind: str) -> Iterator[tuple[str, str]]:
        """The parts that the elements of a part refer to, each once, with the elements' names."""
        relations = self._relations(part)
        seen: set[str] = set()
        for attributes in self.elements(part, element):
            number = next((v for k, v in attributes.items() if k.endswith("/relationships id")), "")
            found, target = relations.get(number, ("", ""))
            if found.endswith(kind) and target in self._names and target not in seen:
                seen.add(target)
                yield attributes.get("name", ""), target

    def _relations(self, part: str) -> dict[str, tuple[str, str]]:
        """Kind and target of a part's relations, by their ids."""
        folder, name = posixpath.split(part)
        path = posixpath.join(folder, "_rels", f"{name}.rels")
        if path not in self._names:
            return {}
        return {
            each.get("Id", ""): (
                each.get("Type", ""),
                posixpath.normpath(posixpath.join("/", folder, each.get("Target", "")))[1:],
            )
            for each in self.elements(path, "Relationship")
            if each.get("TargetMode") != "External"
        }


def attribute_of(attributes: Mapping[str, str], name: str) -> str:
    """An attribute by its name without namespace; empty if there is none."""
    return next((value for key, value in attributes.items() if _local(key) == name), "")


class _Elements:
    """Collects the attributes of all elements of a name."""

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


def _parser(target: Target) -> expat.XMLParserType:
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


def _local(name: str) -> str:
    return name.rpartition(" ")[2]

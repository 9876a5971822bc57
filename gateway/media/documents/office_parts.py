"""The parts of Office Open XML packages: XML files of an archive, and the relations between them.

Archives and XML are untrusted. Parts are read in pieces, as a stream of elements, and their bytes are counted while
they are unpacked; the sizes that the archive states are not relied on. Document type declarations, which Office does
not write, are refused, so there are no entities to expand and no external resources to load.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator, Mapping
from typing import Final, Protocol
from xml.parsers import expat

from gateway.media.documents.failures import InvalidFile

MAX_BYTES: Final = 268_435_456
"""Maximum number of unpacked bytes of all parts of one document together."""
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
        """The attributes of all elements of a part with the name `name`."""
        wanted = _Elements(name)
        self.read(part, wanted)
        return wanted.found

    def related(self, part: str, kind: str) -> Iterator[str]:
        """The parts to which `part` has relations of the kind `kind`. The package itself is the part with an empty
        name."""
        return (
            target
            for found, target in self._relations(part).values()
            if found.endswith(kind) and target in self._names
        )

    def in_order(self, part: str, element: str, kind: str) -> Iterator[tuple[str, str]]:
        """The parts to which the elements of a part refer, each once, with the `name` attributes of these elements."""
        relations = self._relations(part)
        seen: set[str] = set()
        for attributes in self.elements(part, element):
            number = next((v for k, v in attributes.items() if k.endswith("/relationships id")), "")
            found, target = relations.get(number, ("", ""))
            if found.endswith(kind) and target in self._names and target not in seen:
                seen.add(target)
                yield attributes.get("name", ""), target

    def _relations(self, part: str) -> dict[str, tuple[str, str]]:
        """The relations of a part: kind and target by id."""
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
    """The value of an attribute, by its name without a namespace; empty if it is missing."""
    return next((value for key, value in attributes.items() if _local(key) == name), "")


class _Elements:
    """Collects the attributes of all elements with one name."""

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

"""Reading the rows of Excel worksheets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from gateway.media.documents.failures import TextLimit

_MAX_COLUMNS: Final = 16_384
_MAX_FORMATS: Final = 65_536
"""Maximum number of cell formats that are read. Excel's limit is 65,490."""

TimeKind: TypeAlias = Literal["date", "duration"]
"""What a number of days is shown as."""

_DATE_FORMATS: Final = frozenset([*range(14, 23), *range(27, 37), 45, 47, *range(50, 59)])
"""Numbers of Excel's built-in formats for dates and times."""
_DURATION_FORMAT: Final = 46
_NO_CODE: Final = re.compile(r'"[^"]*"|\\.|[_*].|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE | re.DOTALL)  # fmt: skip
"""Parts of a format that are literal text, colours, conditions or locales."""
_LONGEST_FORMAT: Final = 1000
_LONGEST_NUMBER: Final = 32
_EPOCH: Final = datetime(1899, 12, 30)  # cells have no time zone
_EPOCH_1904: Final = datetime(1904, 1, 1)
_LEAP_DAY: Final = 60
"""Number of 29 February 1900, a day that exists only in Excel."""


class SharedStrings(TextLimit):
    """Reads the shared strings of a workbook, to which cells refer by number."""

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


class CellFormats:
    """Reads which cell formats of a workbook show numbers as dates and times."""

    def __init__(self) -> None:
        self.times: dict[str, TimeKind] = {}
        """The kind of each such format, by its number (the attribute `s` of a cell)."""
        self._own: dict[str, TimeKind | None] = {}
        """The kinds of the formats that the workbook defines, by id."""
        self._count = 0
        self._in_cells = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "numFmt" if len(self._own) < _MAX_FORMATS:
                self._own[attributes.get("numFmtId", "")] = kind_of_format(
                    attributes.get("formatCode", "")
                )
            case "cellXfs":
                self._in_cells = True
            case "xf" if self._in_cells and self._count < _MAX_FORMATS:
                if kind := self._kind(attributes.get("numFmtId", "")):
                    self.times[str(self._count)] = kind
                self._count += 1

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._in_cells = False

    def data(self, text: str) -> None:
        pass

    def _kind(self, number: str) -> TimeKind | None:
        if number in self._own:
            return self._own[number]
        known = _whole(number)
        if known in _DATE_FORMATS:
            return "date"
        return "duration" if known == _DURATION_FORMAT else None


def kind_of_format(code: str) -> TimeKind | None:
    """The kind of time that a format such as `dd.mm.yyyy` shows; None if it shows numbers (`0.00 "h"`)."""
    codes = _NO_CODE.sub("", code[:_LONGEST_FORMAT].partition(";")[0]).lower()
    if "[" in codes:
        return "duration"
    return "date" if any(letter in codes for letter in "dmyhs") else None


class SheetRows(TextLimit):
    """Reads the rows of worksheets, with `|` between cells. Dates and times are written as in ISO 8601 with a space
    between them, other numbers as in the file, and formulas as their last results."""

    def __init__(
        self,
        strings: Sequence[str],
        times: Mapping[str, TimeKind],
        most: int,
        *,
        since_1904: bool = False,
    ) -> None:
        """`times` is `CellFormats.times`. `since_1904`: whether days are counted from 1904, as on old Macs."""
        super().__init__(most)
        self.lines: list[str] = []
        self._strings = strings
        self._times = times
        self._since_1904 = since_1904
        self._row: list[str] = []
        self._column = 0
        self._type = ""
        self._time: TimeKind | None = None
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
                self._time = self._times.get(attributes.get("s", ""))
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
                at = _whole(value)
                value = self._strings[at] if 0 <= at < len(self._strings) else ""
            case "b":
                value = "TRUE" if value == "1" else "FALSE"
            case "n" if self._time is not None and len(value) <= _LONGEST_NUMBER:
                value = _time_text(value, self._time, since_1904=self._since_1904)
        while len(self._row) < self._column:
            self._append("")
        self._append(value.replace("\n", " "))

    def _append(self, cell: str) -> None:
        self.count(f"{cell}  ")  # with the separator
        self._row.append(cell)


@lru_cache(maxsize=4096)
def _time_text(value: str, kind: TimeKind, *, since_1904: bool) -> str:
    """Convert a number of days to a date, with a time if it has a fraction; a number below 1 to a time. Returns `value`
    if it is not such a number."""
    try:
        seconds = round(float(value) * 86_400)
        if seconds < 0:
            return value
        if kind == "duration":
            return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        days, rest = divmod(seconds, 86_400)
        if not since_1904 and days < _LEAP_DAY:
            days += 1
        day = (_EPOCH_1904 if since_1904 else _EPOCH) + timedelta(days=days, seconds=rest)
    except (OverflowError, ValueError):
        return value
    if seconds < 86_400:
        return day.time().isoformat()
    return day.isoformat(" ") if rest else day.date().isoformat()


def _whole(text: str) -> int:
    """The number that a short text of digits represents; -1 for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1


def _column_of(reference: str) -> int:
    """The number of a cell's column, from 0 (`C7`: 2)."""
    number = 0
    for letter in reference[:3]:
        if not "A" <= letter <= "Z":
            break
        number = number * 26 + ord(letter) - 64
    return min(max(number - 1, 0), _MAX_COLUMNS - 1)

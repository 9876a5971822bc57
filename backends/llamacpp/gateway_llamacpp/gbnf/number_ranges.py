"""Converts numeric bounds to GBNF over digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from msgspec import Struct

from gateway.sdk import InvalidRequest, Unsupported
from gateway_llamacpp.gbnf.json_text import DIGITS_MOST
from gateway_llamacpp.gbnf.rules import one_of

_LARGEST = Decimal(10**DIGITS_MOST - 1)
_DECIMALS_MOST = 8


class Bounds(Struct, frozen=True):
    """Lower and upper bound; either may be None or exclusive."""

    low: Decimal | None
    high: Decimal | None
    above: bool = False
    """Whether `low` is exclusive."""
    below: bool = False
    """Whether `high` is exclusive."""

    def scaled(self, decimals: int) -> tuple[int, int]:
        """The bounds of the integers k for which k / 10^decimals is in range. Missing bounds become very large
        numbers."""
        scale = Decimal(10) ** decimals
        low = -_LARGEST * scale if self.low is None else self.low * scale
        high = _LARGEST * scale if self.high is None else self.high * scale
        first = int(low.to_integral_value(ROUND_CEILING))
        last = int(high.to_integral_value(ROUND_FLOOR))
        return first + (self.above and first == low), last - (self.below and last == high)


def bounds_of(schema: Mapping[str, Any]) -> Bounds:
    """The bounds in the keywords of a JSON schema."""
    low, above = _bound(schema, "minimum", "exclusiveMinimum", highest=True)
    high, below = _bound(schema, "maximum", "exclusiveMaximum", highest=False)
    return Bounds(low, high, above, below)


def _bound(
    schema: Mapping[str, Any], keyword: str, exclusive: str, *, highest: bool
) -> tuple[Decimal | None, bool]:
    """The tighter of an inclusive and an exclusive bound, and whether it is exclusive. Supports draft 4's booleans."""
    plain, strict = schema.get(keyword), schema.get(exclusive)
    if isinstance(strict, bool):
        return (None if plain is None else Decimal(str(plain))), strict
    if strict is None or plain is None:
        value = plain if strict is None else strict
        return (None if value is None else Decimal(str(value))), strict is not None
    if plain == strict:
        return Decimal(str(strict)), True
    tighter = max(plain, strict) if highest else min(plain, strict)
    return Decimal(str(tighter)), tighter == strict


def integers(bounds: Bounds) -> str:
    """The integers within `bounds`. Raises `InvalidRequest` if there are none."""
    return _any_of(_signed(*bounds.scaled(0), 0))


def numbers(bounds: Bounds) -> str:
    """Numbers within `bounds`, with and without decimals.

    Fractions have as many decimals as the bounds, at least three. Raises `Unsupported` for bounds with too many
    decimals.
    """
    decimals = max(3, *(_decimals(bound) for bound in (bounds.low, bounds.high)))
    if decimals > _DECIMALS_MOST:
        raise Unsupported(
            f"llamacpp enforces bounds of at most {_DECIMALS_MOST} decimals.", param="schema"
        )
    options: list[str] = []
    for places in range(decimals + 1):
        options += _signed(*bounds.scaled(places), places)
    return _any_of(iter(options))


def _decimals(bound: Decimal | None) -> int:
    if bound is None:
        return 0
    exponent = bound.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else _DECIMALS_MOST + 1


def _any_of(options: Iterator[str]) -> str:
    found = list(options)
    if not found:
        raise InvalidRequest("The schema has bounds that no number satisfies.", param="schema")
    return one_of(found)


def _signed(low: int, high: int, places: int) -> Iterator[str]:
    if low < 0:
        for option in _unsigned(max(1, -high), -low, places):
            yield f'"-" {option}'
    if high >= 0:
        yield from _unsigned(max(0, low), high, places)


def _unsigned(low: int, high: int, places: int) -> Iterator[str]:
    """The digit strings of low..high, with a decimal point before the last `places` digits."""
    if low > high:
        return
    for length in range(len(_digits(low, places)), len(_digits(high, places)) + 1):
        first = max(low, int("1" + "0" * (length - 1)) if length > places + 1 else 0)
        last = min(high, int("9" * length))
        if first <= last:
            yield _between(_with_point(first, places, length), _with_point(last, places, length))


def _digits(value: int, places: int) -> str:
    return str(value).rjust(places + 1, "0")


def _with_point(value: int, places: int, length: int) -> str:
    digits = str(value).rjust(length, "0")
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits


def _between(low: str, high: str) -> str:
    """The digit strings from `low` to `high`, which have the same length and position of the point."""
    same = 0
    while same < len(low) and low[same] == high[same]:
        same += 1
    head = f'"{low[:same]}"' if same else ""
    low, high = low[same:], high[same:]
    if not low:
        return head
    options = []
    first, last = int(low[0]), int(high[0])
    zeros, nines = _repeated_digit(low[1:], "0"), _repeated_digit(high[1:], "9")
    if low[1:] != zeros:
        options.append(_joined(f'"{first}"', _between(low[1:], _repeated_digit(low[1:], "9"))))
        first += 1
    if high[1:] != nines:
        options.append(_joined(f'"{last}"', _between(zeros, high[1:])))
        last -= 1
    if first <= last:
        digits = f"[{first}-{last}]" if first < last else f'"{first}"'
        options.append(_joined(digits, _any_digits(low[1:])))
    return _joined(head, one_of(options))


def _repeated_digit(text: str, digit: str) -> str:
    return "".join(digit if character != "." else "." for character in text)


def _any_digits(text: str) -> str:
    """As many arbitrary digits as `text` has, with its decimal point."""
    before, point, after = text.partition(".")
    parts = [f"[0-9]{{{len(part)}}}" if part else "" for part in (before, after)]
    return " ".join(part for part in (parts[0], '"."' if point else "", parts[1]) if part)


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)

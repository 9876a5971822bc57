"""`gateway usage`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from math import floor, log10
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from gateway.commands.api_client import ApiClient, ApiError
from gateway.commands.arguments import API_DEFAULT, Commands, api_url, table
from gateway.commands.terminal_text import one_line

_DAY: Final = 86_400
_WIDTHS: Final = {"day": ("1d", _DAY, 31), "hour": ("1h", 3600, 168), "minute": ("1m", 60, 1440)}
"""For each width by name: the `bucket_width`, its seconds, and the maximum number of buckets on a page."""

_MAX_PAGES: Final = 1000


class _Amount(Struct):
    value: float
    currency: str


class _Result(Struct):
    """A result of any of the three endpoints for usage and costs."""

    api_key_id: str | None = None
    model: str | None = None
    line_item: str | None = None
    num_model_requests: int = 0
    input_tokens: int = 0
    input_cached_tokens: int = 0
    output_tokens: int = 0
    output_reasoning_tokens: int = 0
    amount: _Amount | None = None


class _Bucket(Struct):
    start_time: int
    results: list[_Result]


class _Page(Struct):
    data: list[_Bucket]
    next_page: str | None = None


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "usage",
        help="what each key has used of each model, and what it cost",
        description="Show what each key has used of each model of a running server, by day, hour or minute. Needs a key with admin = true.",
    )
    parser.add_argument(
        "--days", type=_days, default=7, metavar="N", help="the last N days, today included (default: 7)"
    )  # fmt: skip
    parser.add_argument(
        "--by", choices=tuple(_WIDTHS), default="day", help="(default: day). Servers keep hours for two weeks, and minutes for two days"
    )  # fmt: skip
    parser.add_argument("--url", help=f"the API ({API_DEFAULT})")
    parser.add_argument(
        "--api-key", metavar="KEY", help="(default: $OPENAI_ADMIN_KEY, else $OPENAI_API_KEY)"
    )
    parser.set_defaults(command=run)


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:5]) <= 400:
        raise argparse.ArgumentTypeError("a number of days from 1 to 400")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Print tables. Returns 1 if the server does not answer."""
    try:
        _print(arguments)
    except ApiError as error:
        print(f"gateway: {one_line(str(error))}", file=sys.stderr)
        return 1
    return 0


def _print(arguments: argparse.Namespace) -> None:
    environ = os.environ
    client = ApiClient(
        api_url(arguments.url, environ),
        arguments.api_key or environ.get("OPENAI_ADMIN_KEY") or environ.get("OPENAI_API_KEY") or "",
    )
    start = (int(time.time()) // _DAY - arguments.days + 1) * _DAY
    width, seconds, limit = _WIDTHS[arguments.by]
    rows = [[arguments.by, "key", "model", "requests", "input", "cached", "output", "reasoning"]]
    for kind in ("completions", "embeddings"):
        path = f"/organization/usage/{kind}?start_time={start}&bucket_width={width}&limit={limit}&group_by=api_key_id&group_by=model"
        rows += [
            [
                _time(bucket, seconds), one_line(each.api_key_id or "-"), one_line(each.model or "-"), str(each.num_model_requests),
                str(each.input_tokens), str(each.input_cached_tokens), str(each.output_tokens),
                str(each.output_reasoning_tokens),
            ]
            for bucket in _buckets(client, path)
            for each in bucket.results
        ]  # fmt: skip
    print(table([rows[0], *sorted(rows[1:])]))
    _print_costs(client, start)


def _print_costs(client: ApiClient, start: int) -> None:
    path = f"/organization/costs?start_time={start}&limit=180&group_by=api_key_id"
    sums: dict[tuple[str, str], float] = {}
    for bucket in _buckets(client, path):
        for each in bucket.results:
            if each.amount is not None:
                key = (one_line(each.api_key_id or "-"), one_line(each.amount.currency.upper()))
                sums[key] = sums.get(key, 0.0) + each.amount.value
    if sums:
        rows = [
            [key, f"{_money(value)} {currency}"] for (key, currency), value in sorted(sums.items())
        ]
        print("\n" + table([["key", "cost"], *rows]))


def _money(value: float) -> str:
    """Format an amount with four decimals, or with as many as show three digits of a smaller amount."""
    small = 0.0 < value < 0.1
    return f"{value:.{min(12, 2 - floor(log10(value))) if small else 4}f}"


def _time(bucket: _Bucket, seconds: int) -> str:
    try:
        start = datetime.fromtimestamp(bucket.start_time, UTC)
    except (OverflowError, ValueError, OSError):
        return str(bucket.start_time)  # outside the range of dates
    return f"{start:{'%Y-%m-%d' if seconds == _DAY else '%Y-%m-%d %H:%M'}}"


def _buckets(client: ApiClient, path: str) -> Iterable[_Bucket]:
    page: str | None = ""
    for _ in range(_MAX_PAGES):
        read = client.get(f"{path}&page={quote(page, safe='')}" if page else path, _Page)
        yield from read.data
        page = read.next_page
        if page is None:
            return
    raise ApiError(f"The server's answer has more than {_MAX_PAGES} pages.")

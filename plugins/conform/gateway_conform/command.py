"""The command `gateway conform`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from msgspec import to_builtins

from gateway.sdk import ConfigurationError
from gateway.sdk.commands import table
from gateway_conform import checks as _  # noqa: F401  # registers the checks
from gateway_conform.client import HttpClient
from gateway_conform.outcome import CheckFailed, Unreachable, require
from gateway_conform.registry import AREAS, CHECKS, CheckResult, ServerUnderTest, run_checks
from gateway_conform.types import sdk_is_installed

_MARKS = {"pass": "ok", "fail": "FAIL", "skip": "skip"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Check any server with OpenAI's API: its streams, resources, lifecycle, errors, tools and structured "
        "output. The requests are small and cost a few thousand tokens. What is created is deleted only where a check is "
        "about deleting. With the package openai installed, answers are validated by its types too. The exit code is 1 if "
        "a check failed, and 2 if nothing answers."
    )
    parser.add_argument("url", metavar="URL", help="as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", help="the model to ask (default: the first of the list)")
    parser.add_argument("--embedding-model", metavar="MODEL", help="the model for embeddings")
    parser.add_argument(
        "--only",
        action="append",
        metavar="AREA",
        help=f"one of: {', '.join(AREAS)}; may be repeated",
    )
    parser.add_argument(
        "--api-key", default=os.environ.get("OPENAI_API_KEY", ""), help="(default: $OPENAI_API_KEY)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120,
        metavar="SECONDS",
        help="for one answer (default: 120)",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--verbose", action="store_true", help="also the checks that passed or were skipped"
    )


def conform(arguments: argparse.Namespace) -> int:
    """Run the checks and print the report. Raises `ConfigurationError` if no server answers."""
    wanted = set(AREAS) if arguments.only is None else _areas(arguments.only)
    chosen = [each for area in AREAS for each in CHECKS if each.area == area and area in wanted]
    server = _server(arguments)
    results: list[CheckResult] = []
    try:
        for result in run_checks(server, chosen):
            results.append(result)
            if not arguments.json:
                _print_progress(result, verbose=arguments.verbose)
    except Unreachable as error:
        raise ConfigurationError(str(error)) from None
    if arguments.json:
        print(_as_json(server, results))
    else:
        print(_as_text(results))
    return 1 if any(result.outcome == "fail" for result in results) else 0


def _areas(only: Sequence[str]) -> set[str]:
    wanted = {each.replace("_", " ").replace("-", " ") for each in only}
    if unknown := wanted - set(AREAS):
        raise ConfigurationError(
            f"--only {sorted(unknown)[0]!r}: there is no such area; known: {', '.join(AREAS)}"
        )
    return wanted


def _server(arguments: argparse.Namespace) -> ServerUnderTest:
    parts = urlsplit(arguments.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"{arguments.url!r} is no URL of an API, as http://127.0.0.1:8000/v1"
        )
    url = arguments.url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1"
    client = HttpClient(url, arguments.api_key, arguments.timeout)
    model = arguments.model
    try:
        answer = client.get("/models")
        if answer.status in (401, 403):
            raise ConfigurationError(
                f"{url} refuses {'the key' if arguments.api_key else 'requests without a key'} (status {answer.status}); "
                "name one with --api-key"
            )
        if model is None:
            listed = answer.expect()["data"]
            require(listed, "it is empty")
            model = listed[0]["id"]
    except Unreachable as error:
        raise ConfigurationError(_one_line(str(error))) from None
    except (CheckFailed, KeyError, IndexError, TypeError) as error:
        if model is None:
            raise ConfigurationError(
                f"the list of models of {url} cannot be read ({_one_line(str(error))}); name a model with --model"
            ) from None
    return ServerUnderTest(client, model, arguments.embedding_model or model)


def _print_progress(result: CheckResult, *, verbose: bool) -> None:
    if result.outcome == "fail" or verbose:
        print(f"{_MARKS[result.outcome]:4}  {result.area}: {result.name}")
        if result.detail:
            print(f"      {_one_line(result.detail)}")
        if result.request:
            print(f"      {_one_line(result.request)}")
        sys.stdout.flush()


def _as_text(results: Sequence[CheckResult]) -> str:
    rows = [("AREA", "PASSED", "FAILED", "SKIPPED"), *_counts(results)]
    lines = [table(rows)]
    if not sdk_is_installed():
        lines.append(
            "Answers were not validated by the types of OpenAI's SDK: `pip install openai`."
        )
    return "\n".join(lines)


def _counts(results: Sequence[CheckResult]) -> Iterator[tuple[str, ...]]:
    for area in AREAS:
        outcomes = [result.outcome for result in results if result.area == area]
        if outcomes:
            yield (area, *(str(outcomes.count(each)) for each in ("pass", "fail", "skip")))
    every = [result.outcome for result in results]
    yield ("all", *(str(every.count(each)) for each in ("pass", "fail", "skip")))


def _as_json(server: ServerUnderTest, results: Sequence[CheckResult]) -> str:
    report = {
        "url": server.client.url,
        "model": server.model,
        "validated_by_sdk_types": sdk_is_installed(),
        "checks": to_builtins(results),
    }
    return json.dumps(report, indent=2)  # in ASCII, because it contains texts of the server


def _one_line(text: str) -> str:
    """Make a text of the server safe for a terminal: one line, without control characters."""
    return "".join(each if each.isprintable() else " " for each in text)[:1000]

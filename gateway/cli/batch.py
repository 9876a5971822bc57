"""`gateway batch`: runs a file of requests as a batch of a running server."""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.commands.api_client import ApiClient, ApiError
from gateway.commands.arguments import API_DEFAULT, Commands, api_url, table
from gateway.commands.terminal_text import one_line

ENDED: Final = ("completed", "failed", "expired", "cancelled")
_POLL_SECONDS: Final = 0.5
_AWAY_SECONDS: Final = 600.0
"""Seconds for which a server may not answer, for example while it restarts."""
_FIRST_LINE: Final = 64 << 20
_SHOWN_ERRORS: Final = 5

EPILOG = """\
Each line of FILE is a JSON object with custom_id, method, url and body, as in OpenAI's Batch API. Results with errors are
written beside OUT, with the ending .errors.jsonl. The batch runs in the server: Ctrl-C leaves it running, and the same command
goes on with it, also after the server or this machine was restarted. OUT.batch remembers it until its results are here.

The exit code is 0 if all lines have succeeded.
"""


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


class _File(Struct):
    id: str


class _Counts(Struct):
    total: int = 0
    completed: int = 0
    failed: int = 0


class _Error(Struct):
    message: str | None = None
    line: int | None = None


class _Errors(Struct):
    data: list[_Error] = []


class _Batch(Struct):
    id: str
    status: str
    created_at: int = 0
    input_file_id: str = ""
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: _Errors | None = None
    request_counts: _Counts | None = None


class _Batches(Struct):
    data: list[_Batch]
    has_more: bool = False


class _Remembered(Struct):
    """The data needed to continue a batch in a later call."""

    url: str
    sha256: str
    """SHA-256 of the input."""
    file_id: str
    batch_id: str | None = None


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "batch",
        help="run a file of requests on a running server",
        description="Run files of requests as batches of a running server.",
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    run = actions.add_parser(
        "run",
        help="run a file of requests, and write the results to another",
        description="Run a file of requests as a batch of a running server, and write the results.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("file", type=Path, metavar="FILE", help="one request a line (JSONL)")
    run.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT",
        help="(default: FILE with the ending .out.jsonl)",
    )
    run.add_argument(
        "--window", default="24h", help="how long the batch may take, such as 90m, 24h or 7d (default: 24h)"
    )  # fmt: skip
    _add_server(run)
    run.set_defaults(command=run_batch)
    listed = actions.add_parser(
        "list",
        help="the batches of a key",
        description="List the batches of the key, newest first.",
    )
    listed.add_argument(
        "-n", "--number", type=_number, default=20, metavar="N", help="at most N of them (default: 20)"
    )  # fmt: skip
    _add_server(listed)
    listed.set_defaults(command=list_batches)
    for name, function, what in (
        ("status", show_batch, "show how far a batch is"),
        ("cancel", cancel_batch, "stop a batch; what is done stays in its files"),
    ):
        parser = actions.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        parser.add_argument("batch", metavar="BATCH", help="its id, or the FILE or OUT of a `gateway batch run` that waits for it")  # fmt: skip
        _add_server(parser)
        parser.set_defaults(command=function)


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help=f"the API ({API_DEFAULT})")
    parser.add_argument(
        "--api-key", metavar="KEY", help="(default: $OPENAI_API_KEY, which other users cannot see)"
    )


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:5]) <= 100:
        raise argparse.ArgumentTypeError("a number from 1 to 100")
    return int(text)


def _client(arguments: argparse.Namespace) -> ApiClient:
    return ApiClient(
        api_url(arguments.url, os.environ),
        arguments.api_key or os.environ.get("OPENAI_API_KEY") or "",
    )


def list_batches(arguments: argparse.Namespace) -> int:
    """Print a table of batches. Returns 1 if the server's answer is an error, or there is none."""
    try:
        batches = _client(arguments).get(f"/batches?limit={arguments.number}", _Batches).data
    except ApiError as error:
        return _failed(error)
    rows = [["batch", "created", "status", "lines", "done", "failed"]]
    for each in batches:
        counts = each.request_counts or _Counts()
        done = counts.completed + counts.failed
        rows.append(
            [
                one_line(each.id), _time(each.created_at), one_line(each.status), str(counts.total), str(done), str(counts.failed),
            ]
        )  # fmt: skip
    print(table(rows) if batches else "There are no batches.")
    return 0


def show_batch(arguments: argparse.Namespace) -> int:
    """Print the progress of a batch. Returns 1 if the server's answer is an error, or there is none."""
    try:
        _show(_client(arguments).get(f"/batches/{_batch_id(arguments.batch)}", _Batch))
    except ApiError as error:
        return _failed(error)
    return 0


def cancel_batch(arguments: argparse.Namespace) -> int:
    """Cancel a batch. Returns 1 if the server does not cancel it, for example because it has ended."""
    try:
        path = f"/batches/{_batch_id(arguments.batch)}/cancel"
        _show(_client(arguments).post(path, {}, _Batch))
    except ApiError as error:
        return _failed(error)
    return 0


def _batch_id(named: str) -> str:
    """The id of a batch, for a URL. `named` is the id, or the input or output file of `gateway batch run`."""
    file = Path(named)
    if not file.name:
        raise ConfigurationError(
            f"{named!r} is no batch: give its id, as `gateway batch list` shows it, or a file of `gateway batch run`"
        )
    for output in (file, file.with_suffix(".out.jsonl")):
        memory = output.with_name(f"{output.name}.batch")
        try:
            known = msgspec.json.decode(memory.read_bytes(), type=_Remembered)
        except (OSError, ValueError):
            continue
        if known.batch_id is not None:
            return quote(known.batch_id, safe="")
    if os.path.isfile(file):  # false also for a name that is too long
        raise ConfigurationError(
            f"no batch of {named!r} is remembered; its results are written, or it was run elsewhere: `gateway batch list` has the ids"
        )
    return quote(named, safe="")


def _show(batch: _Batch) -> None:
    counts = batch.request_counts or _Counts()
    rows = [
        ["batch", one_line(batch.id)],
        ["status", one_line(batch.status)],
        ["created", _time(batch.created_at)],
        ["lines", f"{counts.completed + counts.failed} of {counts.total}, {counts.failed} failed"],
        ["input", one_line(batch.input_file_id)],
        ["results", one_line(batch.output_file_id or "-")],
        ["errors", one_line(batch.error_file_id or "-")],
    ]
    print(table(rows))
    for error in (batch.errors or _Errors()).data[:_SHOWN_ERRORS]:
        print(_described(error))


def _described(error: _Error) -> str:
    where = "" if error.line is None else f"line {error.line}: "
    return f"{where}{one_line(error.message or 'failed')}"


def _time(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return str(seconds)  # outside the range of dates


def _failed(error: ApiError) -> int:
    print(f"gateway: {one_line(str(error))}", file=sys.stderr)
    return 1


def run_batch(arguments: argparse.Namespace) -> int:
    """Run a batch to its end. Returns 1 if not all lines have succeeded, or if the server cannot be used.

    Raises `ConfigurationError`.
    """
    source: Path = arguments.file
    output: Path = arguments.output or source.with_suffix(".out.jsonl")
    job = _Job(_client(arguments), output)
    try:
        with _opened(source) as content:
            batch = job.find_or_create(content, source.name, arguments.window)
        return job.finished(batch)
    except ApiError as error:
        return _failed(error)


class _Job:
    """One batch, its local files and its progress display."""

    def __init__(self, client: ApiClient, output: Path) -> None:
        self._client = client
        self._output = output
        self._errors = output.with_suffix(".errors.jsonl")
        self._memory = output.with_name(f"{output.name}.batch")
        self._progress = _Progress()

    def find_or_create(self, content: BufferedReader, name: str, window: str) -> _Batch:
        """Return the batch that an earlier call created, or create one."""
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        known = self._remembered(digest)
        if known is None:
            for path in (self._output, self._errors):
                if path.exists():
                    raise ConfigurationError(
                        f"{str(path)!r} exists: move it away, or name another file with -o"
                    )
            endpoint = _endpoint(content)
            # A server that refuses an upload may close the connection before its answer can be read.
            self._client.get("/batches?limit=1", _Batches)
            file = self._client.upload(content, name, "batch", _File)
            known = _Remembered(url=self._client.url, sha256=digest, file_id=file.id)
            self._remember(known)
        else:
            endpoint = _endpoint(content)
        if known.batch_id is None:
            # An earlier call may have created it, and ended before it saved the id.
            found = self._latest_batch_of(known.file_id)
            batch = found or self._client.post(
                "/batches",
                {
                    "input_file_id": known.file_id,
                    "endpoint": endpoint,
                    "completion_window": window,
                },
                _Batch,
            )
            known.batch_id = batch.id
            self._remember(known)
            print(f"batch {one_line(batch.id)}", file=sys.stderr)
            return batch
        print(f"going on with batch {one_line(known.batch_id)}", file=sys.stderr)
        return self._retrieved(known.batch_id)

    def finished(self, batch: _Batch) -> int:
        """Wait for the end of a batch, and write its results. Returns the exit code."""
        try:
            while True:
                self._progress.show(batch)
                if batch.status in ENDED:
                    break
                time.sleep(_POLL_SECONDS)
                batch = self._retrieved(batch.id)
        except KeyboardInterrupt:
            self._progress.end()
            print("The batch goes on. The same command waits for its results.", file=sys.stderr)
            raise
        self._progress.end()
        for file_id, path in (
            (batch.output_file_id, self._output),
            (batch.error_file_id, self._errors),
        ):
            if file_id is not None:
                self._download(file_id, path)
                print(f"wrote {path}", file=sys.stderr)
        self._memory.unlink(missing_ok=True)
        for error in (batch.errors or _Errors()).data[:_SHOWN_ERRORS]:
            print(_described(error), file=sys.stderr)
        failed = (batch.request_counts or _Counts()).failed
        return 0 if batch.status == "completed" and not failed else 1

    def _retrieved(self, batch_id: str) -> _Batch:
        """Retrieve the current state of a batch. Waits while the server does not answer, for example while it
        restarts."""
        give_up = time.monotonic() + _AWAY_SECONDS
        while True:
            try:
                return self._client.get(f"/batches/{batch_id}", _Batch)
            except ApiError as error:
                gone = error.status is not None and error.status < 500 and error.status != 429
                if gone or time.monotonic() > give_up:
                    raise
                self._progress.report_unreachable(str(error))
                time.sleep(_POLL_SECONDS)

    def _latest_batch_of(self, file_id: str) -> _Batch | None:
        """The newest batch of a file, if it is among the latest ones."""
        latest = self._client.get("/batches?limit=100", _Batches)
        return next((each for each in latest.data if each.input_file_id == file_id), None)

    def _download(self, file_id: str, path: Path) -> None:
        """Write a file atomically: it exists only if it is complete."""
        try:
            with tempfile.NamedTemporaryFile(
                dir=path.parent, prefix=f".{path.name}.", delete=False
            ) as part:
                try:
                    self._client.download(f"/files/{file_id}/content", part)  # type: ignore[arg-type]
                    part.flush()
                    os.chmod(part.name, 0o666 & ~_umask())
                    os.replace(part.name, path)
                except BaseException:
                    Path(part.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise ConfigurationError(f"{str(path)!r} cannot be written: {error.strerror}") from None

    def _remembered(self, digest: str) -> _Remembered | None:
        try:
            known = msgspec.json.decode(self._memory.read_bytes(), type=_Remembered)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError):
            raise ConfigurationError(
                f"{str(self._memory)!r} cannot be read: delete it to begin anew"
            ) from None
        if known.sha256 != digest or known.url != self._client.url:
            raise ConfigurationError(
                f"{str(self._memory)!r} is of a batch of another file or server: finish that first, or delete it to begin anew"
            )
        return known

    def _remember(self, known: _Remembered) -> None:
        fresh = self._memory.with_name(f"{self._memory.name}.new")
        try:
            fresh.write_bytes(msgspec.json.encode(known))
            fresh.replace(self._memory)
        except OSError as error:
            raise ConfigurationError(
                f"{str(self._memory)!r} cannot be written: {error.strerror}"
            ) from None


class _Progress:
    """Shows the progress: a bar on a terminal; elsewhere a line for each tenth and each status."""

    def __init__(self) -> None:
        self._bar = sys.stderr.isatty()
        self._shown: object = None
        self._away = False
        self._begun: tuple[float, int] | None = None
        """The time on the monotonic clock at which this command first saw completed lines, and their number at that
        time."""

    def show(self, batch: _Batch) -> None:
        """Show the progress of a batch."""
        counts = batch.request_counts or _Counts()
        done = counts.completed + counts.failed
        share = done / counts.total if counts.total else 0.0
        text = f"{one_line(batch.status)}: {done} of {counts.total} lines, {counts.failed} failed"
        if batch.status == "in_progress":
            text += self._speed(done, counts.total)
        self._away = False
        if self._bar:
            columns = shutil.get_terminal_size().columns
            width = max(0, min(40, columns - len(text) - 4))
            full = round(share * width)
            line = f"[{'#' * full}{'.' * (width - full)}] {text}"[: max(1, columns - 1)]
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif self._shown != (now := (batch.status, int(share * 10))):
            self._shown = now
            print(text, file=sys.stderr, flush=True)

    def _speed(self, done: int, total: int) -> str:
        """Lines per second since this command began to watch, and the remaining time at that speed; empty before it is
        known."""
        now = time.monotonic()
        if self._begun is None:
            self._begun = now, done
        begun, before = self._begun
        if done <= before or now <= begun:
            return ""
        speed = (done - before) / (now - begun)
        return f", {speed:.3g}/s, {duration((total - done) / speed)} left"

    def report_unreachable(self, reason: str) -> None:
        """Report once that the server does not answer."""
        if not self._away:
            self._away = True
            self.end()
            print(f"{one_line(reason)} Waiting for it.", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line of the bar."""
        if self._bar:
            print(file=sys.stderr)


def duration(seconds: float) -> str:
    """A time in its two largest units, such as `3 h 05 min`."""
    whole = math.ceil(seconds)
    for name, unit, below, smaller in (("d", 86_400, 3600, "h"), ("h", 3600, 60, "min"), ("min", 60, 1, "s")):  # fmt: skip
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // below:02} {smaller}"
    return f"{whole} s"


def _opened(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read: {error.strerror}") from None


class _Line(Struct):
    url: str


def _endpoint(content: BinaryIO) -> str:
    """The `url` of the first line that has one."""
    content.seek(0)
    while line := content.readline(_FIRST_LINE):
        try:
            return msgspec.json.decode(line, type=_Line).url
        except (msgspec.DecodeError, RecursionError):
            continue
    raise ConfigurationError("the file has no line with a url, such as '/v1/responses'")

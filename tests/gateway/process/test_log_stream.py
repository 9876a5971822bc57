"""Logs that nobody reads, or slowly."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.process.log_stream import KEPT_BYTES, LogHandler, LogStream, log_handler
from tests.waiting import wait_until


@pytest.fixture(params=["pipe", "socket", "pipe that never blocks"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """What is read, and what is written."""
    if request.param == "socket":
        reading, writing = socket.socketpair()
        yield reading.fileno(), writing.fileno()
        reading.close()
        writing.close()
        return
    first, second = os.pipe()
    if request.param == "pipe that never blocks":
        os.set_blocking(second, False)
    yield first, second
    os.close(first)
    os.close(second)


def test_nobody_waits_for_a_reader_and_it_gets_all_lines_in_their_order(
    ends: tuple[int, int],
) -> None:
    reading, writing = ends
    stream = LogStream(writing, "utf-8")
    lines = [f"{number} {'é' * (number % 300)}\n" for number in range(3000)]
    lines[5] = f"{'long' * 50_000}\n"
    for line in lines:
        assert stream.write(line) == len(line)  # more than fits: it would block here
    wanted, read = "".join(lines).encode(), b""
    while len(read) < len(wanted):
        read += os.read(reading, 65536)
    assert read == wanted
    stream.wait(60)
    stream.write("directly\n")
    assert os.read(reading, 100) == b"directly\n"


def test_what_nobody_reads_is_bounded_and_the_loss_is_told(ends: tuple[int, int]) -> None:
    reading, writing = ends
    stream = LogStream(writing, "utf-8")
    line = "x" * 9_999 + "\n"
    count = KEPT_BYTES // len(line) * 2
    for _ in range(count):
        stream.write(line)
    assert stream._kept_bytes <= KEPT_BYTES
    read = b""
    told = b"lines of the log were dropped, because nobody read it\n"
    while not read.endswith(told):
        read += os.read(reading, 65536)
    *kept, last = read.decode().splitlines(keepends=True)
    assert set(kept) == {line}
    assert len(kept) + int(last.split()[0]) == count


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(max_size=6000), max_size=60), st.integers(1, 70_000))
def test_a_slow_reader_gets_everything(texts: list[str], at_once: int) -> None:
    reading, writing = os.pipe()
    read: list[bytes] = []

    def reader() -> None:
        while data := os.read(reading, at_once):
            read.append(data)

    thread = threading.Thread(target=reader)
    thread.start()
    stream = LogStream(writing, "utf-8")
    for text in texts:
        stream.write(text)
    stream.wait(60)
    os.close(writing)
    thread.join()
    os.close(reading)
    assert b"".join(read) == "".join(texts).encode("utf-8", "backslashreplace")


def test_a_reader_that_has_gone_is_an_error_and_ends_no_thread(ends: tuple[int, int]) -> None:
    first, second = os.pipe()
    stream = LogStream(second, "utf-8")
    for _ in range(200):
        stream.write("x" * 1000)
    os.close(first)
    wait_until(lambda: stream._thread is None)
    with pytest.raises(BrokenPipeError):
        stream.write("x")
    os.close(second)


def test_the_end_of_the_process_waits_for_what_is_kept(ends: tuple[int, int]) -> None:
    reading, writing = ends
    with os.fdopen(os.dup(writing), "w") as file:
        handler = log_handler(file)
        assert isinstance(handler, LogHandler)
        for _ in range(100):
            handler.emit(logging.LogRecord("n", logging.INFO, "p", 1, "y" * 9_999, None, None))
        read = [b""]

        def reader() -> None:
            while sum(map(len, read)) < 1_000_000:
                read.append(os.read(reading, 65536))

        thread = threading.Thread(target=reader)
        thread.start()
        handler.close()
        thread.join()
        assert b"".join(read).count(b"y\n") == 100


def test_files_are_written_as_before(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        assert type(log_handler(file)) is logging.StreamHandler

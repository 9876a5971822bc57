"""A port for a server that is started later is nobody else's until then, and in between."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from gateway_testing.free_ports import free_port, held_port

TAKEN = "import socket, sys; socket.socket().bind(('127.0.0.1', int(sys.argv[1])))"


def listening(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen()
    return made


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("further", [(), (10_000,), (1, 2)])
def test_a_server_listens_on_it_again_and_again(further: tuple[int, ...]) -> None:
    port = free_port(*further)
    for each in (port, *(port + more for more in further)):
        for _ in range(2):
            assert not is_open(each)
            with listening(each):
                assert is_open(each)


def test_no_other_process_gets_it() -> None:
    port = free_port()
    taken = subprocess.run([sys.executable, "-c", TAKEN, f"{port}"], capture_output=True)
    assert b"Address already in use" in taken.stderr


def test_two_never_hold_the_same() -> None:
    with held_port() as one, pytest.raises(OSError, match="Address already in use"):
        held_port(one.getsockname()[1])


def test_a_port_that_does_not_exist_is_none() -> None:
    with pytest.raises(OSError, match="65536"):
        held_port(65_536)

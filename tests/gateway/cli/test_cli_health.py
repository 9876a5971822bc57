"""`gateway health`: what the HEALTHCHECK of the image asks, however the server listens."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import main
from gateway.config import load_config, load_listening
from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import to_toml

MODEL = {"engine": "scripted"}
Health = Callable[..., tuple[int, str]]


@pytest.fixture
def health(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Health:
    """Runs the command with a file of these settings of `[server]`; the exit code and the line."""
    monkeypatch.chdir(tmp_path)

    def run(server: Mapping[str, Any], *arguments: str, more: str = "") -> tuple[int, str]:
        (tmp_path / "gateway.toml").write_text(to_toml({"server": dict(server)}) + more)
        code = main(["health", *arguments])
        printed, errors = capsys.readouterr()
        assert printed.count("\n") == 1
        assert not errors
        return code, printed

    return run


def port_of(gateway: Any) -> int:
    return int(re.search(r":(\d+)", gateway.base_url)[1])  # type: ignore[index]


@contextmanager
def a_server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.recv(4096)
                answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_the_configured_address_is_asked(
    gateway_server: StartGateway, health: Health, host: str
) -> None:
    key = {"name": "a", "sha256": "0" * 64}
    gateway = gateway_server({"server": {"host": host, "api_keys": [key]}, "models": {"m": MODEL}})
    server = {"host": host, "port": port_of(gateway)}
    assert health(server)[0] == 0
    assert health(server, "--ready")[0] == 0


def test_the_environment_and_options_say_where_the_server_is(
    gateway_server: StartGateway, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = str(port_of(gateway_server({"models": {"m": MODEL}})))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert health({"port": 1}, "--port", port)[0] == 0
    assert health({"port": 1})[0] == 1
    monkeypatch.setenv("GATEWAY_SERVER__PORT", port)
    assert health({"port": 1})[0] == 0


def test_a_unix_socket_is_asked(
    gateway_server: StartGateway, tmp_path: Path, health: Health
) -> None:
    path = str(tmp_path / "s")
    gateway_server({"server": {"unix_socket": path}, "models": {"m": MODEL}})
    assert health({"unix_socket": path}, "--ready")[0] == 0
    code, line = health({"unix_socket": f"{path}2"})
    assert code == 1
    assert "No such file" in line


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of another name (`own.pem`, `own.key`), and a client's with its authority (`client.pem`, with its key)."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("own", "client"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}.example"],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
    both = (folder / "client.pem").read_text() + (folder / "client.key").read_text()
    (folder / "both.pem").write_text(both)
    return folder


def tls(folder: Path, **more: str) -> dict[str, Any]:
    return {"tls_certificate": str(folder / "own.pem"), "tls_key": str(folder / "own.key"), **more}


def test_a_self_signed_certificate_of_another_name_does_not_matter(
    gateway_server: StartGateway, health: Health, certificates: Path
) -> None:
    gateway = gateway_server({"server": tls(certificates), "models": {"m": MODEL}})
    where = {"port": port_of(gateway)}
    code, line = health({**tls(certificates), **where}, "--ready")
    assert (code, "https://127.0.0.1" in line) == (0, True)
    assert health(where)[0] == 1, "TLS is spoken there"


@pytest.mark.parametrize("own", [True, False])
def test_where_clients_need_certificates_the_server_is_alive_and_is_asked_with_one(
    gateway_server: StartGateway, health: Health, certificates: Path, own: bool
) -> None:
    """The server's own certificate will do, if its authority is that of the clients."""
    authority = "own.pem" if own else "client.pem"
    server = tls(certificates, tls_client_ca=str(certificates / authority))
    gateway = gateway_server({"server": server, "models": {"m": MODEL}})
    server["port"] = port_of(gateway)
    assert health(server)[0] == 0
    assert health(server, "--ready")[0] == (0 if own else 1)
    if not own:
        assert "--client-certificate" in health(server, "--ready")[1]
        shown = ("--client-certificate", str(certificates / "both.pem"))
        assert health(server, "--ready", *shown) == (0, health(server, "--ready", *shown)[1])
        assert "answers 200" in health(server, *shown)[1]


def test_a_server_that_is_not_ready_is_alive(health: Health) -> None:
    body = b'{"error": {"message": "The model is away.\\nA line."}}'
    head = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: %d\r\n\r\n" % len(body)
    with a_server(lambda connection: connection.sendall(head + body)) as port:
        code, line = health({"port": port}, "--ready")
    assert code == 1
    assert "answers 503: The model is away." in line


@pytest.mark.parametrize("sent", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000])
def test_what_is_no_gateway_is_not_healthy(health: Health, sent: bytes) -> None:
    with a_server(lambda connection: connection.sendall(sent)) as port:
        assert health({"port": port})[0] == 1


def test_a_server_that_hangs_is_not_waited_for(health: Health) -> None:
    done = threading.Event()

    def begin(connection: socket.socket) -> None:
        connection.sendall(b"H")
        done.wait(60)

    with a_server(begin) as port:
        code, line = health({"port": port}, "--timeout", "0.2")
        done.set()
    assert (code, line) == (1, "alive: no: no answer within 0.2 s\n")


def test_a_mistake_that_the_server_has_not_read_yet_does_not_matter(
    gateway_server: StartGateway, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may have been edited while the server runs: it is alive all the same."""
    port = port_of(gateway_server({"models": {"m": MODEL}}))
    monkeypatch.setenv("GATEWAY_MODELS__X__NO_SUCH", "1")
    monkeypatch.setenv("GATEWAY_NO_SECTION__X", "1")
    assert health({"port": port, "no_such_key": 1}, more="[mdels.x]\ny = 1\n")[0] == 0


@pytest.mark.parametrize(
    ("server", "problem"),
    [({"port": "x"}, "server.port"), ({"port": 0}, "--port"), ({"host": "no.such.invalid"}, "no.such.invalid")],
)  # fmt: skip
def test_a_mistake_in_the_address_is_one_line_and_1(
    health: Health, server: dict[str, Any], problem: str
) -> None:
    """Docker keeps further exit codes for itself."""
    code, line = health(server)
    assert code == 1
    assert problem in line


def test_where_the_server_listens_is_read_as_by_serve(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[server]\nhost = "::1"\nport = 1\n[models.m]\nengine = "scripted"\n')
    environ = {"GATEWAY_SERVER__TLS_CERTIFICATE": "c", "GATEWAY_CONFIG": str(file)}
    for given in ({}, {"port": 7, "host": None}):
        wanted = load_config(None, environ, server=given).server
        found = load_listening(None, environ, server=given)
        assert (found.host, found.port, found.tls_certificate) == (
            wanted.host, wanted.port, wanted.tls_certificate,
        )  # fmt: skip

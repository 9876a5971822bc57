"""Certificates that are renewed while the server runs."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509

from gateway.process.event_loop import new_event_loop
from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import run_gateway, to_toml

MODEL = {"engine": "scripted"}
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def made(folder: Path, name: str, *, days: int = 30, passphrase: str | None = None) -> None:
    """A self-signed certificate for 127.0.0.1 in `<name>.pem` and `<name>.key`, and both in `<name>.both`."""
    secret = ("-passout", f"pass:{passphrase}") if passphrase else ("-nodes",)
    subprocess.run(
        ["openssl", "req", "-x509", *CURVE, *secret, "-keyout", f"{name}.key", "-out", f"{name}.pem",
         "-days", str(days), "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    both = (folder / f"{name}.pem").read_text() + (folder / f"{name}.key").read_text()
    (folder / f"{name}.both").write_text(both)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    made(folder, "first")
    made(folder, "second", days=20)
    made(folder, "soon", days=2)
    made(folder, "locked", passphrase="secret")
    return folder


@pytest.fixture
def folder(certificates: Path, tmp_path: Path) -> Path:
    """`tls.pem` and `tls.key`, which are those of `first`."""
    used = tmp_path / "tls"
    shutil.copytree(certificates, used)
    use(used, "first")
    return used


def use(folder: Path, name: str) -> None:
    shutil.copy(folder / f"{name}.pem", folder / "tls.pem")
    shutil.copy(folder / f"{name}.key", folder / "tls.key")


def server(folder: Path, **more: Any) -> dict[str, Any]:
    return {"tls_certificate": str(folder / "tls.pem"), "tls_key": str(folder / "tls.key"), **more}


def served(port: int, *, host: str | None = None) -> str:
    """The name in the certificate that a new connection gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        found = x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")
        return found.subject.rfc4514_string().removeprefix("CN=")


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def port_of(gateway: Any) -> int:
    return httpx.URL(gateway.base_url).port or 0


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop])
def test_new_connections_get_the_renewed_certificate(
    folder: Path, tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Open connections stay, whether or not the client names a host."""
    config = {"server": server(folder), "models": {"m": MODEL}}
    with run_gateway(config, tmp_path, loop_factory=loop) as gateway:
        port = port_of(gateway)
        assert served(port) == "first"
        verify = ssl.create_default_context(cafile=folder / "first.pem")
        # By default, httpx closes a connection that is idle for 5 seconds.
        with httpx.Client(verify=verify, limits=httpx.Limits(keepalive_expiry=None)) as kept:
            url = f"https://127.0.0.1:{port}/health"
            assert kept.get(url).status_code == 200
            use(folder, "second")
            eventually(lambda: served(port) == "second")
            assert served(port, host="a.example") == "second"
            assert kept.get(url).status_code == 200
            metrics = kept.get(f"https://127.0.0.1:{port}/metrics").text
    until = x509.load_pem_x509_certificate((folder / "second.pem").read_bytes())
    [line] = [each for each in metrics.splitlines() if each.startswith("gateway_tls_certificate_")]
    assert float(line.split()[1]) == until.not_valid_after_utc.timestamp()


def test_links_that_lead_elsewhere_are_a_change(gateway_server: StartGateway, folder: Path) -> None:
    """As Kubernetes does for Secrets, and certbot."""
    for name in ("first", "second"):
        (folder / f"..{name}").mkdir()
        shutil.copy(folder / f"{name}.pem", folder / f"..{name}" / "tls.pem")
        shutil.copy(folder / f"{name}.key", folder / f"..{name}" / "tls.key")
    (folder / "..data").symlink_to("..first")
    for name in ("tls.pem", "tls.key"):
        (folder / name).unlink()
        (folder / name).symlink_to(f"..data/{name}")
    port = port_of(gateway_server({"server": server(folder), "models": {"m": MODEL}}))
    (folder / "..new").symlink_to("..second")
    (folder / "..new").rename(folder / "..data")
    eventually(lambda: served(port) == "second")


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["half", "text", "away", "passphrase"])
def test_files_with_a_mistake_change_nothing_until_they_are_right(
    gateway_server: StartGateway, folder: Path, caplog: pytest.LogCaptureFixture, mistake: str
) -> None:
    port = port_of(gateway_server({"server": server(folder), "models": {"m": MODEL}}))

    def errors() -> list[str]:
        return [
            each.getMessage()
            for each in caplog.records
            if each.name == "gateway.process.certificates" and each.levelno == logging.ERROR
        ]

    if mistake == "half":
        shutil.copy(folder / "second.pem", folder / "tls.pem")
    elif mistake == "text":
        (folder / "tls.pem").write_text("no certificate")
    elif mistake == "away":
        (folder / "tls.key").unlink()
    else:
        use(folder, "locked")
    eventually(lambda: bool(errors()))
    assert served(port) == "first"
    [said] = errors()
    assert "tls_" in said
    assert "Traceback" not in caplog.text
    use(folder, "second")
    eventually(lambda: served(port) == "second")
    assert len(errors()) == 1


def test_the_log_warns_of_a_certificate_that_expires(
    gateway_server: StartGateway, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    use(folder, "soon")
    port = port_of(gateway_server({"server": server(folder), "models": {"m": MODEL}}))
    said = [each.getMessage() for each in caplog.records if "expires soon" in each.getMessage()]
    until = x509.load_pem_x509_certificate((folder / "soon.pem").read_bytes()).not_valid_after_utc
    assert len(said) == 1
    assert until.astimezone(UTC).strftime("%Y-%m-%d %H:%M") in said[0]
    assert until > datetime.now(UTC)
    assert served(port) == "soon"


def test_clients_of_an_authority_that_was_removed_are_refused(
    gateway_server: StartGateway, folder: Path
) -> None:
    """Also those that resume a session in which their certificate was verified."""
    authorities = folder / "ca.pem"
    authorities.write_bytes((folder / "first.pem").read_bytes())
    settings = server(folder, tls_client_ca=str(authorities))
    port = port_of(gateway_server({"server": settings, "models": {"m": MODEL}}))

    def context(name: str, version: ssl.TLSVersion) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
        made.maximum_version = version
        made.load_cert_chain(folder / f"{name}.both")
        return made

    def ask(client: ssl.SSLContext, session: Any = None) -> Any:
        """The session; None if the server refuses."""
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
                client.wrap_socket(plain, session=session) as connection,
            ):
                connection.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                return (
                    connection.session if connection.recv(100).startswith(b"HTTP/1.1 200") else None
                )
        except OSError:
            return None

    versions = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    olds = [context("first", each) for each in versions]
    sessions = [ask(each) for each in olds]
    assert None not in sessions
    authorities.write_bytes((folder / "second.pem").read_bytes())
    eventually(lambda: ask(context("second", versions[0])) is not None)
    for old, session in zip(olds, sessions, strict=True):
        assert ask(old) is None
        assert ask(old, session) is None
    assert ask(context("second", versions[1])) is not None


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_all_workers_use_the_renewed_certificate(
    folder: Path, tmp_path: Path, workers: int
) -> None:
    """By a look at the files, and by SIGHUP."""
    settings = server(folder, port=0, workers=workers, store="none")
    file = tmp_path / "gateway.toml"
    file.write_text(to_toml({"server": settings, "models": {"m": MODEL}}))
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(file)],
            stdout=subprocess.PIPE, stderr=log, text=True, cwd=tmp_path,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        line = next(each for each in process.stdout if "listens on" in each)
        port = httpx.URL(line.split()[-1]).port or 0
        assert served(port) == "first"
        log_file = tmp_path / "log"
        eventually(lambda: log_file.read_text().count("Started server process") == workers)
        use(folder, "second")
        # A worker that has just started may have read them for the first time.
        eventually(lambda: {served(port) for _ in range(20)} == {"second"})
        before = log_file.read_text().count("was read again")
        # The same times and sizes, which only a signal tells.
        status = os.stat(folder / "tls.pem")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: log_file.read_text().count("was read again") == before + workers)
        assert os.stat(folder / "tls.pem").st_mtime_ns == status.st_mtime_ns
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()

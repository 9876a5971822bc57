"""HTTPS, with and without certificates of clients."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from gateway import hookimpl
from gateway.base.errors import ConfigurationError
from gateway.base.net.tls import accept_private_authorities
from gateway.cli import main
from gateway.plugins.protocols import Credentials, Principal
from gateway.process.event_loop import new_event_loop
from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import run_gateway

MODEL = {"engine": "scripted"}
BODY = {"model": "m", "input": "one two three " * 50, "stream": True}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority (`ca.pem`), and a certificate that it has signed (`one.pem`, `one.key`), for server and client."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        "req",
        "-x509",
        *curve,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-subj",
        "/CN=test ca",
    )
    openssl("req", *curve, "-keyout", "one.key", "-out", "one.csr", "-subj", "/CN=one")
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "one.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", "one.pem", "-days", "2", "-extfile", "extensions")  # fmt: skip
    # A client's, by the same authority; and one of the same names by another authority.
    openssl("req", *curve, "-keyout", "two.key", "-out", "two.csr", "-subj", "/O=Example, Inc./CN=worker")  # fmt: skip
    names = "URI:spiffe://example.com/worker,DNS:worker.example.com"
    (folder / "extensions").write_text(f"subjectAltName={names}\n")
    openssl("x509", "-req", "-in", "two.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", "two.pem", "-days", "2", "-extfile", "extensions")  # fmt: skip
    openssl("req", "-x509", *curve, "-keyout", "forged.key", "-out", "forged.pem", "-days", "2",
            "-subj", "/O=Example, Inc./CN=worker", "-addext", f"subjectAltName={names}")  # fmt: skip
    return folder


def server(folder: Path, **more: str) -> dict[str, Any]:
    return {"tls_certificate": str(folder / "one.pem"), "tls_key": str(folder / "one.key"), **more}


def context(folder: Path, *, client: str | None = None) -> ssl.SSLContext:
    authority = str(folder / "ca.pem")
    made = accept_private_authorities(ssl.create_default_context(cafile=authority))
    if client is not None:
        made.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
    return made


def test_streams_and_plain_answers_come_over_tls(
    gateway_server: StartGateway, certificates: Path
) -> None:
    gateway = gateway_server({"server": server(certificates), "models": {"m": MODEL}})
    url = gateway.base_url.replace("http://", "https://") + "/responses"
    with httpx.Client(verify=context(certificates)) as client:
        streamed = client.post(url, json=BODY)
        assert streamed.status_code == 200
        assert streamed.text.rstrip().endswith("data: [DONE]")
        assert client.post(url, json={**BODY, "stream": False}).json()["status"] == "completed"
    with pytest.raises(httpx.TransportError):
        httpx.post(gateway.base_url + "/responses", json=BODY)


def test_a_client_without_a_certificate_is_refused_where_one_is_needed(
    gateway_server: StartGateway, certificates: Path
) -> None:
    settings = server(certificates, tls_client_ca=str(certificates / "ca.pem"))
    gateway = gateway_server({"server": settings, "models": {"m": MODEL}})
    url = gateway.base_url.replace("http://", "https://") + "/responses"
    with httpx.Client(verify=context(certificates)) as client, pytest.raises(httpx.TransportError):
        client.post(url, json=BODY)
    with httpx.Client(verify=context(certificates, client="one")) as client:
        assert client.post(url, json=BODY).status_code == 200


@pytest.mark.parametrize("mistake", [{"tls_certificate": "no-such-file"}, {"tls_key": "ca.key"}])
def test_a_mistake_stops_the_start_with_one_sentence(
    gateway_server: StartGateway, certificates: Path, mistake: dict[str, str]
) -> None:
    wrong = {name: str(certificates / value) for name, value in mistake.items()}
    with pytest.raises(ConfigurationError, match="tls_certificate"):
        gateway_server({"server": {**server(certificates), **wrong}, "models": {"m": MODEL}})


def test_a_key_without_a_certificate_is_a_mistake(gateway_server: StartGateway) -> None:
    with pytest.raises(ConfigurationError, match="tls_key and tls_client_ca need tls_certificate"):
        gateway_server({"server": {"tls_key": "x"}, "models": {"m": MODEL}})


class ByCertificate:
    """An authenticator for clients with certificates, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Credentials] = []

    async def authenticate(self, request: Credentials) -> Principal | None:
        self.asked.append(request)
        if "URI:spiffe://example.com/worker" in request.tls_alternative_names:
            return Principal(name="worker")
        return None

    @asynccontextmanager
    async def make(self, config: Any) -> AsyncIterator[ByCertificate]:
        yield self

    @hookimpl
    def gateway_register_authenticators(self, register: Any) -> None:
        register("by_certificate", self.make)


async def answered(url: str, tls: ssl.SSLContext) -> None:
    """Ask for a response and read it to its end, over a WebSocket.

    By the client of asyncio: that of websockets.sync reads and writes in two threads, by which the `ssl` of Python 3.11 and
    3.12 loses data (13 of 1,500 connections to a server of websockets itself).
    """
    async with connect(url, ssl=tls, open_timeout=60) as socket:
        await socket.send(json.dumps({"type": "response.create", "model": "m", "input": "hi"}))
        while (event := json.loads(await socket.recv()))["type"] != "response.completed":
            assert event["type"] != "error", event


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop])
def test_authenticators_are_told_who_a_certificate_names(
    certificates: Path, tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Over HTTP and for each turn of a WebSocket, with either event loop."""
    plugin = ByCertificate()
    config = {
        "server": server(certificates, tls_client_ca=str(certificates / "ca.pem")),
        "authenticators": {"by_certificate": {}},
        "models": {"m": MODEL},
    }
    with run_gateway(config, tmp_path, plugins=[plugin], loop_factory=loop) as gateway:
        url = gateway.base_url.replace("http://", "https://")
        with httpx.Client(verify=context(certificates, client="two")) as client:
            made = client.post(f"{url}/responses", json={"model": "m", "input": "hi"}).json()
            assert client.get(f"{url}/responses/{made['id']}").status_code == 200
            # What a client says of itself is no certificate.
            said = {"ssl-client-subject-dn": "CN=admin", "x-forwarded-client-cert": "CN=admin"}
            client.get(f"{url}/models", headers=said)
        with httpx.Client(verify=context(certificates, client="one")) as other:
            assert other.get(f"{url}/responses/{made['id']}").status_code == 401
        with (
            httpx.Client(verify=context(certificates, client="forged")) as forged,
            pytest.raises(httpx.TransportError),
        ):
            forged.get(f"{url}/models")
        socket_url = url.replace("https", "wss") + "/responses"
        asyncio.run(answered(socket_url, context(certificates, client="two")))
    workers = [asked for asked in plugin.asked if asked.tls_name != "CN=one"]
    assert {asked.tls_name for asked in workers} == {"CN=worker,O=Example\\, Inc."}
    names = ["URI:spiffe://example.com/worker", "DNS:worker.example.com"]
    assert all(list(asked.tls_alternative_names) == names for asked in workers)
    assert len(workers) >= 5


def test_without_certificates_nobody_is_named(certificates: Path, tmp_path: Path) -> None:
    """A certificate that was not asked for and not verified names nobody."""
    plugin = ByCertificate()
    config = {
        "server": server(certificates),
        "authenticators": {"by_certificate": {}},
        "models": {"m": MODEL},
    }
    with run_gateway(config, tmp_path, plugins=[plugin]) as gateway:
        url = gateway.base_url.replace("http://", "https://")
        with httpx.Client(verify=context(certificates, client="forged")) as client:
            assert client.get(f"{url}/models").status_code == 401
    assert [(asked.tls_name, asked.tls_alternative_names) for asked in plugin.asked] == [(None, ())]


def test_a_command_says_how_an_unknown_certificate_is_trusted(
    tmp_path: Path,
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = {
        "tls_certificate": str(certificates / "one.pem"),
        "tls_key": str(certificates / "one.key"),
    }
    with run_gateway({"server": server, "models": {"m": MODEL}}, tmp_path) as gateway:
        url = gateway.base_url.replace("http:", "https:")
        assert main(["usage", "--url", url]) == 1
        said = capsys.readouterr().err
        assert f"The certificate of {url} is not trusted: " in said
        assert "SSL_CERT_FILE" in said
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
        assert main(["usage", "--url", url]) == 0

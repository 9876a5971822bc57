"""HTTPS, with and without certificates of clients."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.errors import ConfigurationError
from gateway.testing.pytest_plugin import StartGateway

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
    return folder


def server(folder: Path, **more: str) -> dict[str, Any]:
    return {"tls_certificate": str(folder / "one.pem"), "tls_key": str(folder / "one.key"), **more}


def context(folder: Path, *, client: bool = False) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if client:
        made.load_cert_chain(folder / "one.pem", folder / "one.key")
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
    with httpx.Client(verify=context(certificates, client=True)) as client:
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

"""Private authorities, whose certificates often lack what Python 3.13 began to demand, are accepted on every Python."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import HTTPSHandler

import pytest

from gateway.base.net.tls import accept_private_authorities, web_tls_context
from gateway.commands.api_client import ApiClient
from gateway_conform.client import HttpClient
from gateway_redis.config import RedisConfig
from gateway_redis.connections import TlsConnection
from gateway_redis.location import make_client
from gateway_remote.client import tls_context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root without `keyUsage` (`root.pem`), an authority of it (`between.pem`), and of that `server.pem` of localhost."""
    folder = tmp_path_factory.mktemp("certificates")

    def made(name: str, signer: str | None, extensions: str) -> None:
        (folder / "extensions").write_text(extensions)
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        subject = ("-keyout", f"{name}.key", "-subj", f"/CN={name}")
        signed = ("-CA", f"{signer}.pem", "-CAkey", f"{signer}.key", "-CAcreateserial")
        for command in (
            ("req", *curve, *subject, "-out", "request"),
            ("x509", "-req", "-in", "request", "-days", "2", "-extfile", "extensions", "-out", f"{name}.pem",
             *(signed if signer else ("-signkey", f"{name}.key"))),
        ):  # fmt: skip
            subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)

    made("root", None, "basicConstraints=CA:TRUE\n")
    made("between", "root", "basicConstraints=CA:TRUE\n")
    made("server", "between", "subjectAltName=DNS:localhost\n")
    chain = (folder / "server.pem").read_text() + (folder / "between.pem").read_text()
    (folder / "chain.pem").write_text(chain)
    return folder


def shake_hands(client: ssl.SSLContext, certificates: Path) -> None:
    """A handshake with the server. Raises `ssl.SSLError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "chain.pem", certificates / "server.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(back, there, server_hostname="localhost")
    other = context.wrap_bio(there, back, server_side=True)
    waiting = [one, other]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)


def of_opener(opener: Any) -> ssl.SSLContext:
    [handler] = [each for each in opener.handlers if isinstance(each, HTTPSHandler)]
    return handler._context


def of_redis(file: str) -> ssl.SSLContext:
    client: Any = make_client(RedisConfig(url=f"rediss://localhost?ssl_ca_certs={file}"))
    connection = client.connection_pool.make_connection()
    assert isinstance(connection, TlsConnection)
    return connection.ssl_context.get()


CONTEXTS: dict[str, Callable[[str], ssl.SSLContext]] = {
    "engines, by ca_file": lambda file: tls_context(file, verify=True),
    "engines": lambda file: tls_context(None, verify=True),
    "pages, images, MCP servers, issuers": lambda file: web_tls_context(),
    "gateway chat": lambda file: of_opener(ApiClient("https://localhost/v1", "")._opener),
    "gateway conform": lambda file: of_opener(HttpClient("https://localhost/v1", "", 1)._opener),
    "redis": of_redis,
}


@pytest.fixture
def newest_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts are as strict as those of Python 3.13, on each Python."""
    create = ssl.create_default_context

    def strict(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        context = create(*args, **kwargs)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


@pytest.mark.usefixtures("newest_python")
@pytest.mark.parametrize("trusted", ["root", "between"])
@pytest.mark.parametrize("whose", CONTEXTS)
def test_a_private_authority_needs_no_key_usage_and_no_root(
    certificates: Path, monkeypatch: pytest.MonkeyPatch, whose: str, trusted: str
) -> None:
    file = str(certificates / f"{trusted}.pem")
    with pytest.raises(ssl.SSLCertVerificationError):  # what the test is about
        context = ssl.create_default_context(cafile=str(certificates / "root.pem"))
        shake_hands(context, certificates)
    if whose not in ("engines, by ca_file", "redis"):
        monkeypatch.setenv("SSL_CERT_FILE", file)
    shake_hands(CONTEXTS[whose](file), certificates)


@pytest.mark.parametrize("whose", CONTEXTS)
def test_another_authority_is_refused(
    certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", "other.key", "-out", "other.pem", "-subj", "/CN=root"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    file = str(tmp_path / "other.pem")
    monkeypatch.setenv("SSL_CERT_FILE", file)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(CONTEXTS[whose](file), certificates)


def test_all_else_stays_as_it_was() -> None:
    context = accept_private_authorities(ssl.create_default_context())
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED

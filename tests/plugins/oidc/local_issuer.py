"""An OpenID Connect issuer on loopback, whose keys and faults a test chooses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

_ALGORITHMS: Mapping[type, Any] = {
    rsa.RSAPrivateKey: RSAAlgorithm,
    ec.EllipticCurvePrivateKey: ECAlgorithm,
    ed25519.Ed25519PrivateKey: OKPAlgorithm,
}


def public_jwk(key: Any, kid: str | None) -> dict[str, Any]:
    """The public part of a private key, as an issuer publishes it."""
    form = next(form for kind, form in _ALGORITHMS.items() if isinstance(key, kind))
    jwk: dict[str, Any] = json.loads(form.to_jwk(key.public_key()))
    return jwk | {"use": "sig"} | ({} if kid is None else {"kid": kid})


class LocalIssuer:
    """What the issuer publishes, and how often it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.named: str | None = None
        """The issuer in the discovery document, if it is another one."""
        self.private: dict[str, Any] = {"first": ec.generate_private_key(ec.SECP256R1())}
        """Private keys by their ids; what is published of them is `jwks`."""
        self.jwks: list[Any] = [public_jwk(self.private["first"], "first")]
        self.status = 200
        self.body: bytes | None = None
        """Sent in place of the keys."""
        self.answering = threading.Event()
        self.answering.set()
        self.asked: list[str] = []
        """The paths of all requests."""

    def keys_asked(self) -> int:
        return self.asked.count("/keys")

    def rotate(self, kid: str) -> None:
        """Publish a new key in place of all others."""
        self.private[kid] = ec.generate_private_key(ec.SECP256R1())
        self.jwks = [public_jwk(self.private[kid], kid)]

    def token(
        self,
        *,
        kid: str | None = "first",
        algorithm: str = "ES256",
        headers: Any = (),
        **claims: Any,
    ) -> str:
        """A token for `litegate`; a claim of None is left out."""
        now = int(time.time())
        filled = {"iss": self.url, "aud": "litegate", "sub": "ada", "iat": now, "exp": now + 600}
        kept = {name: value for name, value in (filled | claims).items() if value is not None}
        ids = {} if kid is None else {"kid": kid}
        return jwt.encode(
            kept, self.private[kid or "first"], algorithm, headers={**ids, **dict(headers)}
        )

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        self.answering.wait(60)
        if path == "/.well-known/openid-configuration":
            named = {"issuer": self.named or self.url, "jwks_uri": f"{self.url}/keys"}
            return self.status, json.dumps(named).encode()
        if self.body is not None:
            return self.status, self.body
        return self.status, json.dumps({"keys": self.jwks}).encode()


@contextmanager
def run_issuer() -> Iterator[LocalIssuer]:
    """A running issuer."""
    issuer = LocalIssuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = issuer.answer(self.path)
            self.send_response(status)
            if status in (301, 302):
                self.send_header("location", f"{issuer.url}/elsewhere")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *args: Any) -> None:
            """A client that has left is not an error."""

    with Server(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            issuer.answering.set()
            server.shutdown()
            thread.join()

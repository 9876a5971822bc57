"""Tokens that an attacker makes: nobody becomes a principal, and the issuer is not flooded."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.access import hash_key
from gateway.sdk import AuthenticationError, Credentials
from gateway_oidc import OidcConfig, open_oidc
from gateway_oidc.authenticator import OidcAuthenticator
from gateway_oidc.issuer_keys import IssuerKeys, IssuerUnavailable
from gateway_testing.server import RunningGateway, run_gateway
from tests.plugins.oidc.local_issuer import LocalIssuer, public_jwk, run_issuer
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with run_issuer() as running:
        yield running


@pytest.fixture
async def authenticator(issuer: LocalIssuer) -> AsyncIterator[OidcAuthenticator]:
    config = {"issuer": issuer.url, "audience": "litegate", "algorithms": ["RS256", "ES256"]}
    async with open_oidc(msgspec.convert(config, OidcConfig)) as made:
        yield made


async def refused(authenticator: OidcAuthenticator, token: str) -> str:
    headers = {"authorization": f"Bearer {token}"}
    with pytest.raises(AuthenticationError) as error:
        await authenticator.authenticate(Credentials(path="/v1/models", headers=headers))
    assert error.value.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert token not in error.value.message
    return error.value.message


def part(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def claims(issuer: LocalIssuer, **changed: Any) -> dict[str, Any]:
    return {"iss": issuer.url, "aud": "litegate", "sub": "root", "exp": time.time() + 600} | changed


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
async def test_unsigned_tokens(
    issuer: LocalIssuer, authenticator: OidcAuthenticator, name: str
) -> None:
    for signature in ("", part(b"\0" * 64)):
        token = f"{part({'alg': name, 'kid': 'first'})}.{part(claims(issuer))}.{signature}"
        assert "algorithm is not accepted" in await refused(authenticator, token)


async def test_a_public_key_is_no_shared_secret(
    issuer: LocalIssuer, authenticator: OidcAuthenticator
) -> None:
    """Confusion of algorithms: signed by HMAC with the issuer's public key as the secret."""
    public = issuer.private["first"].public_key()
    for secret in (
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(issuer.jwks[0]).encode(),
    ):
        for algorithm in ("HS256", "ES256"):
            signed = f"{part({'alg': algorithm, 'kid': 'first'})}.{part(claims(issuer))}"
            mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
            await refused(authenticator, f"{signed}.{part(mac)}")


async def test_shared_secrets_and_weak_keys_of_an_issuer_are_no_keys(issuer: LocalIssuer) -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    issuer.private["weak"] = weak
    issuer.jwks = [
        {"kty": "oct", "kid": "secret", "k": part(b"s" * 32), "alg": "HS256"},
        public_jwk(weak, "weak"),
        public_jwk(issuer.private["first"], "first") | {"use": "enc"},
    ]
    config = msgspec.convert({"issuer": issuer.url, "audience": "litegate"}, OidcConfig)
    async with open_oidc(config) as made:
        token = jwt.encode(claims(issuer), b"s" * 32, "HS256", headers={"kid": "secret"})
        await refused(made, token)
        with pytest.warns(jwt.InsecureKeyLengthWarning):
            token = issuer.token(kid="weak", algorithm="RS256")
        await refused(made, token)
        await refused(made, issuer.token())


@pytest.mark.parametrize(
    "kid",
    ["other", "../../etc/passwd", "' OR '1'='1", "first\0", "", "k" * 4000, 7, None, ["first"], {}],
)
async def test_made_up_key_ids(
    issuer: LocalIssuer, authenticator: OidcAuthenticator, kid: Any
) -> None:
    forged = ec.generate_private_key(ec.SECP256R1())
    signing = jwt.encode(claims(issuer), forged, "ES256")
    _, payload, signature = signing.split(".")
    token = f"{part({'alg': 'ES256', 'kid': kid})}.{payload}.{signature}"
    headers = {"authorization": f"Bearer {token}"}
    try:
        found = await authenticator.authenticate(Credentials(path="/", headers=headers))
    except AuthenticationError:
        return
    assert found is None  # no JWT at all


async def test_keys_that_a_token_brings_are_never_read(
    issuer: LocalIssuer, authenticator: OidcAuthenticator
) -> None:
    with run_issuer() as evil:
        evil_key = evil.private["first"]
        brought = {
            "jku": f"{evil.url}/keys",
            "x5u": f"{evil.url}/keys",
            "jwk": public_jwk(evil_key, "first"),
            "x5c": [part(b"certificate")],
        }
        for header in [{name: value} for name, value in brought.items()] + [brought]:
            token = jwt.encode(claims(issuer), evil_key, "ES256", headers={"kid": "first"} | header)
            await refused(authenticator, token)
        assert evil.asked == []
    # A right token is right whatever it brings.
    headers = {"authorization": f"Bearer {issuer.token(headers=brought)}"}
    assert await authenticator.authenticate(Credentials(path="/", headers=headers)) is not None


async def test_claims_that_do_not_hold(
    issuer: LocalIssuer, authenticator: OidcAuthenticator
) -> None:
    now = int(time.time())
    assert "expired" in await refused(authenticator, issuer.token(exp=now - 3600))
    assert "not valid yet" in await refused(authenticator, issuer.token(nbf=now + 3600))
    assert "not valid yet" in await refused(authenticator, issuer.token(iat=now + 3600))
    assert "'exp'" in await refused(authenticator, issuer.token(exp=None))
    assert "'aud'" in await refused(authenticator, issuer.token(aud=None))
    for audience in ("other", ["other"], "litegate2", "lite", [], ""):
        await refused(authenticator, issuer.token(aud=audience))
    for name in (None, "", 7, "a\nb", "n" * 300, ["ada"]):
        try:
            await refused(authenticator, issuer.token(sub=name))
        except TypeError:
            continue  # it cannot be signed with this library
    for exp in (float("inf"), float("nan"), "soon", True, [now]):
        await refused(authenticator, issuer.token(exp=exp))


async def test_large_and_deep_tokens(issuer: LocalIssuer, authenticator: OidcAuthenticator) -> None:
    assert "8192 bytes" in await refused(authenticator, issuer.token(pad="x" * 9000))
    deep = b"[" * 3000 + b"]" * 3000
    token = f"{part({'alg': 'ES256', 'kid': 'first'})}.{part(deep)}.AA"
    headers = {"authorization": f"Bearer {token}"}
    assert await authenticator.authenticate(Credentials(path="/", headers=headers)) is None


async def test_made_up_keys_do_not_flood_the_issuer(
    issuer: LocalIssuer, authenticator: OidcAuthenticator
) -> None:
    for number in range(300):
        issuer.private["x"] = issuer.private["first"]
        token = issuer.token(kid="x", headers={"kid": f"made-up-{number}"})
        await refused(authenticator, token)
    assert issuer.keys_asked() == 1


async def test_forged_signatures_do_not_flood_the_issuer(
    issuer: LocalIssuer, authenticator: OidcAuthenticator
) -> None:
    forger = ec.generate_private_key(ec.SECP256R1())
    for number in range(100):
        made = claims(issuer, jti=str(number))
        await refused(authenticator, jwt.encode(made, forger, "ES256", headers={"kid": "first"}))
    assert issuer.keys_asked() == 1
    headers = {"authorization": f"Bearer {issuer.token()}"}
    assert await authenticator.authenticate(Credentials(path="/", headers=headers)) is not None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": ["x"]}',
        b'{"keys": [' + b",".join([b"{}"] * 65) + b"]}",
        b"[" * 100_000,
        b'{"keys": [], "pad": "' + b"x" * 300_000 + b'"}',
        b"\xff\xfe",
    ],
    ids=range(9),
)
async def test_what_an_issuer_sends_is_bounded(issuer: LocalIssuer, answer: bytes) -> None:
    issuer.body = answer
    config = msgspec.convert({"issuer": issuer.url, "audience": "litegate"}, OidcConfig)
    async with open_oidc(config) as made:
        headers = {"authorization": f"Bearer {issuer.token()}"}
        with pytest.raises(IssuerUnavailable):
            await made.authenticate(Credentials(path="/", headers=headers))


async def test_redirects_are_not_followed_and_metadata_services_not_asked(
    issuer: LocalIssuer,
) -> None:
    issuer.status = 302
    config = {"issuer": issuer.url, "audience": "litegate"}
    for table in (config, config | {"jwks_url": "http://169.254.169.254/keys"}):
        async with open_oidc(msgspec.convert(table, OidcConfig)) as made:
            headers = {"authorization": f"Bearer {issuer.token()}"}
            with pytest.raises(IssuerUnavailable):
                await made.authenticate(Credentials(path="/", headers=headers))
    assert "/elsewhere" not in issuer.asked


async def _no_keys() -> list[dict[str, Any]]:
    return []


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=90))
async def test_nothing_that_is_made_up_is_accepted(header: str, payload: str, rest: str) -> None:
    config = OidcConfig(issuer="https://login.example.com", audience="litegate")
    made = OidcAuthenticator(config, IssuerKeys(config, _no_keys))
    for token in (f"{header}.{payload}.{rest}", f"{part(header)}.{part(payload)}.{rest}"):
        headers = {"authorization": f"Bearer {token}"}
        try:
            found = await made.authenticate(Credentials(path="/", headers=headers))
        except AuthenticationError:
            continue
        assert found is None


def test_a_gateway_with_an_issuer(tmp_path: Path) -> None:
    """Over HTTP: who a token is, that keys go on to work, and the answers when the issuer is away."""
    with run_issuer() as issuer:
        config = {
            "server": {"api_keys": [{"name": "key", "sha256": hash_key("sk-key")}]},
            "authenticators": {
                "oidc": {
                    "issuer": issuer.url,
                    "audience": "litegate",
                    "refetch_interval": 1,
                    "groups": {"ops": {"admin": True}, "slow": {"requests_per_minute": 1}},
                }
            },
            "models": {"m": {"engine": "scripted"}},
        }
        with run_gateway(config, tmp_path) as gateway:
            _check_gateway(gateway, issuer)


def _check_gateway(gateway: RunningGateway, issuer: LocalIssuer) -> None:
    def get(token: str, path: str = "/models") -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        return httpx.get(f"{gateway.base_url}{path}", headers=headers, timeout=60)

    assert get(issuer.token()).status_code == 200
    assert get("sk-key").status_code == 200
    assert get("sk-other").status_code == 401
    assert get(issuer.token(iss="https://other.example.com")).status_code == 401
    expired = get(issuer.token(exp=1))
    assert expired.status_code == 401
    assert expired.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    costs = "/organization/costs?start_time=0"
    assert get(issuer.token(), costs).status_code == 403
    assert get(issuer.token(groups=["ops"]), costs).status_code == 200

    body = {"model": "m", "input": "hi"}
    url = f"{gateway.base_url}/responses"

    def post(token: str) -> httpx.Response:
        return httpx.post(url, json=body, headers={"authorization": f"Bearer {token}"}, timeout=60)

    slow = issuer.token(sub="slow", groups=["slow"])
    made = post(slow)
    assert made.status_code == 200
    assert post(slow).status_code == 429
    path = f"/responses/{made.json()['id']}"
    assert get(slow, path).status_code == 200
    assert get(issuer.token(), path).status_code == 404

    issuer.status = 500
    issuer.rotate("second")
    wait_until(lambda: get(issuer.token(kid="second")).status_code == 503)
    away = get(issuer.token(kid="second"))
    assert away.json()["error"]["code"] == "issuer_unavailable"
    assert away.headers["retry-after"] == "1"
    assert get(issuer.token()).status_code == 200
    assert get("sk-key").status_code == 200
    issuer.status = 200
    wait_until(lambda: get(issuer.token(kid="second")).status_code == 200)
    assert get(issuer.token()).status_code == 401

"""Tokens of an issuer over real HTTP: what is accepted, who their holders are, and what happens if the issuer is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from gateway.sdk import (
    AuthenticationError,
    ConfigurationError,
    Credentials,
    PermissionDenied,
    Principal,
    PrincipalLimits,
    RequestAuthenticator,
)
from gateway_oidc import OidcConfig, open_oidc
from gateway_oidc.authenticator import OidcAuthenticator
from gateway_oidc.issuer_client import Unreadable
from gateway_oidc.issuer_keys import IssuerKeys, IssuerUnavailable
from gateway_testing import RequestAuthenticatorContract
from tests.plugins.oidc.local_issuer import LocalIssuer, public_jwk

pytestmark = pytest.mark.anyio


def config_of(issuer: LocalIssuer, **fields: Any) -> OidcConfig:
    return msgspec.convert({"issuer": issuer.url, "audience": "litegate", **fields}, OidcConfig)


def bearing(token: str) -> Credentials:
    return Credentials(path="/v1/responses", headers={"authorization": f"Bearer {token}"})


async def found(issuer: LocalIssuer, token: str, **fields: Any) -> Principal | None:
    async with open_oidc(config_of(issuer, **fields)) as authenticator:
        return await authenticator.authenticate(bearing(token))


class TestOidcContract(RequestAuthenticatorContract):
    @pytest.fixture
    async def authenticator(self, issuer: LocalIssuer) -> AsyncIterator[RequestAuthenticator]:
        async with open_oidc(config_of(issuer)) as made:
            yield made

    @pytest.fixture
    def credentials(self, issuer: LocalIssuer) -> Mapping[str, str]:
        return {"authorization": f"Bearer {issuer.token()}"}


async def test_the_subject_is_the_principal(issuer: LocalIssuer) -> None:
    assert await found(issuer, issuer.token()) == Principal(name="oidc:ada")
    named = await found(issuer, issuer.token(email="ada@example.com"), name_claim="email")
    assert named is not None
    assert named.name == "oidc:ada@example.com"


async def test_keys_by_url_need_no_discovery(issuer: LocalIssuer) -> None:
    assert await found(issuer, issuer.token(), jwks_url=f"{issuer.url}/keys") is not None
    assert issuer.asked == ["/keys"]


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "EdDSA"])
async def test_signatures_of_all_kinds(issuer: LocalIssuer, algorithm: str) -> None:
    key: Any = ed25519.Ed25519PrivateKey.generate()
    if algorithm != "EdDSA":
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    issuer.private["other"] = key
    issuer.jwks = [public_jwk(key, "other"), *issuer.jwks]
    token = issuer.token(kid="other", algorithm=algorithm)
    assert await found(issuer, token, algorithms=[algorithm]) is not None
    with pytest.raises(AuthenticationError, match="algorithm is not accepted"):
        await found(issuer, token, algorithms=["RS512"])


async def test_a_token_without_a_key_id_uses_the_only_key(issuer: LocalIssuer) -> None:
    assert await found(issuer, issuer.token(kid=None)) is not None
    issuer.private["second"] = issuer.private["first"]
    issuer.jwks = [*issuer.jwks, public_jwk(issuer.private["second"], "second")]
    with pytest.raises(AuthenticationError, match="kid"):
        await found(issuer, issuer.token(kid=None))


async def test_other_tokens_are_left_to_the_next(issuer: LocalIssuer) -> None:
    assert await found(issuer, "sk-key") is None
    assert await found(issuer, issuer.token(iss="https://other.example.com")) is None


async def test_scopes(issuer: LocalIssuer) -> None:
    rule = {"required_scopes": ["llm", "chat"]}
    assert await found(issuer, issuer.token(scope="openid chat llm"), **rule) is not None
    assert await found(issuer, issuer.token(scp=["chat", "llm"]), **rule) is not None
    for scopes in (None, "llm", "llm chatter", ["llm"], 3):
        with pytest.raises(PermissionDenied, match="lacks the scope") as refused:
            await found(issuer, issuer.token(scope=scopes), **rule)
        assert "insufficient_scope" in refused.value.headers["www-authenticate"]


async def test_required_claims(issuer: LocalIssuer) -> None:
    rule = {"required_claims": {"tenant": ["acme", "ajax"], "https://a.example/roles": "user"}}
    good = {"tenant": "acme", "https://a.example/roles": ["guest", "user"]}
    assert await found(issuer, issuer.token(**good), **rule) is not None
    for wrong in ({"tenant": "none"}, {"tenant": None}, {"https://a.example/roles": ["guest"]}):
        with pytest.raises(PermissionDenied):
            await found(issuer, issuer.token(**{**good, **wrong}), **rule)


async def test_groups_give_limits_models_and_administration(issuer: LocalIssuer) -> None:
    rules = {
        "groups_claim": "realm_access.roles",
        "default": {"models": ["small"], "requests_per_minute": 5},
        "groups": {
            "operators": {"admin": True, "priority": -1},
            "research": {"tokens_per_day": 1000, "tools": ["python"]},
        },
    }

    async def of(roles: Any) -> Principal | None:
        return await found(issuer, issuer.token(realm_access=roles), **rules)

    default = Principal(
        name="oidc:ada", models=["small"], limits=PrincipalLimits(requests_per_minute=5)
    )
    assert await of({"roles": ["visitors"]}) == default
    assert await of(None) == default
    assert await of("operators") == default
    research = Principal(
        name="oidc:ada", tools=["python"], limits=PrincipalLimits(tokens_per_day=1000)
    )
    assert await of({"roles": ["research"]}) == research
    both = await of({"roles": ["research", "operators"]})
    assert both == Principal(name="oidc:ada", admin=True, priority=-1)
    with pytest.raises(PermissionDenied, match="groups"):
        await found(issuer, issuer.token(), **rules, require_group=True)


async def test_types_of_tokens(issuer: LocalIssuer) -> None:
    rule = {"token_types": ["at+jwt"]}
    token = issuer.token(headers={"typ": "application/AT+JWT"})
    assert await found(issuer, token, **rule) is not None
    with pytest.raises(AuthenticationError, match="type"):
        await found(issuer, issuer.token(), **rule)


async def test_clocks_may_differ_by_the_leeway(issuer: LocalIssuer) -> None:
    token = issuer.token(exp=int(time.time()) - 100, nbf=int(time.time()) + 100)
    assert await found(issuer, token, leeway=300) is not None
    with pytest.raises(AuthenticationError):
        await found(issuer, token, leeway=0)


async def test_a_rotation_needs_nothing_here(issuer: LocalIssuer) -> None:
    async with open_oidc(config_of(issuer, refetch_interval=1)) as authenticator:
        assert await authenticator.authenticate(bearing(issuer.token())) is not None
        issuer.rotate("second")
        token = issuer.token(kid="second")
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await authenticator.authenticate(bearing(token)) is not None
                    break
                except AuthenticationError:
                    await asyncio.sleep(0.1)
        # The old key was withdrawn.
        with pytest.raises(AuthenticationError):
            await authenticator.authenticate(bearing(issuer.token()))


@pytest.mark.parametrize("kid", ["first", None])
async def test_an_issuer_made_anew_with_the_same_key_id(
    issuer: LocalIssuer, kid: str | None
) -> None:
    """Its keys are read again when a signature does not fit, once in `refetch_interval`."""
    clock, published = Clock(), Published(issuer)
    config = config_of(issuer)
    keys = IssuerKeys(config, published, clock=clock)
    authenticator = OidcAuthenticator(config, keys)
    async with keys.kept_fresh():
        old = issuer.token(kid=kid)
        assert await authenticator.authenticate(bearing(old)) is not None
        issuer.rotate("first")
        new = issuer.token(kid=kid)
        with pytest.raises(AuthenticationError):
            await authenticator.authenticate(bearing(new))  # they were read a short time ago
        assert published.read == 1
        clock.now += config.refetch_interval
        tokens = [bearing(new)] * 20
        assert None not in await asyncio.gather(*map(authenticator.authenticate, tokens))
        assert published.read == 2
        clock.now += config.refetch_interval
        for _ in range(20):
            with pytest.raises(AuthenticationError):
                await authenticator.authenticate(bearing(old))
        assert published.read == 3
        # An issuer that is away changes nothing for the keys that are known.
        clock.now += config.refetch_interval
        published.failure = Unreadable("away")
        with pytest.raises(AuthenticationError):
            await authenticator.authenticate(bearing(old))
        assert await authenticator.authenticate(bearing(new)) is not None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Published:
    """What an issuer answers."""

    def __init__(self, issuer: LocalIssuer) -> None:
        self.issuer = issuer
        self.read = 0
        self.waits: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.failure: Exception | None = None

    async def __call__(self) -> list[dict[str, Any]]:
        self.read += 1
        if self.waits is not None:
            self.reached.set()
            await self.waits.wait()
        if self.failure is not None:
            raise self.failure
        return self.issuer.jwks


async def test_known_keys_are_used_while_the_issuer_is_away_and_not_for_ever(
    issuer: LocalIssuer,
) -> None:
    clock, published = Clock(), Published(issuer)
    keys = IssuerKeys(config_of(issuer), published, clock=clock)
    async with keys.kept_fresh():
        published.failure = Unreadable("away")
        clock.now = 80_000
        assert await keys.find("first", "ES256") is not None
        with pytest.raises(IssuerUnavailable) as refused:
            await keys.find("other", "ES256")
        assert refused.value.status == 503
        assert refused.value.headers["retry-after"] == "10"
        clock.now = 90_000
        with pytest.raises(IssuerUnavailable):
            await keys.find("first", "ES256")
        published.failure = None
        clock.now += 10
        assert await keys.find("first", "ES256") is not None


async def test_those_who_come_together_wait_for_one_reading(issuer: LocalIssuer) -> None:
    """Also if the one who began it leaves."""
    clock, published = Clock(), Published(issuer)
    keys = IssuerKeys(config_of(issuer), published, clock=clock)
    async with keys.kept_fresh():
        published.waits = asyncio.Event()
        clock.now = 60
        issuer.rotate("second")
        asking = [asyncio.create_task(keys.find("second", "ES256")) for _ in range(20)]
        async with asyncio.timeout(60):
            await published.reached.wait()
        asking[0].cancel()
        published.waits.set()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert not any(isinstance(each, BaseException) for each in answers[1:])
        assert published.read == 2


async def test_the_start_does_not_wait_for_an_issuer_that_is_away(issuer: LocalIssuer) -> None:
    issuer.status = 502
    async with open_oidc(config_of(issuer, refetch_interval=1)) as authenticator:
        with pytest.raises(IssuerUnavailable):
            await authenticator.authenticate(bearing(issuer.token()))
        assert await authenticator.authenticate(bearing("sk-key")) is None
        issuer.status = 200
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await authenticator.authenticate(bearing(issuer.token())) is not None
                    break
                except IssuerUnavailable:
                    await asyncio.sleep(0.1)


async def test_an_issuer_of_another_name_stops_the_start(issuer: LocalIssuer) -> None:
    issuer.named = issuer.url + "/"
    with pytest.raises(ConfigurationError, match="to the last character"):
        await found(issuer, issuer.token())


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"algorithms": ["HS256"]}, "HS256"),
        ({"algorithms": ["none"]}, "none"),
        ({"algorithms": []}, "algorithms"),
        ({"audience": []}, "audience"),
        ({"issuer": "login.example.com"}, "issuer is not the URL"),
        ({"jwks_url": "file:///etc/passwd"}, "jwks_url is not the URL"),
        ({"require_group": True}, "require_group"),
        ({"max_key_age": 60}, "max_key_age"),
        ({"audiense": "x"}, "audiense"),
    ],
)
def test_mistakes_of_the_configuration(fields: dict[str, Any], says: str) -> None:
    table = {"issuer": "https://login.example.com", "audience": "litegate"}
    with pytest.raises(msgspec.ValidationError, match=says):
        msgspec.convert(table | fields, OidcConfig)

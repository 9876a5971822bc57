"""The configuration: `[authenticators.oidc]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from gateway.sdk import Principal, PrincipalLimits
from gateway.sdk.configuration import Positive

Algorithm: TypeAlias = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
"""Signatures with a private key. `none` and those with a shared secret (`HS256`) cannot be chosen."""

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Texts: TypeAlias = Annotated[list[_Text], Meta(min_length=1)]


class Grant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the holder of a token may use, with the keys of `[[server.api_keys]]`."""

    models: list[str] | None = None
    """Names of models; `*` stands for any characters. Default: all."""
    tools: list[str] | None = None
    """Names of tool servers, as in `[tools.<name>]`. Default: all."""
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    tokens_per_day: Positive | None = None
    max_concurrent_requests: Positive | None = None
    priority: int = 0
    weight: Annotated[float, Meta(gt=0)] = 1.0
    admin: bool = False

    def principal(self, name: str) -> Principal:
        """The principal `name` with this grant."""
        return Principal(
            name=name,
            models=self.models,
            tools=self.tools,
            limits=PrincipalLimits(
                requests_per_minute=self.requests_per_minute,
                tokens_per_minute=self.tokens_per_minute,
                tokens_per_day=self.tokens_per_day,
                max_concurrent_requests=self.max_concurrent_requests,
            ),
            priority=self.priority,
            weight=self.weight,
            admin=self.admin,
        )


class OidcConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[authenticators.oidc]`."""

    issuer: _Text
    """The issuer's URL, exactly as the claim `iss` of its tokens."""
    audience: _Text | _Texts
    """The name of this server in the claim `aud`, or several of which one must be there."""
    jwks_url: str | None = None
    """Where the issuer's keys are. Default: as its `/.well-known/openid-configuration` says."""
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)] = ("RS256", "ES256", "EdDSA")
    """Accepted signature algorithms."""
    token_types: _Texts | None = None
    """Accepted values of the header `typ`, such as `at+jwt` (RFC 9068). Default: any."""
    leeway: Annotated[float, Meta(ge=0, le=300)] = 30.0
    """By how many seconds clocks may differ, in `exp`, `nbf` and `iat`."""
    required_scopes: list[_Text] = []
    """Scopes that a token must have, all of them: in `scope`, separated by spaces, or in `scp`."""
    required_claims: dict[str, _Text | _Texts] = {}
    """Claims that a token must have, with a value or one of several. A claim that is a list must contain one."""
    name_claim: _Text = "sub"
    """The claim that names the principal."""
    name_prefix: str = "oidc:"
    """Put before the name, so that it is not that of an API key."""
    default: Grant = Grant()
    """The table `[authenticators.oidc.default]`: what a token without a known group may use."""
    groups_claim: _Text = "groups"
    """The claim with the groups. A name with dots is looked for as it is, then as a path: `realm_access.roles`."""
    groups: dict[str, Grant] = {}
    """Tables `[authenticators.oidc.groups.<group>]`: what members may use. The first of these that a token has is used."""
    require_group: bool = False
    """Whether tokens without a known group are refused."""
    max_token_bytes: Annotated[int, Meta(ge=256, le=65_536)] = 8192
    """Maximum size of a token."""
    timeout: Annotated[float, Meta(gt=0, le=9)] = 5.0
    """Time limit for reading the issuer's keys, in seconds."""
    refresh_interval: Annotated[float, Meta(ge=10)] = 3600.0
    """Seconds between readings of the issuer's keys."""
    refetch_interval: Annotated[float, Meta(ge=1)] = 10.0
    """Minimum of seconds between readings that a token with an unknown key or a wrong signature causes."""
    max_key_age: Annotated[float, Meta(ge=60)] = 86_400.0
    """Seconds for which keys are used while the issuer cannot be reached."""

    def __post_init__(self) -> None:
        for name, url in (("issuer", self.issuer), ("jwks_url", self.jwks_url)):
            if url is not None and not _is_http_url(url):
                raise ValueError(f"{name} is not the URL of a server: {url}")
        if self.max_key_age < self.refresh_interval:
            raise ValueError("max_key_age is smaller than refresh_interval.")
        if self.require_group and not self.groups:
            raise ValueError(
                "require_group needs a table [authenticators.oidc.groups.<group>] for each group."
            )

    @property
    def audiences(self) -> list[str]:
        """`audience` as a list."""
        return [self.audience] if isinstance(self.audience, str) else self.audience

    @property
    def accepted_claims(self) -> Mapping[str, list[str]]:
        """`required_claims`, each with the list of its values."""
        return {
            name: [values] if isinstance(values, str) else values
            for name, values in self.required_claims.items()
        }


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False

"""From a token to a principal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt

from gateway.sdk import AuthenticationError, Credentials, PermissionDenied, Principal
from gateway_oidc.config import Algorithm, Grant, OidcConfig
from gateway_oidc.issuer_keys import INVALID_TOKEN, IssuerKeys

MAX_NAME: Final = 256
"""Maximum length of a principal's name."""


class OidcAuthenticator:
    """Accepts tokens that an issuer has signed for this server.

    What is not a JWT, or a JWT of another issuer, is left to the next authenticator. The headers `jku`, `jwk`, `x5u` and `x5c` of tokens are
    never read: keys come from the configured issuer only.
    """

    def __init__(self, config: OidcConfig, keys: IssuerKeys) -> None:
        self._config = config
        self._keys = keys
        self._claims = config.accepted_claims
        self._scopes = frozenset(config.required_scopes)
        self._types = {_plain_type(each) for each in config.token_types or ()}

    async def authenticate(self, request: Credentials) -> Principal | None:
        """The principal of the token in `Authorization: Bearer`; None if there is no token of the issuer."""
        token = request.bearer
        if token is None or token.count(".") != 2:
            return None
        if len(token) > self._config.max_token_bytes:
            raise _invalid(
                f"The token is larger than this server's limit of {self._config.max_token_bytes} bytes."
            )
        try:
            header = jwt.get_unverified_header(token)
            unverified = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        if unverified.get("iss") != self._config.issuer:
            return None
        return self._principal(await self._verified(token, header))

    async def _verified(self, token: str, header: Mapping[str, Any]) -> Mapping[str, Any]:
        config = self._config
        algorithm, named = header.get("alg"), header.get("kid")
        allowed = next((each for each in config.algorithms if each == algorithm), None)
        if allowed is None:
            raise _invalid(
                f"The token's signature algorithm is not accepted. Accepted are: {', '.join(config.algorithms)}."
            )
        if self._types and _plain_type(header.get("typ")) not in self._types:
            raise _invalid("The token is of another type ('typ') than this server accepts.")
        kid = named if isinstance(named, str) else None
        key = await self._keys.find(kid, allowed)
        try:
            try:
                return self._decoded(token, key, allowed)
            except jwt.InvalidSignatureError:
                other = await self._keys.published_since(key, kid, allowed)
                if other is None:
                    raise
                return self._decoded(token, other, allowed)
        except jwt.ExpiredSignatureError:
            raise _invalid("The token has expired. Get a new one from its issuer.") from None
        except jwt.ImmatureSignatureError:
            raise _invalid("The token is not valid yet.") from None
        except jwt.InvalidAudienceError:
            raise _invalid("The token is for another audience ('aud') than this server.") from None
        except jwt.MissingRequiredClaimError as error:
            raise _invalid(f"The token has no claim '{error.claim}'.") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise _invalid("The token is not valid.") from None

    def _decoded(self, token: str, key: jwt.PyJWK, algorithm: Algorithm) -> Mapping[str, Any]:
        """The claims of a token that `key` has signed and that is for this server now. Raises what `jwt` raises."""
        config = self._config
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=config.audiences,
            issuer=config.issuer,
            leeway=config.leeway,
            options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
        )
        return claims

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        config = self._config
        for name, accepted in self._claims.items():
            if not set(_texts(_claim(claims, name))).intersection(accepted):
                raise PermissionDenied(
                    f"The token's claim '{name}' has none of the values that this server requires."
                )
        missing = self._scopes.difference(_scopes(claims))
        if missing:
            scopes = " ".join(config.required_scopes)
            raise PermissionDenied(
                f"The token lacks the scope '{min(missing)}'.",
                headers={
                    "www-authenticate": f'Bearer error="insufficient_scope", scope="{scopes}"'
                },
            )
        name = _claim(claims, config.name_claim)
        if not isinstance(name, str) or not name or not name.isprintable():
            raise _invalid(f"The token's claim '{config.name_claim}' is not a name.")
        name = config.name_prefix + name
        if len(name) > MAX_NAME:
            raise _invalid(f"The token's claim '{config.name_claim}' is too long.")
        return self._grant_of(claims).principal(name)

    def _grant_of(self, claims: Mapping[str, Any]) -> Grant:
        config = self._config
        if not config.groups:
            return config.default
        theirs = set(_texts(_claim(claims, config.groups_claim)))
        for group, grant in config.groups.items():
            if group in theirs:
                return grant
        if config.require_group:
            raise PermissionDenied("The token has none of the groups that may use this server.")
        return config.default


def _invalid(message: str) -> AuthenticationError:
    return AuthenticationError(message, headers=INVALID_TOKEN)


def _plain_type(typ: Any) -> str:
    """A value of `typ` as it is compared: `application/at+jwt` is `at+jwt` (RFC 7515, 4.1.9)."""
    return typ.lower().removeprefix("application/") if isinstance(typ, str) else ""


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by a path of names with dots; None if there is none."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for step in name.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def _texts(value: Any) -> Sequence[str]:
    match value:
        case bool():
            return ["true" if value else "false"]
        case str():
            return [value]
        case list():
            return [each for each in value if isinstance(each, str)]
        case _:
            return []


def _scopes(claims: Mapping[str, Any]) -> Sequence[str]:
    """The scopes of a token: a text with spaces (RFC 8693), or a list."""
    for name in ("scope", "scp"):
        value = claims.get(name)
        if isinstance(value, str):
            return value.split(" ")
        if value is not None:
            return _texts(value)
    return []

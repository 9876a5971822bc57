"""The authenticator `oidc`: principals from signed tokens (JWT) of an OpenID Connect issuer."""

from gateway_oidc.config import Grant, OidcConfig
from gateway_oidc.plugin import gateway_register_authenticators, open_oidc

__all__ = ["Grant", "OidcConfig", "gateway_register_authenticators", "open_oidc"]

"""Checks of files that settings name, and of settings that depend on each other, before anything is opened."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from gateway.access.sealing import Sealer
from gateway.access.stored_keys import KEYS_NOT_HELD
from gateway.base.errors import ConfigurationError
from gateway.base.net.guard import check_host_patterns
from gateway.config import Config, ServerConfig, read_keys


def check_settings(config: Config) -> None:
    """Check the files that the configuration names, and settings that depend on each other. Opens no plugin. Raises
    `ConfigurationError`."""
    server = config.server
    if server.workers > 1 and server.store == "memory":
        raise ConfigurationError(
            'workers > 1 needs a store that the workers share, and memory is one process\'s own: set store = "sqlite", '
            'store = "redis" or store = "none" under [server].'
        )
    if server.stored_keys and server.store == "memory":
        raise ConfigurationError(KEYS_NOT_HELD)
    Sealer(server.reasoning_keys)
    if server.keys_file is not None:
        read_keys(Path(server.keys_file))
    check_tls(server)
    try:
        check_host_patterns(config.media.allow_hosts, "media.allow_hosts")
        check_host_patterns(config.media.deny_hosts, "media.deny_hosts")
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


class EncryptedKey(Exception):
    """The private key has a passphrase. Only the server prompts for it."""


def check_tls(server: ServerConfig) -> None:
    """Check that the TLS files can be used. A private key with a passphrase is not read. Raises
    `ConfigurationError`."""
    if server.tls_certificate is None:
        return
    for key in ("tls_certificate", "tls_key", "tls_client_ca"):
        path = getattr(server, key)
        try:
            if path is not None:
                Path(path).read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"server.{key}: the file {path!r} cannot be read: {error.strerror}."
            ) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    wrong = "server.tls_certificate"
    expected = f"a certificate in PEM, and its private key in {'this file' if server.tls_key is None else 'server.tls_key'}"
    try:
        context.load_cert_chain(server.tls_certificate, server.tls_key, refuse_passphrase)
        if server.tls_client_ca is not None:
            wrong, expected = "server.tls_client_ca", "certificates in PEM"
            context.load_verify_locations(server.tls_client_ca)
    except EncryptedKey:
        return
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"{wrong}: expected {expected}: {error}.") from error


def refuse_passphrase() -> str:
    """Raise `EncryptedKey`. Passed to `load_cert_chain` as the password, so that it does not prompt at the terminal."""
    raise EncryptedKey


def doubtful_names(config: Config) -> Iterator[tuple[str, str]]:
    """Yields routes and API keys that contain a name which no model or tool of the configuration has, each with a
    description of the problem. A name of a model may still be correct: names of adapters are only known once their
    model is open."""
    models = {each for name, model in config.models.items() for each in (name, *model.aliases)}
    adapter = "it has to be an adapter's name"
    for name, route in config.routes.items():
        for target in route.models:
            if target not in models:
                yield f"route {name}", f"no model or alias is named {target!r}: {adapter}"
    named = models | config.routes.keys()
    for key in config.server.api_keys:
        for pattern in key.models or ():
            if not any(fnmatchcase(each, pattern) for each in named):
                yield (
                    f"API key {key.name}",
                    f"no model, alias or route is named {pattern!r}: {adapter}",
                )
        for tool in key.tools or ():
            if tool not in config.tools and tool.partition(".")[0] not in config.tools:
                yield f"API key {key.name}", f"there is no table [tools.{tool}]"

from __future__ import annotations

import pytest

from gateway.access.access import Authenticator, check_access, hash_key
from gateway.base.errors import AuthenticationError, ConfigurationError, PermissionDenied
from gateway.config import ApiKey, ServerConfig

DOOR = Authenticator(
    [ApiKey(name="alice", sha256=hash_key("key-a")), ApiKey(name="bob", sha256=hash_key("key-b"))]
)


def named(path: str, headers: list[tuple[bytes, bytes]]) -> str:
    principal = DOOR.principal(path, headers)
    assert principal is not None
    return principal.name


def test_a_key_tells_its_owner() -> None:
    assert named("/v1/models", [(b"authorization", b"Bearer key-b")]) == "bob"
    assert named("/v1/models", [(b"authorization", b"bearer key-a")]) == "alice"
    assert named("/v1/models", [(b"x-api-key", b"key-a")]) == "alice"


@pytest.mark.parametrize(
    "headers",
    [[], [(b"authorization", b"Bearer ")], [(b"authorization", b"Basic key-a")], [(b"authorization", b"Bearer k\xff")]],
)  # fmt: skip
def test_no_key_or_a_wrong_one_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(AuthenticationError):
        DOOR.principal("/v1/models", headers)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"Bearer Bearer key-a", " It begins with the word Bearer"),
        (b"Bearer $OPENAI_API_KEY", " It is the name of a variable"),
        (b'Bearer "key-a"', " It has quotes or brackets"),
        (b"Bearer <key-a>", " It has quotes or brackets"),
        (b"Bearer key-c", ""),
    ],
)
def test_a_key_that_was_written_wrongly_is_explained(header: bytes, said: str) -> None:
    with pytest.raises(AuthenticationError) as caught:
        DOOR.principal("/v1/models", [(b"authorization", header)])
    message = str(caught.value)
    assert message.startswith(f"Incorrect API key provided.{said}")
    assert "key-" not in message
    assert said or message == "Incorrect API key provided."


def test_probes_need_no_key_and_no_keys_mean_anybody() -> None:
    assert DOOR.principal("/health", []) is None
    assert Authenticator([]).principal("/v1/models", []) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_a_public_address_without_keys_is_refused_unless_asked_for(host: str) -> None:
    with pytest.raises(ConfigurationError, match="allow_anonymous"):
        check_access(ServerConfig(host=host))
    check_access(ServerConfig(host=host, allow_anonymous=True))
    check_access(ServerConfig(host=host, api_keys=[ApiKey(name="a", sha256="0" * 64)]))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    check_access(ServerConfig(host=host))


def test_only_a_key_with_admin_is_an_admin_even_among_keys_of_one_name() -> None:
    door = Authenticator(
        [
            ApiKey(name="alice", sha256=hash_key("key-a")),
            ApiKey(name="alice", sha256=hash_key("key-root").upper(), admin=True),
        ],
        local=True,
    )
    door.require_admin([(b"authorization", b"Bearer key-root")])
    for headers in ([(b"authorization", b"Bearer key-a")], [(b"x-api-key", b"")], []):
        with pytest.raises(PermissionDenied, match="admin = true"):
            door.require_admin(headers)


def test_without_keys_only_a_local_server_has_admins() -> None:
    Authenticator([], local=True).require_admin([])
    with pytest.raises(PermissionDenied, match="loopback"):
        Authenticator([]).require_admin([])

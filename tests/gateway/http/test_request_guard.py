"""What headers a request may have before anything else of it is looked at. Pages are in `tests/security`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import GatewayError, InvalidRequest, PermissionDenied, UnsupportedMediaType
from gateway.config import ServerConfig
from gateway.config.structs import ApiKey
from gateway.http import request_guard
from gateway.http.cross_origin import cors_config
from gateway.http.request_guard import RequestGuard, allowed_hosts

KEY = ApiKey(name="ada", sha256="0" * 64)
JSON = (b"content-type", b"application/json")
HOST = (b"host", b"localhost:8000")
ONCE = [
    "host",
    "origin",
    "content-type",
    "content-length",
    "transfer-encoding",
    "authorization",
    "x-api-key",
]


def guard_of(**config: Any) -> RequestGuard:
    server = ServerConfig(**config)
    return RequestGuard(server, cors_config(server.cors_allow_origins))


def check(
    guard: RequestGuard,
    *headers: tuple[bytes, bytes],
    method: str = "POST",
    path: str = "/v1/responses",
    version: str = "1.1",
) -> None:
    scope = {"headers": headers, "method": method, "path": path, "http_version": version}
    guard.check(scope, dict(headers))


def refusal(
    guard: RequestGuard, *headers: tuple[bytes, bytes], **scope: Any
) -> GatewayError | None:
    try:
        check(guard, *headers, **scope)
    except GatewayError as error:
        return error
    return None


@pytest.mark.parametrize("keys", [[], [KEY]], ids=["keyless", "with keys"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("name", ONCE)
def test_a_header_that_decides_something_may_not_be_repeated(
    name: str, method: str, keys: list[ApiKey]
) -> None:
    """Whether its values are the same or not, and by whatever method."""
    guard = guard_of(api_keys=keys)
    one = (name.encode(), b"localhost" if name == "host" else b"1")
    others = () if name == "host" else (HOST,)
    with pytest.raises(InvalidRequest, match=f"more than one {name.title()} header"):
        check(guard, *others, one, one, method=method)
    scope: Any = {"headers": [*others, one, one], "path": "/v1/responses", "http_version": "1.1"}
    with pytest.raises(InvalidRequest, match="more than one"):
        guard.check_handshake(scope)


def test_other_headers_may_be_repeated() -> None:
    check(guard_of(), HOST, (b"x-other", b"1"), (b"x-other", b"2"), method="GET")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_has_a_host_unless_it_is_of_http_1_0(method: str) -> None:
    for guard in (guard_of(), guard_of(api_keys=[KEY])):
        with pytest.raises(InvalidRequest, match="no Host header"):
            check(guard, JSON, method=method)
        check(guard, JSON, method=method, version="1.0")


@given(host=st.binary(min_size=1, max_size=12))
def test_what_is_no_host_is_refused_by_every_server(host: bytes) -> None:
    """Whatever hosts it answers to: the header becomes part of URLs."""
    error = refusal(guard_of(allowed_hosts=["*"]), (b"host", host), method="GET")
    legal = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!$&'()*+,;=-._~:[]@%"
    assert (error is None) == all(byte in legal for byte in host)
    assert error is None or isinstance(error, InvalidRequest)


@given(hosts=st.lists(st.sampled_from([b"localhost", b"127.0.0.1:8000", b"evil.test", b"[::1]"])))
def test_a_refused_host_stays_refused(hosts: list[bytes]) -> None:
    """Also after others were accepted: only accepted ones are remembered."""
    guard = guard_of()
    for host in hosts:
        error = refusal(guard, (b"host", host), method="GET")
        if host == b"evil.test":
            assert isinstance(error, PermissionDenied)
            assert error.code == "host_not_allowed"
        else:
            assert error is None


def test_few_hosts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose their names, so they must not fill the memory."""
    monkeypatch.setattr(request_guard, "_CACHED", 5)
    guard = guard_of(api_keys=[KEY])
    for number in range(100):
        check(guard, (b"host", b"host-%d" % number), method="GET")
        assert len(guard._known_hosts) <= 5


@pytest.mark.parametrize(
    ("config", "any_host"),
    [
        ({}, False),
        ({"api_keys": [KEY]}, True),
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "allowed_hosts": ["a.test"]}, False),
        ({"api_keys": [KEY], "allowed_hosts": ["a.test"]}, False),
        ({"allowed_hosts": ["*"]}, True),
        ({"allowed_hosts": ["a.test", "*"]}, True),
        ({"unix_socket": "/run/gateway"}, False),
    ],
)
def test_a_server_without_keys_that_only_this_machine_reaches_has_its_names_only(
    config: dict[str, Any], any_host: bool
) -> None:
    hosts = allowed_hosts(ServerConfig(**config))
    assert (hosts is None) is any_host
    if hosts is not None:
        assert all(map(hosts.allow, ["localhost", "127.0.0.1:80", "[::1]:80", "127.9.9.9"]))
        assert hosts.allow("a.test") is ("allowed_hosts" in config)
        assert not hosts.allow("b.test")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("coding", "version", "accepted"),
    [
        (b"chunked", "1.1", True),
        (b" Chunked ", "1.1", True),
        (b"gzip, chunked", "1.1", False),
        (b"chunked, chunked", "1.1", False),
        (b"identity", "1.1", False),
        (b"", "1.1", False),
        (b"chunked", "1.0", False),
    ],
)
def test_the_only_transfer_coding_is_chunked(
    coding: bytes, version: str, accepted: bool, method: str
) -> None:
    """With others a proxy may see another end of the body, so the connection is closed too."""
    headers = (HOST, JSON, (b"transfer-encoding", coding))
    error = refusal(guard_of(), *headers, method=method, version=version)
    assert (error is None) is accepted
    if error is not None:
        assert isinstance(error, InvalidRequest)
        assert dict(error.headers or {}) == {"connection": "close"}


@pytest.mark.parametrize("body", [(b"content-length", b"3"), (b"transfer-encoding", b"chunked")])
@pytest.mark.parametrize("keys", [[], [KEY]], ids=["keyless", "with keys"])
@pytest.mark.parametrize(
    ("kind", "accepted"),
    [
        (b"application/json", True),
        (b"multipart/form-data; boundary=a", True),
        (b"text/plain", False),
        (b"Text/Plain; charset=utf-8", False),
        (b" application/x-www-form-urlencoded ;a", False),
        (b"", False),
        (b";a", False),
        (None, False),
    ],
)
def test_a_body_has_a_type_that_no_page_can_send_unasked(
    kind: bytes | None, accepted: bool, keys: list[ApiKey], body: tuple[bytes, bytes]
) -> None:
    """`multipart/form-data` is left to the routes that take it. A body of unknown length is one too."""
    guard = guard_of(api_keys=keys)
    headers = [HOST, body, *([] if kind is None else [(b"content-type", kind)])]
    error = refusal(guard, *headers)
    assert (error is None) is accepted
    assert error is None or isinstance(error, UnsupportedMediaType)
    for method in ("GET", "OPTIONS"):
        assert refusal(guard, *headers, method=method) is None
    for length in ((), ((b"content-length", b"0"),)):
        assert refusal(guard, *headers[:1], *length, *headers[2:]) is None


@pytest.mark.parametrize("origin", [b"http://localhost:8000", b"https://localhost:8000"])
def test_the_servers_own_origin_is_trusted_whatever_its_scheme(origin: bytes) -> None:
    """A proxy may have added TLS. Another port of the same machine is another origin."""
    check(guard_of(), HOST, JSON, (b"origin", origin))
    for other in (b"http://localhost", b"http://localhost:8001", b"null", b"localhost:8000"):
        error = refusal(guard_of(), HOST, JSON, (b"origin", other))
        assert isinstance(error, PermissionDenied)
        assert error.code == "origin_not_allowed"

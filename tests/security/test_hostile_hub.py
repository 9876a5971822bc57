"""A hub that lies about paths, hashes and sizes, never ends, and redirects elsewhere."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError
from gateway.config.hub_names import parse_name
from gateway.models.hub import client, transfer
from gateway.models.hub.client import Hub, HubAnswerInvalid, check_redirect
from gateway.models.hub.fetching import fetch_gguf
from gateway_testing.hub_server import COMMIT, Handler, HubServer

NAME = parse_name("o/m-GGUF")
assert NAME is not None
GOOD = {"rfilename": "m-Q4_0.gguf", "size": 4, "blobId": "0" * 40}


@pytest.fixture
def hub(hub_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr(transfer, "WAIT_SECONDS", 0.0)
    hub_server.add("o/m-GGUF", {"m-Q4_0.gguf": b"GGUF"})
    return Hub(
        endpoint=hub_server.url,
        cache=tmp_path / "home" / "cache",
        headers={"Authorization": "Bearer secret"},
        timeout=5,
    )


def failure(hub: Hub) -> str:
    assert NAME is not None
    with pytest.raises(ConfigurationError) as caught:
        fetch_gguf(NAME, hub)
    return str(caught.value)


def listing(*siblings: object, sha: str = COMMIT) -> Callable[[Handler], bool]:
    """Answers with a file list."""

    def answer(handler: Handler) -> bool:
        if not handler.path.startswith("/api/"):
            return False
        handler.reply(200, json.dumps({"sha": sha, "siblings": siblings}).encode())
        return True

    return answer


def files_outside(hub: Hub) -> list[Path]:
    """All files beside the cache."""
    return [
        path
        for path in hub.cache.parents[1].rglob("*")
        if path.is_file() and hub.cache not in path.parents
    ]


@pytest.mark.parametrize(
    "path",
    [
        "../m-Q4_0.gguf", "../../../../m-Q4_0.gguf", "/tmp/m-Q4_0.gguf", "a/../../m-Q4_0.gguf", "./m-Q4_0.gguf", "a//m-Q4_0.gguf",
        "..\\..\\m-Q4_0.gguf", "m\0-Q4_0.gguf", "\x1b[2Jm-Q4_0.gguf", "a" * 300 + "-Q4_0.gguf", "a/" * 600 + "m-Q4_0.gguf", "",
    ],
)  # fmt: skip
def test_paths_that_leave_their_folder_are_not_seen(
    hub: Hub, hub_server: HubServer, path: str
) -> None:
    hub_server.answer = listing({**GOOD, "rfilename": path})
    assert "has no complete GGUF model" in failure(hub)
    assert files_outside(hub) == []


@pytest.mark.parametrize("digest", ["../../../x", "/etc/x", "0" * 39, "G" * 40, "", None])
def test_hashes_that_are_none_are_not_seen(
    hub: Hub, hub_server: HubServer, digest: str | None
) -> None:
    hub_server.answer = listing({**GOOD, "blobId": digest})
    what = "has no complete GGUF model" if digest is not None else "has no sizes and hashes"
    assert what in failure(hub)


@pytest.mark.parametrize("commit", ["../../../../x", "main", "", "0" * 41])
def test_a_commit_that_is_none(hub: Hub, hub_server: HubServer, commit: str) -> None:
    hub_server.answer = listing(GOOD, sha=commit)
    assert "its file list cannot be read" in failure(hub)
    assert not hub.cache.exists()


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"[" * 100_000, b'{"sha": 1}', b"\xff", b'{"sha":"x","siblings":[1]}'],
)
def test_a_file_list_that_is_none(hub: Hub, hub_server: HubServer, body: bytes) -> None:
    def answer(handler: Handler) -> bool:
        handler.reply(200, body)
        return True

    hub_server.answer = answer
    assert "its file list cannot be read" in failure(hub)


def test_a_file_list_without_an_end(
    hub: Hub, hub_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LISTING_BYTES", 1_000_000)

    def answer(handler: Handler) -> bool:
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        while True:
            handler.wfile.write(b"[" * 65_536)

    hub_server.answer = answer
    assert "its file list is larger than" in failure(hub)


def test_a_file_list_that_drips(
    hub: Hub, hub_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LISTING_SECONDS", 0.0)

    def answer(handler: Handler) -> bool:
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        while True:
            handler.wfile.write(b" ")

    hub_server.answer = answer
    assert "its file list does not arrive in time" in failure(hub)


def test_a_file_without_an_end_is_cut_at_its_size(hub: Hub, hub_server: HubServer) -> None:
    def answer(handler: Handler) -> bool:
        if "/resolve/" not in handler.path:
            return False
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        while True:
            handler.wfile.write(b"x" * 65_536)

    hub_server.answer = answer
    assert "m-Q4_0.gguf is longer than its list says" in failure(hub)
    kept = [path.stat().st_size for path in hub.cache.rglob("*.incomplete")]
    assert kept in ([], [0])


def test_a_file_of_another_size(hub: Hub, hub_server: HubServer) -> None:
    def answer(handler: Handler) -> bool:
        if "/resolve/" in handler.path:
            handler.reply(200, b"GGUF!")
        return "/resolve/" in handler.path

    hub_server.answer = answer
    assert "m-Q4_0.gguf has another size than its list says" in failure(hub)


@pytest.mark.parametrize("span", ["bytes 1-3/4", "bytes x-3/4", "", "bytes " + "9" * 5000 + "-3/4"])
def test_a_range_that_was_not_asked_for(hub: Hub, hub_server: HubServer, span: str) -> None:
    def answer(handler: Handler) -> bool:
        if "/resolve/" in handler.path:
            handler.reply(206, b"UF", {"Content-Range": span})
        return "/resolve/" in handler.path

    hub_server.answer = answer
    assert "range" in failure(hub)


def test_compressed_answers_are_not_read(hub: Hub, hub_server: HubServer) -> None:
    bomb = gzip.compress(b"[" * 10_000_000)

    def answer(handler: Handler) -> bool:
        handler.reply(200, bomb, {"Content-Encoding": "gzip"})
        return True

    hub_server.answer = answer
    assert "it compresses, which was not asked for" in failure(hub)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://169.254.169.254/latest/meta-data", "link-local address"),
        ("http://[fd00:ec2::254]/", "metadata address"),
        ("file:///etc/passwd", "invalid URL"),
        ("ftp://127.0.0.1/", "invalid URL"),
        ("http://[", "invalid URL"),
        ("http://127.0.0.1:99999/", "invalid URL"),
        ("", "redirects more than 5 times"),
    ],
)
def test_redirects_elsewhere(hub: Hub, hub_server: HubServer, target: str, reason: str) -> None:
    def answer(handler: Handler) -> bool:
        if "/resolve/" in handler.path:
            handler.reply(302, b"", {"Location": target or handler.path})
        return "/resolve/" in handler.path

    hub_server.answer = answer
    assert reason in failure(hub)


def test_the_file_list_stays_on_the_hub_s_host(hub: Hub, hub_server: HubServer) -> None:
    def answer(handler: Handler) -> bool:
        if handler.path.startswith("/api/"):
            handler.reply(302, b"", {"Location": f"{hub_server.cdn}/api/models/x/y"})
        return handler.path.startswith("/api/")

    hub_server.answer = answer
    assert "it redirects to another host" in failure(hub)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("https://127.0.0.1/", "a loopback address"),
        ("https://10.1.2.3/", "a private address"),
        ("https://[::ffff:192.168.0.1]/", "a private address"),
        ("http://8.8.4.4/", "without TLS"),
        ("http://8.8.8.8/", "without TLS"),
    ],
)
def test_a_public_hub_does_not_redirect_to_private_addresses_or_away_from_tls(
    target: str, reason: str
) -> None:
    check_redirect("https://8.8.8.8/x", "https://8.8.4.4/y", same_host=False)
    with pytest.raises(HubAnswerInvalid, match=reason):
        check_redirect("https://8.8.8.8/x", target, same_host=False)


def test_what_a_hub_says_of_an_error_is_one_printable_line(hub: Hub, hub_server: HubServer) -> None:
    def answer(handler: Handler) -> bool:
        handler.reply(400, b"", {"X-Error-Message": "\x1b[2J" + "a" * 5000})
        return True

    hub_server.answer = answer
    said = failure(hub)
    assert said.isprintable()
    assert len(said) < 400


@pytest.mark.parametrize(
    "tree",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'[{"path": 1}]',
        b'[{"path": "../m-Q4_0.gguf", "size": 9, "oid": "' + b"a" * 40 + b'"}]',
        b'[{"path": "m-Q4_0.gguf", "size": -1, "oid": "' + b"a" * 40 + b'"}]',
        b'[{"path": "m-Q4_0.gguf", "size": 9, "oid": "../../x"}]',
        b'[{"type": "directory", "path": "m-Q4_0.gguf", "size": 9, "oid": "' + b"a" * 40 + b'"}]',
    ],
    ids=range(8),
)
def test_the_second_list_is_trusted_no_more_than_the_first(
    hub: Hub, hub_server: HubServer, tree: bytes
) -> None:
    first = listing({"rfilename": "m-Q4_0.gguf"})

    def answer(handler: Handler) -> bool:
        if "/tree/" not in handler.path:
            return first(handler)
        handler.reply(200, tree)
        return True

    hub_server.answer = answer
    assert re.search("has no complete GGUF model|has no sizes and hashes", failure(hub))
    assert hub_server.contents() == []

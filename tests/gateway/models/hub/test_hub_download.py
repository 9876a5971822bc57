"""Downloads from a real hub on loopback: chosen, resumed, checked, into the cache that all libraries share."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qsl

import huggingface_hub
import pytest
from msgspec.structs import replace

from gateway.base.errors import ConfigurationError
from gateway.config.hub_names import HubName, parse_name
from gateway.models.hub import client, transfer
from gateway.models.hub.cache import cached_repositories
from gateway.models.hub.client import ATTEMPTS, MAX_PAGES, Hub
from gateway.models.hub.fetching import (
    GgufFiles,
    WeightFiles,
    downloaded_weights,
    fetch,
    fetch_gguf,
    fetch_weights,
    in_thread,
)
from gateway.models.hub.transfer import DownloadStopped
from gateway_testing.hub_server import COMMIT, Handler, HubServer

REPO = "o/m-GGUF"
DATA = random.Random(0).randbytes(3_000_000)
FILES = {"m-Q4_K_M.gguf": DATA, "m-Q8_0.gguf": b"GGUF8", "mmproj-F16.gguf": b"GGUFmm"}


@pytest.fixture
def hub(hub_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr(transfer, "WAIT_SECONDS", 0.0)
    hub_server.add(REPO, FILES)
    return Hub(endpoint=hub_server.url, cache=tmp_path / "cache", timeout=60)


def name(text: str) -> HubName:
    found = parse_name(text)
    assert found is not None
    return found


def failure(hub: Hub, text: str = REPO) -> str:
    with pytest.raises(ConfigurationError) as caught:
        fetch_gguf(name(text), hub)
    return str(caught.value)


def test_the_model_comes_with_its_projector_into_the_usual_cache(
    hub: Hub, hub_server: HubServer
) -> None:
    found = fetch_gguf(name(REPO), hub)
    assert found == GgufFiles(
        name="o/m-GGUF:Q4_K_M",
        model=hub.cache / f"models--o--m-GGUF/snapshots/{COMMIT}/m-Q4_K_M.gguf",
        projector=hub.cache / f"models--o--m-GGUF/snapshots/{COMMIT}/mmproj-F16.gguf",
        size=len(DATA) + 6,
    )
    assert found.model.read_bytes() == DATA
    # The hub's own library finds it there.
    cached = huggingface_hub.try_to_load_from_cache(REPO, "m-Q4_K_M.gguf", cache_dir=hub.cache)
    assert cached == str(found.model)
    [repo] = huggingface_hub.scan_cache_dir(hub.cache).repos
    assert {file.file_name for revision in repo.revisions for file in revision.files} == {"m-Q4_K_M.gguf", "mmproj-F16.gguf"}  # fmt: skip

    before = len(hub_server.contents())
    assert fetch_gguf(name(REPO), hub) == found
    assert len(hub_server.contents()) == before, "nothing is downloaded twice"


def test_what_the_hub_s_library_has_downloaded_is_used(hub: Hub, hub_server: HubServer) -> None:
    huggingface_hub.hf_hub_download(
        REPO, "m-Q8_0.gguf", cache_dir=hub.cache, endpoint=hub_server.url
    )
    before = len(hub_server.contents())
    found = fetch_gguf(name(f"{REPO}:Q8_0"), hub)
    assert found.model.read_bytes() == b"GGUF8"
    assert all("m-Q8_0" not in path for path in hub_server.contents()[before:])


def test_a_split_model_comes_whole(hub: Hub, hub_server: HubServer) -> None:
    parts = {f"BF16/m-0000{part}-of-00003.gguf": b"GGUF%d" % part for part in (1, 2, 3)}
    hub_server.add("o/split", parts)
    found = fetch_gguf(name("o/split:BF16"), hub)
    assert found.model.name == "m-00001-of-00003.gguf"
    assert {file.name: file.read_bytes() for file in found.model.parent.iterdir()} == {
        Path(each).name: data for each, data in parts.items()
    }


def test_the_weights_of_a_hugging_face_model(hub: Hub, hub_server: HubServer) -> None:
    files = {
        "config.json": b"{}",
        "model.safetensors": DATA[:1000],
        "tokenizer.json": b"{ }",
        "pytorch_model.bin": b"no",
    }
    hub_server.add("o/m", files)
    found = fetch(name("o/m"), hub)
    assert isinstance(found, WeightFiles)
    assert {file.name for file in found.folder.iterdir()} == files.keys() - {"pytorch_model.bin"}
    assert (found.folder / "config.json").read_bytes() == b"{}"
    assert fetch_weights(name("o/m"), replace(hub, offline=True)) == found


def test_a_repository_whose_name_does_not_say_gguf(hub: Hub, hub_server: HubServer) -> None:
    hub_server.add("o/plain", {"plain-q4_0.gguf": b"GGUF"})
    found = fetch(name("o/plain"), hub)
    assert isinstance(found, GgufFiles)
    assert found.name == "o/plain:Q4_0"


def test_a_lost_connection_is_taken_up_where_it_ended(hub: Hub, hub_server: HubServer) -> None:
    hub_server.cuts = [2_000_000, 500_000]
    assert fetch_gguf(name(REPO), hub).model.read_bytes() == DATA
    ranges = [
        request.headers["range"]
        for request in hub_server.seen
        if request.path.startswith("/cdn/") and "range" in request.headers
    ]
    starts = [int(each.removeprefix("bytes=").rstrip("-")) for each in ranges]
    assert len(starts) == 2
    assert 0 < starts[0] <= 2_000_000 < 2_000_000 + starts[1] - starts[0] <= 2_500_000


def test_a_download_that_was_ended_goes_on_where_it_stopped(
    hub: Hub, hub_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "ATTEMPTS", 1)
    hub_server.cuts = [1_000_000]
    assert failure(hub) == (
        f"The download of o/m-GGUF:Q4_K_M stopped: {hub.endpoint} cannot be reached (peer closed connection without sending "
        "complete message body (received 1000000 bytes, expected 3000000)). Try again: it goes on where it stopped."
    )
    digest = hashlib.sha256(DATA).hexdigest()
    [partial] = (hub.cache / "models--o--m-GGUF/blobs").iterdir()
    assert partial.name == f"{digest}.incomplete"
    kept = partial.stat().st_size
    assert 0 < kept <= 1_000_000

    assert fetch_gguf(name(REPO), hub).model.read_bytes() == DATA
    assert any(request.headers.get("range") == f"bytes={kept}-" for request in hub_server.seen)


def test_a_hub_without_ranges_sends_the_file_again(hub: Hub, hub_server: HubServer) -> None:
    hub_server.ranges = False
    hub_server.cuts = [1_000_000]
    assert fetch_gguf(name(REPO), hub).model.read_bytes() == DATA


@pytest.mark.parametrize("left", [b"x" * 1000, b"x" * len(DATA), b"x" * (len(DATA) + 1)])
def test_what_an_earlier_download_left_damaged_is_downloaded_again(hub: Hub, left: bytes) -> None:
    blobs = hub.cache / "models--o--m-GGUF/blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(DATA).hexdigest()}.incomplete").write_bytes(left)
    assert fetch_gguf(name(REPO), hub).model.read_bytes() == DATA


def test_content_with_another_hash_is_not_kept(hub: Hub, hub_server: HubServer) -> None:
    hub_server.damaged = True
    assert failure(hub).startswith("m-Q4_K_M.gguf of o/m-GGUF arrived with another hash than ")
    assert list((hub.cache / "models--o--m-GGUF/blobs").iterdir()) == []
    hub_server.damaged = False
    assert fetch_gguf(name(REPO), hub).model.read_bytes() == DATA


def test_small_files_are_checked_by_git_s_hash(hub: Hub, hub_server: HubServer) -> None:
    hub_server.add("o/m", {"model.safetensors": b"", "config.json": b"{}"})
    hub_server.damaged = False
    fetch_weights(name("o/m"), hub)
    hub_server.add("o/n", {"config.json": b"{ }", "model.safetensors": b""})
    hub_server.damaged = True
    with pytest.raises(ConfigurationError, match=r"config\.json of o/n arrived with another hash"):
        fetch_weights(name("o/n"), hub)


def test_two_downloads_of_one_file_at_once_fetch_it_once(hub: Hub, hub_server: HubServer) -> None:
    both_started = threading.Barrier(2)

    def download(_: int) -> bytes:
        both_started.wait(60)
        return fetch_gguf(name(f"{REPO}/m-Q4_K_M.gguf"), hub).model.read_bytes()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(download, range(2))) == [DATA, DATA]
    digest = hashlib.sha256(DATA).hexdigest()
    assert [request.path for request in hub_server.seen].count(f"/cdn/{digest}") == 1


def test_a_disk_with_too_little_room_is_told_before_the_download(
    hub: Hub, hub_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda path: usage)
    assert re.fullmatch(
        r"o/m-GGUF needs 3\.0 MB more in \S+, which has 1\.0 MB free: make room \(`gateway models --cached`, `gateway rm`\), "
        r"or set HF_HOME to a folder on another disk\.",
        failure(hub),
    )
    assert not [request for request in hub_server.seen if request.path.startswith("/cdn/")]


FILLED = """
import resource, signal, sys
from pathlib import Path
from gateway.config.hub_names import parse_name
from gateway.base.errors import ConfigurationError
from gateway.models.hub.client import ATTEMPTS, MAX_PAGES, Hub
from gateway.models.hub.fetching import fetch_gguf

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    fetch_gguf(parse_name("o/m-GGUF"), Hub(endpoint=sys.argv[1], cache=Path(sys.argv[2]), timeout=60))
except ConfigurationError as error:
    print(error)
"""


def test_a_disk_that_is_full_amid_a_download_keeps_what_has_come(
    hub: Hub, hub_server: HubServer
) -> None:
    # A limit of the process: what the kernel refuses to write beyond it is refused as on a full disk.
    run = subprocess.run(
        [sys.executable, "-c", FILLED, hub_server.url, str(hub.cache)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert run.stdout.startswith(
        f"There is no room for o/m-GGUF:Q4_K_M in {hub.cache} (File too large): make room"
    )
    [partial] = (hub.cache / "models--o--m-GGUF/blobs").iterdir()
    kept = partial.stat().st_size
    assert 0 < kept <= 1_000_000
    assert fetch_gguf(name(REPO), hub).model.read_bytes() == DATA
    assert any(request.headers.get("range") == f"bytes={kept}-" for request in hub_server.seen)


def test_a_download_can_be_stopped(hub: Hub, hub_server: HubServer) -> None:
    stop = threading.Event()

    def answer(handler: Handler) -> bool:
        if handler.path.startswith("/cdn/"):
            stop.set()
        return False

    hub_server.answer = answer
    with pytest.raises(DownloadStopped):
        fetch_gguf(name(REPO), hub, stop)


def test_every_tenth_of_a_download_is_a_line_of_the_log(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "gateway.models.hub"):
        fetch_gguf(name(REPO), hub)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[-1] == "downloading o/m-GGUF:Q4_K_M: 100 % of 3.0 MB"
    percents = [int(line.split(": ")[1].split()[0]) for line in lines]
    assert percents == sorted(set(percents))
    assert len(percents) == 10


def test_the_cache_serves_while_the_hub_is_away(
    hub: Hub, hub_server: HubServer, caplog: pytest.LogCaptureFixture
) -> None:
    found = fetch_gguf(name(REPO), hub)
    for gone in (replace(hub, offline=True), replace(hub, endpoint="http://127.0.0.1:1")):
        assert fetch_gguf(name(REPO), gone) == found
        assert failure(gone, f"{REPO}:Q8_0").startswith("In the cache, the only source because ")
    assert "http://127.0.0.1:1 cannot be reached (no connection: " in caplog.text

    def overloaded(handler: Handler) -> bool:
        handler.reply(503)
        return True

    hub_server.answer = overloaded
    assert fetch_gguf(name(REPO), hub) == found


def _portal(handler: Handler) -> bool:
    handler.reply(200, b"<html>Sign in</html>", {"content-type": "Text/HTML; charset=utf-8"})
    return True


def _elsewhere(handler: Handler) -> bool:
    handler.reply(302, b"", {"location": "http://portal.invalid/sign-in"})
    return True


@pytest.mark.parametrize("portal", [_portal, _elsewhere])
def test_the_cache_serves_behind_a_sign_in_page(
    hub: Hub, hub_server: HubServer, portal: Callable[[Handler], bool]
) -> None:
    hub_server.answer = portal
    assert hub.endpoint in failure(hub)
    hub_server.answer = None
    found = fetch_gguf(name(REPO), hub)
    hub_server.answer = portal
    assert fetch_gguf(name(REPO), hub) == found


def test_a_web_page_in_place_of_a_file_is_not_kept(hub: Hub, hub_server: HubServer) -> None:
    """And what has arrived of the file stays: the next download goes on there."""
    pages = 0

    def portal(handler: Handler) -> bool:
        nonlocal pages
        if handler.path.startswith("/api/") or hub_server.cuts:
            return False
        pages += 1
        return _portal(handler)

    hub_server.cuts = [1_000_000]
    hub_server.answer = portal
    assert "a web page came in place of its answer" in failure(hub)
    assert pages == transfer.ATTEMPTS - 1
    (partial,) = hub.cache.rglob("*.incomplete")
    assert DATA.startswith(partial.read_bytes())
    assert partial.stat().st_size > 0
    hub_server.answer = None
    assert fetch_gguf(name(REPO), hub).model.read_bytes() == DATA


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_that_says_when_to_ask_again_is_asked_again(
    hub: Hub, hub_server: HubServer, status: int
) -> None:
    answers: list[tuple[int, dict[str, str]]] = []

    def limited(handler: Handler) -> bool:
        if answers:
            code, headers = answers.pop(0)
            handler.reply(code, b"", headers)
            return True
        return False

    hub_server.answer = limited
    answers += [(status, {"retry-after": "0"})] * (ATTEMPTS - 1)
    assert fetch_gguf(name(REPO), hub).model.read_bytes() == DATA
    shutil.rmtree(hub.cache)
    # It is not asked for ever, nor waited for as long as it likes, nor asked again where it names no time.
    for after, asked in (
        ({"retry-after": "0"}, ATTEMPTS),
        ({"retry-after": "3600"}, 1),
        ({"retry-after": "9" * 400}, 1),
        ({"retry-after": "Wed, 21 Oct 2065 07:28:00 GMT"}, 1),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, ATTEMPTS),
        ({"retry-after": "soon"}, 1),
        ({"retry-after": "nan"}, 1),
        ({"retry-after": "inf"}, 1),
        ({}, 1),
    ):
        hub_server.seen.clear()
        answers += [(status, after)] * 20
        assert f"it answers with status {status}" in failure(hub)
        assert len(hub_server.seen) == asked
        answers.clear()


def test_a_list_without_sizes(hub: Hub, hub_server: HubServer) -> None:
    """As of a mirror; its other list has them."""
    trees = True

    def mirror(handler: Handler) -> bool:
        path = handler.path.partition("?")[0]
        if path.endswith("/revision/main"):
            files = [{"rfilename": each} for each in FILES]
            listing = {"sha": COMMIT, "siblings": files}
            handler.reply(200, json.dumps(listing).encode(), {"content-type": "application/json"})
            return True
        if "/tree/" in path and not trees:
            handler.reply(404)
            return True
        return False

    hub_server.answer = mirror
    assert fetch_gguf(name(REPO), hub).model.read_bytes() == DATA
    shutil.rmtree(hub.cache)
    trees = False
    assert "its file list has no sizes and hashes" in failure(hub)


@pytest.mark.parametrize("endless", [None, "pages", "bytes", "seconds"])
def test_a_list_of_several_pages(
    hub: Hub, hub_server: HubServer, endless: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a large repository has them; the addresses may be those of the hub that a mirror stands for. A list without an end is
    left, by whichever bound it reaches."""
    if endless == "bytes":
        monkeypatch.setattr(client, "PAGES_BYTES", 10)
    elif endless == "seconds":
        monkeypatch.setattr(client, "PAGES_SECONDS", 0.0)
    tree = [
        {
            "type": "file",
            "path": each["rfilename"],
            "size": each["size"],
            "oid": each["blobId"],
            "lfs": {"oid": each["lfs"]["sha256"], "size": each["size"]} if "lfs" in each else None,
        }
        for each in hub_server.listing(REPO)["siblings"]
    ]

    def mirror(handler: Handler) -> bool:
        path, _, query = handler.path.partition("?")
        headers = {"content-type": "application/json"}
        if path.endswith("/revision/main"):
            files = [{"rfilename": each["path"]} for each in tree]
            listing = {"sha": COMMIT, "siblings": files}
            handler.reply(200, json.dumps(listing).encode(), headers)
            return True
        if "/tree/" in path:
            at = int(dict(parse_qsl(query)).get("cursor", 0))
            assert "recursive=true" in query
            page = [] if endless else tree[at : at + 1]
            if endless or at + 1 < len(tree):
                headers["link"] = (
                    f'<https://hub.example{path}?recursive=true&cursor={at + 1}>; rel="next"'
                )
            handler.reply(200, json.dumps(page).encode(), headers)
            return True
        return False

    hub_server.answer = mirror
    if endless is not None:
        said = {
            "pages": f"its file list has more than {MAX_PAGES} pages",
            "bytes": "its file list is larger than 64 MiB",
            "seconds": "its file list does not arrive in time",
        }
        assert said[endless] in failure(hub)
    else:
        assert fetch_gguf(name(REPO), hub).model.read_bytes() == DATA


def test_a_hub_that_is_away(hub: Hub) -> None:
    gone = replace(hub, endpoint="http://127.0.0.1:1")
    assert re.fullmatch(
        r"there is no file or folder 'o/m-GGUF' here, and http://127\.0\.0\.1:1 cannot be reached \(no connection: \[Errno \d+\] "
        r"Connection refused\), and o/m-GGUF is not in the cache: check the network, the proxy and HF_ENDPOINT, or give a local file\.",
        failure(gone),
    )
    assert failure(replace(hub, offline=True)) == (
        f"o/m-GGUF is not in the cache {hub.cache}, and HF_HUB_OFFLINE is set: unset it, or run `gateway pull o/m-GGUF` where the "
        "hub can be reached."
    )


def test_a_repository_that_does_not_exist(hub: Hub) -> None:
    fetch_gguf(name(REPO), hub)
    assert failure(hub, "o/n-GGUF") == (
        f"there is no file or folder 'o/n-GGUF' here, and {hub.endpoint} has no repository o/n-GGUF: did you mean o/m-GGUF? "
        "Otherwise check the spelling, or set HF_TOKEN if it is private."
    )
    assert failure(hub, "hf:else/where:Q4_0") == (
        f"{hub.endpoint} has no repository else/where: check the spelling, or set HF_TOKEN if it is private."
    )


def test_a_misspelt_repository_is_looked_for(hub: Hub, hub_server: HubServer) -> None:
    assert "no repository p/m-GGUF: did you mean o/m-GGUF? Otherwise" in failure(hub, "p/m-GGUF")

    def answer(handler: Handler) -> bool:
        if "search=" in handler.path:
            handler.reply(200, b'[{"id": "../../x"}, {"id": "\\u001b/m-GGUF"}]')
        return "search=" in handler.path

    hub_server.answer = answer
    assert "no repository p/m-GGUF: check the spelling" in failure(hub, "p/m-GGUF")


def test_a_private_repository(hub: Hub, hub_server: HubServer) -> None:
    hub_server.add("o/private-GGUF", FILES, token="secret")
    assert "or set HF_TOKEN if it is private" in failure(hub, "o/private-GGUF")
    wrong = replace(hub, headers={"Authorization": "Bearer wrong"})
    assert "whether the account of HF_TOKEN may read it" in failure(wrong, "o/private-GGUF")
    right = replace(hub, headers={"Authorization": "Bearer secret"})
    assert fetch_gguf(name("o/private-GGUF"), right).model.read_bytes() == DATA
    for request in hub_server.seen:
        if request.path.startswith("/cdn/"):
            assert "authorization" not in request.headers, "the other host does not get the token"


def test_a_gated_repository(hub: Hub, hub_server: HubServer) -> None:
    hub_server.add("o/gated-GGUF", FILES, token="secret", gated=True)
    assert failure(hub, "o/gated-GGUF") == (
        f"o/gated-GGUF is gated: accept its terms at {hub.endpoint}/o/gated-GGUF, and set HF_TOKEN to a token of that account "
        f"({hub.endpoint}/settings/tokens)."
    )
    wrong = replace(hub, headers={"Authorization": "Bearer wrong"})
    assert failure(wrong, "o/gated-GGUF") == (
        "o/gated-GGUF is gated, and the account of HF_TOKEN has no access: ask for it at "
        f"{hub.endpoint}/o/gated-GGUF, then try again."
    )
    right = replace(hub, headers={"Authorization": "Bearer secret"})
    assert fetch_gguf(name("o/gated-GGUF"), right).model.read_bytes() == DATA


@pytest.mark.anyio
async def test_an_engine_that_finds_repositories_itself_gets_them_downloaded(
    hub: Hub, hub_server: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Hub, "from_environment", lambda: hub)
    hub_server.add("o/m", {"model.safetensors": b"s", "config.json": b"{}"})
    assert await downloaded_weights("hf:o/m") == "o/m"
    assert cached_repositories(hub) == ["o/m"]
    assert await downloaded_weights("hf:o/other", complete=False) == "o/other"
    assert await downloaded_weights(str(tmp_path)) == str(tmp_path)
    assert await downloaded_weights(None) is None
    with pytest.raises(ConfigurationError, match="has no repository o/none"):
        await downloaded_weights("o/none")


@pytest.mark.anyio
async def test_a_cancelled_download_stops(hub: Hub, hub_server: HubServer) -> None:
    reached, stopped, left = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def answer(handler: Handler) -> bool:
        if handler.path.startswith("/cdn/"):
            loop.call_soon_threadsafe(reached.set)
            left.wait(60)
        return False

    def fetch_it(stop: threading.Event) -> None:
        try:
            fetch_gguf(name(REPO), hub, stop)
        except DownloadStopped:
            stopped.set()
            raise

    hub_server.answer = answer
    task = asyncio.ensure_future(in_thread(fetch_it))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    left.set()  # the download has been told to stop, and its next bytes come
    assert await asyncio.to_thread(stopped.wait, 120)


def test_the_environment_says_which_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub.from_environment()
    assert str(hub.cache) == huggingface_hub.constants.HF_HUB_CACHE
    assert hub.endpoint == huggingface_hub.constants.ENDPOINT
    monkeypatch.setenv("HF_TOKEN", "hf_abc")
    assert Hub.from_environment().has_token

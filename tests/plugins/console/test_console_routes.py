"""What the console's routes answer, without a browser."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.base.errors import ConfigurationError
from gateway_console.files import VENDOR, read_files
from gateway_testing.server import run_gateway

ROOT = Path(__file__).parents[3]
MODELS = {"m": {"engine": "scripted"}}
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def own_files() -> dict[str, str]:
    """The files of the page that are not a library's."""
    return {
        name: file.content.decode()
        for name, file in read_files().items()
        if not name.startswith(VENDOR)
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_gateway({"models": MODELS}, tmp_path_factory.mktemp("console")) as running:
        yield running.base_url.removesuffix("/v1")


def test_a_browser_gets_the_page(url: str) -> None:
    answer = httpx.get(url, headers=BROWSER)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Litegate</title>" in answer.text


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
def test_a_client_of_the_api_is_told_where_the_api_is(url: str, accept: str) -> None:
    answer = httpx.get(url, headers={"accept": accept})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_url"
    assert "The API is below /v1; only browsers" in answer.json()["error"]["message"]


def test_every_file_that_a_file_names_is_served(url: str) -> None:
    names = set()
    for text in own_files().values():
        names |= set(re.findall(r'"console/([\w.-]+)"', text))
        names |= set(re.findall(r'(?:from |import\()"\./([\w./-]+)"', text))
        names |= set(re.findall(r'"(vendor/[\w./-]+)"', text))
    styles = next(name for name in read_files() if name.endswith("katex.min.css"))
    fonts = re.findall(r"url\((fonts/[\w-]+\.woff2)\)", read_files()[styles].content.decode())
    names |= {f"{styles.rpartition('/')[0]}/{font}" for font in fonts}
    assert len([name for name in names if name.startswith("vendor/")]) > 20
    for name in names:
        answer = httpx.get(f"{url}/console/{name}")
        assert answer.status_code == 200, name
        assert answer.content == read_files()[name].content


def test_a_file_that_a_browser_has_is_not_sent_again(url: str) -> None:
    first = httpx.get(f"{url}/console/main.js")
    again = httpx.get(f"{url}/console/main.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = httpx.get(f"{url}/console/main.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == first.content


def test_browsers_keep_libraries_and_ask_for_the_pages_own_files(url: str) -> None:
    for name in read_files():
        if name == "index.html":
            continue
        answer = httpx.get(f"{url}/console/{name}", headers={"accept-encoding": "gzip"})
        if name.startswith(VENDOR):
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert re.match(r"vendor/[\w.]+(-\w+)?-\d+\.\d+\.\d+/", name), (
                "the version is in the path"
            )
        else:
            assert answer.headers["cache-control"] == "no-cache"
        compressed = answer.headers.get("content-encoding") == "gzip"
        assert compressed != name.endswith(".woff2")


def test_the_page_is_small_and_complete() -> None:
    texts = own_files()
    assert sum(map(len, texts.values())) <= 300_000
    for name, text in texts.items():
        outside = re.findall(r"https?://[\w.-]+", text)
        assert set(outside) <= {"http://www.w3.org"}, name


def test_libraries_are_small_and_only_markdown_is_loaded_with_the_page() -> None:
    libraries = {name: each for name, each in read_files().items() if name.startswith(VENDOR)}
    sent = sum(len(each.compressed or each.content) for each in libraries.values())
    assert sent <= 500_000
    imported = re.compile(r'^import .* from "\./(vendor/[^"]+)";', re.MULTILINE)
    (name,) = [name for text in own_files().values() for name in imported.findall(text)]
    assert name.endswith("/markdown-it.esm.min.mjs")


def test_each_library_has_its_licence_and_is_described() -> None:
    folder = ROOT / "plugins/console/gateway_console/static/vendor"
    readme = (folder / "README.md").read_text()
    script = (ROOT / "plugins/console/update_vendor").read_text()
    libraries = [each for each in folder.iterdir() if each.is_dir()]
    assert len(libraries) == 3
    for each in libraries:
        name, _, version = each.name.rpartition("-")
        assert (each / "LICENSE").read_text()
        assert f"| {name} | {version} |" in readme
        assert f"take {name} " in script
        assert f'"./vendor/{each.name}/' in own_files()["vendor.js"]
    assert "://" not in script


def test_it_is_not_served_where_apis_leave_it_out(tmp_path: Path) -> None:
    with run_gateway({"models": MODELS, "server": {"apis": []}}, tmp_path) as running:
        url = running.base_url.removesuffix("/v1")
        assert httpx.get(url, headers=BROWSER).status_code == 404
        assert httpx.get(f"{url}/console/main.js").status_code == 404


def test_the_wheel_has_the_files() -> None:
    project = tomllib.loads((ROOT / "plugins/console/pyproject.toml").read_text())
    assert project["tool"]["flit"]["module"]["name"] == "gateway_console"
    assert (ROOT / "plugins/console/gateway_console/static/index.html").exists()


def test_an_unknown_option_stops_the_start(tmp_path: Path) -> None:
    config = {"models": MODELS, "apis": {"console": {"color": "blue"}}}
    with pytest.raises(ConfigurationError, match="color"), run_gateway(config, tmp_path):
        pass


def test_the_scripts_import_what_others_export() -> None:
    """A name that is missing keeps the whole page from loading."""
    texts = own_files()
    imports = re.compile(r'^import \{([^}]*)\} from "\./([^"]+)";', re.MULTILINE)
    exports = re.compile(r"^export (?:async )?(?:function\*?|const|let|class) (\w+)", re.MULTILINE)
    wanted = {
        (name, source, word.split(" as ")[0].strip())
        for name, text in texts.items()
        for words, source in imports.findall(text)
        for word in words.split(",")
    }
    assert len(wanted) > 50
    assert ("markdown.js", "vendor.js", "MarkdownIt") in wanted
    wanted.remove(("markdown.js", "vendor.js", "MarkdownIt"))  # passed on
    missing = [each for each in wanted if each[2] not in exports.findall(texts[each[1]])]
    assert missing == []

"""/v1/prompts on each store, and prompts of clients in responses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from gateway_prompts.config import PromptsConfig
from gateway_testing.server import RunningGateway, run_gateway

README = Path(__file__).parents[3] / "plugins" / "prompts" / "README.md"


def key(name: str) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest()}


def store_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    match kind:
        case "sqlite":
            return {"path": str(folder / "store.sqlite")}
        case "redis":
            url = request.getfixturevalue("redis_process").url
            return {"url": url, "prefix": f"test-{folder.name}", "timeout": 60}
        case "postgres":
            url = request.getfixturevalue("postgres_process").url
            return {"url": url, "schema": f"test_{folder.name}".replace("-", "_"), "timeout": 60}
        case _:
            return {}


def config_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    return {
        "models": {"m": {"engine": "scripted"}},
        "server": {"apis": ["prompts"], "store": kind, "api_keys": [key("ada"), key("bob")]},
        "stores": {} if kind == "none" else {kind: store_of(kind, request, folder)},
        "apis": {"prompts": {"max_prompts": 20, "max_versions": 30, "max_bytes": 4000}},
    }


@pytest.fixture(scope="module", params=["memory", "sqlite", "redis", "postgres", "none"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("prompts")
    with run_gateway(config_of(request.param, request, folder), folder) as running:
        yield running


def client_of(gateway: RunningGateway, name: str) -> httpx.Client:
    headers = {"authorization": f"Bearer key-{name}"}
    return httpx.Client(base_url=gateway.base_url, headers=headers, timeout=60)


@pytest.fixture
def ada(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with client_of(gateway, "ada") as client:
        for each in client.get("/prompts").json()["data"]:
            client.delete(f"/prompts/{each['prompt_id']}")
        yield client


@pytest.fixture
def bob(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with client_of(gateway, "bob") as client:
        yield client


def create(client: httpx.Client, text: str = "Hi {{name}}.", **more: Any) -> dict[str, Any]:
    body = {"prompt": text, "variables": re.findall(r"{{(\w+)}}", text), **more}
    answer = client.post("/prompts", json=body)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_a_prompt_is_created_changed_and_deleted(ada: httpx.Client) -> None:
    made = create(ada)
    prompt_id = made.pop("prompt_id")
    assert re.fullmatch("pmpt_[0-9a-f]{48}", prompt_id)
    assert made == {
        "prompt": "Hi {{name}}.", "version": 1, "variables": ["name"], "is_default": True,
    }  # fmt: skip
    path = f"/prompts/{prompt_id}"
    second = ada.post(path, json={"prompt": "Two", "version": 1}).json()
    assert (second["version"], second["is_default"], second["variables"]) == (2, True, [])
    body = {"prompt": "Three", "version": 2, "set_as_default": False}
    third = ada.put(path, json=body).json()
    assert (third["version"], third["is_default"]) == (3, False)
    assert ada.get(path).json()["version"] == 2
    assert ada.get(path, params={"version": 1}).json()["prompt"] == "Hi {{name}}."
    listed = ada.get(f"{path}/versions").json()["data"]
    assert [(each["version"], each["is_default"]) for each in listed] == [(1, False), (2, True), (3, False)]  # fmt: skip
    assert ada.post(f"{path}/set-default-version", json={"version": 3}).json()["is_default"]
    assert [each["prompt"] for each in ada.get("/prompts").json()["data"]] == ["Three"]
    gone = ada.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    for answer in (
        ada.get(path),
        ada.delete(path),
        ada.post(path, json={"prompt": "x", "version": 3}),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "prompt_not_found")
    assert ada.get("/prompts").json() == {"data": []}


def test_a_response_uses_the_version_that_it_names(ada: httpx.Client) -> None:
    prompt_id = create(ada)["prompt_id"]
    ada.post(f"/prompts/{prompt_id}", json={"prompt": "Two.", "version": 1, "variables": ["extra"]})
    ask: dict[str, Any] = {"model": "m", "input": "x", "store": False}
    named = {"id": prompt_id, "version": "1", "variables": {"name": "Eve"}}
    made = ada.post("/responses", json={**ask, "prompt": named}).json()
    assert (made["instructions"], made["prompt"]) == ("Hi Eve.", named)
    # A declared variable may be sent, even if this version does not use it.
    latest = {"id": prompt_id, "variables": {"extra": "x"}}
    made = ada.post("/responses", json={**ask, "prompt": latest}).json()
    assert (made["instructions"], made["prompt"]["version"]) == ("Two.", "2")
    unknown = {**ask, "prompt": {"id": prompt_id, "version": "3"}}
    assert ada.post("/responses", json=unknown).status_code == 404


def test_owners_do_not_see_each_other(ada: httpx.Client, bob: httpx.Client) -> None:
    prompt_id = create(ada, "secret")["prompt_id"]
    path = f"/prompts/{prompt_id}"
    answers = [
        bob.get(path),
        bob.get(f"{path}/versions"),
        bob.post(path, json={"prompt": "x", "version": 1}),
        bob.post(f"{path}/set-default-version", json={"version": 1}),
        bob.delete(path),
        bob.post("/responses", json={"model": "m", "input": "x", "prompt": {"id": prompt_id}}),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert prompt_id not in bob.get("/prompts").text
    assert ada.get(path).json()["prompt"] == "secret"


def test_of_two_updates_of_one_version_one_is_refused(ada: httpx.Client) -> None:
    path = f"/prompts/{create(ada)['prompt_id']}"

    def update(number: int) -> int:
        return ada.post(path, json={"prompt": str(number), "version": 1}).status_code

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(update, range(8)))
    assert codes == [200] + [400] * 7
    assert len(ada.get(f"{path}/versions").json()["data"]) == 2


def test_prompts_created_at_once_are_all_listed(ada: httpx.Client) -> None:
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda number: create(ada, f"p{number}"), range(6)))
    listed = ada.get("/prompts").json()["data"]
    assert {each["prompt_id"] for each in listed} == {each["prompt_id"] for each in made}


def test_limits_are_kept(ada: httpx.Client) -> None:
    big = ada.post("/prompts", json={"prompt": "x" * 5000})
    assert big.json()["error"]["code"] == "string_above_max_length"
    prompt_id = create(ada, "v")["prompt_id"]
    for version in range(1, 30):
        assert ada.post(f"/prompts/{prompt_id}", json={"prompt": "v", "version": version}).status_code == 200  # fmt: skip
    more = ada.post(f"/prompts/{prompt_id}", json={"prompt": "v", "version": 30})
    assert more.json()["error"]["code"] == "too_many_prompt_versions"
    for _ in range(19):
        create(ada, "v")
    full = ada.post("/prompts", json={"prompt": "v"})
    assert (full.status_code, full.json()["error"]["code"]) == (400, "too_many_prompts")
    assert len(ada.get("/prompts").json()["data"]) == 20


WRONG: list[tuple[str, str, Any, str | None]] = [
    ("POST", "/prompts", {}, "prompt"),
    ("POST", "/prompts", {"prompt": 1}, "prompt"),
    ("POST", "/prompts", {"prompt": "{{a}} {{ b }}", "variables": ["a"]}, "variables"),
    ("POST", "/prompts", {"prompt": "x", "variables": ["a b"]}, "variables[0]"),
    ("POST", "/prompts", {"prompt": "x", "variables": "a"}, "variables"),
    ("POST", "/prompts/{id}", {"prompt": "x"}, "version"),
    ("POST", "/prompts/{id}", {"prompt": "x", "version": 0}, "version"),
    ("POST", "/prompts/{id}", {"prompt": "x", "version": 2}, "version"),
    ("POST", "/prompts/{id}/set-default-version", {}, "version"),
    ("POST", "/prompts/{id}/set-default-version", {"version": 2}, "version"),
    ("GET", "/prompts/{id}?version=x", None, "version"),
    ("GET", "/prompts/{id}?version=0", None, "version"),
    ("GET", "/prompts/{id}?version=99999999999999999999", None, "version"),
    ("GET", "/prompts/pmpt_1", None, None),
    ("GET", "/prompts/..%2Flist", None, None),
]


def test_bad_requests_name_the_parameter(ada: httpx.Client) -> None:
    prompt_id = create(ada)["prompt_id"]
    for method, path, body, param in WRONG:
        answer = ada.request(method, path.format(id=prompt_id), json=body)
        assert answer.status_code in (400, 404), (path, body, answer.text)
        assert answer.json()["error"]["param"] == param, (path, body, answer.text)


def test_prompts_last_as_the_store_does(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    config = config_of("sqlite", request, tmp_path)
    with run_gateway(config, tmp_path) as first, client_of(first, "ada") as client:
        prompt_id = create(client)["prompt_id"]
    with run_gateway(config, tmp_path) as second, client_of(second, "ada") as client:
        assert client.get(f"/prompts/{prompt_id}").json()["prompt"] == "Hi {{name}}."


def test_the_readme_has_the_keys() -> None:
    text = README.read_text(encoding="utf-8")
    for field in msgspec.structs.fields(PromptsConfig):
        assert f"| `{field.name}` | `{field.default}` |" in text

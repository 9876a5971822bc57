"""Random conversations through every store and API: all that was sent is listed and read by the model, once and in order."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from gateway_testing.grammar import parse_sse
from gateway_testing.postgres_process import PostgresProcess
from gateway_testing.redis_process import RedisProcess
from gateway_testing.server import RunningGateway, run_gateway
from tests.e2e.engine_prompts import prompts
from tests.e2e.random_items import PNG, Marks, marks_of, messages, turns

MODES = ("plain", "stream", "background", "background stream")
INCLUDE = [
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "file_search_call.results",
    "code_interpreter_call.outputs",
]
SUMMARY = "what was said in short"
QUICK = [("memory", 4), ("sqlite", 4)]
LONG = [(kind, 30) for kind in ("memory", "sqlite", "redis", "postgres")]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RunningGateway]]:
    """A gateway with that store."""
    running: dict[str, tuple[Any, RunningGateway]] = {}
    servers: list[Any] = []

    def settings_of(kind: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(kind)
        match kind:
            case "redis":
                servers.append(redis := RedisProcess(folder))
                return {"url": redis.url}
            case "postgres":
                try:
                    servers.append(postgres := PostgresProcess())
                except FileNotFoundError as error:
                    if "LITEGATE_NEED_POSTGRES" in os.environ:
                        raise
                    pytest.skip(str(error))
                return {"url": postgres.url}
            case "sqlite":
                return {"path": str(folder / "store.sqlite"), "synchronous": "normal"}
            case _:
                return {}

    def opened(kind: str) -> RunningGateway:
        if kind not in running:
            scripted: dict[str, Any] = {
                "rules": [
                    {"when": "", "pieces": [{"reasoning": "so"}, {"text": "fine"}]},
                    {"when": "Write nothing but the summary", "pieces": [{"text": SUMMARY}]},
                ]
            }
            scripted["media"] = ["image"]
            config = {
                "stores": {kind: settings_of(kind)},
                "models": {"m": {"engine": "scripted", "scripted": scripted}},
            }
            context = run_gateway(config, tmp_path_factory.mktemp("gateway"))
            running[kind] = context, context.__enter__()
        return running[kind][1]

    yield opened
    for context, _ in running.values():
        context.__exit__(None, None, None)
    for server in servers:
        server.kill()


class Client:
    """One client and what it expects: the items of each thread as (type, marks)."""

    def __init__(self, gateway: RunningGateway, http: httpx.Client, chance: random.Random) -> None:
        self.gateway = gateway
        self.http = http
        self.chance = chance
        self.marks = Marks(chance)
        self.responses: list[tuple[str, list[dict[str, Any]]]] = []
        """Ids of responses that are no part of a conversation, each with the items up to its end."""
        self.conversations: dict[str, list[dict[str, Any]]] = {}
        """The items of each conversation, as they were listed."""

    def ask(self, method: str, path: str, **options: Any) -> Any:
        answer = self.http.request(method, path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def pages(self, path: str) -> list[dict[str, Any]]:
        """All items of a list, read in both orders with pages of any size."""
        found: dict[str, list[dict[str, Any]]] = {}
        for order in ("asc", "desc"):
            limit, after, items = self.chance.randint(1, 5), None, []
            while True:
                query = {"order": order, "limit": limit, "include": INCLUDE}
                page = self.ask(
                    "GET", path, params={**query, **({"after": after} if after else {})}
                )
                items += page["data"]
                if not page["has_more"]:
                    break
                assert len(page["data"]) == limit
                after = page["last_id"]
                assert after == page["data"][-1]["id"]
            found[order] = items
        assert found["asc"] == found["desc"][::-1]
        ids = [item["id"] for item in found["asc"]]
        assert len(set(ids)) == len(ids), "an id is there twice"
        return found["asc"]

    def respond(self) -> None:
        sent = turns(self.marks)
        body: dict[str, Any] = {"model": "m", "input": sent}
        history: list[dict[str, Any]] = []
        conversation = None
        where = self.chance.randint(0, 2)
        if where == 1 and self.responses:
            body["previous_response_id"], history = self.chance.choice(self.responses)
        elif where == 2 and self.conversations:
            conversation = self.chance.choice(sorted(self.conversations))
            body["conversation"], history = conversation, self.conversations[conversation]
        expected = list(sent)
        there = {item["id"] for item in history}
        items = [item for _, items in self.responses for item in items]
        uses: dict[str, set[str]] = {}
        for item in items:
            uses.setdefault(item["id"], set()).add(json.dumps(item))
        # Where a client has used an id for several items, a reference may mean any of them.
        others = [
            item
            for item in items
            if item["type"] == "message"
            and item["id"] not in there
            and marks_of(item)
            and len(uses[item["id"]]) == 1
        ]
        if others and self.chance.random() < 0.5:
            referred = self.chance.choice(others)
            body["input"] = [*sent, {"type": "item_reference", "id": referred["id"]}]
            expected.append(referred)
        before = len(prompts(self.gateway, "m"))
        response = self.run(body)
        own = self.pages(f"/responses/{response['id']}/input_items")
        same(own, expected)
        got = self.ask("GET", f"/responses/{response['id']}")
        assert got == response
        asked = prompts(self.gateway, "m")[before:] or prompts(self.gateway, "m")[-1:]
        self.check_prompt(asked[-1], [*history, *expected])
        thread = [*history, *own, *response["output"]]
        if conversation is None:
            self.responses.append((response["id"], thread))
        else:
            listed = self.pages(f"/conversations/{conversation}/items")
            same(listed, thread)
            assert [item["id"] for item in listed] == [item["id"] for item in thread]
            self.conversations[conversation] = listed

    def check_prompt(self, prompt: str, items: list[dict[str, Any]]) -> None:
        assert Counter(marks_of(prompt)) == Counter(marks_of(items)), "each text once"

    def run(self, body: dict[str, Any]) -> dict[str, Any]:
        """The response, however it is asked for; as its stream and a replay of that show it."""
        mode = self.chance.choice(MODES)
        body = {**body, "stream": "stream" in mode, "background": "background" in mode}
        answer = self.http.post("/responses", json=body)
        assert answer.status_code == 200, answer.text
        if mode == "plain":
            return answer.json()  # type: ignore[no-any-return]
        if mode == "background":
            made = answer.json()
            # The stream of one that was not made with stream: true is refused; it is waited for.
            while made["status"] in {"queued", "in_progress"}:
                made = self.ask("GET", f"/responses/{made['id']}")
            assert made["status"] == "completed", made
            return made  # type: ignore[no-any-return]
        events = [each for each in parse_sse(answer.content) if isinstance(each, dict)]
        response = events[-1]["response"]
        assert events[-1]["type"] == "response.completed", events[-1]
        done = [each["item"] for each in events if each["type"] == "response.output_item.done"]
        assert done == response["output"]
        if mode == "background stream":
            start = self.chance.randint(0, len(events) - 1)
            query = {"stream": "true", "starting_after": str(start)}
            text = self.http.get(f"/responses/{response['id']}", params=query).content
            again = [each for each in parse_sse(text) if isinstance(each, dict)]
            assert again == events[start + 1 :]
        return response  # type: ignore[no-any-return]

    def converse(self) -> None:
        """Make a conversation, or add to one."""
        sent = turns(self.marks)[:20]
        if self.conversations and self.chance.random() < 0.5:
            name = self.chance.choice(sorted(self.conversations))
            added = self.ask(
                "POST", f"/conversations/{name}/items", json={"items": sent}, params={"include": INCLUDE}
            )["data"]  # fmt: skip
            same(added, sent)
            thread = [*self.conversations[name], *added]
        else:
            name = self.ask("POST", "/conversations", json={"items": sent})["id"]
            thread = sent
        listed = self.pages(f"/conversations/{name}/items")
        same(listed, thread)
        for item in listed[:2]:
            path = f"/conversations/{name}/items/{quoted(item['id'])}"
            assert self.ask("GET", path, params={"include": INCLUDE}) == item
        self.conversations[name] = listed

    def compact(self) -> None:
        """Go on from a compaction: users' messages are kept, and the model reads a summary of all else."""
        sent = turns(self.marks)
        made = self.ask("POST", "/responses/compact", json={"model": "m", "input": sent})
        self.check_prompt(prompts(self.gateway, "m")[-1], sent)
        window = made["output"]
        kept = [item for item in sent if item.get("role") == "user" or item["type"] == "agent_message"]  # fmt: skip
        assert marks_of(window) == marks_of(kept)
        assert json.dumps(window).count(PNG) == json.dumps(kept).count(PNG)
        new = {"type": "message", "role": "user", "content": self.marks.text()}
        response = self.run({"model": "m", "input": [*window, new]})
        prompt = prompts(self.gateway, "m")[-1]
        self.check_prompt(prompt, [*kept, new])
        assert prompt.count(SUMMARY) == 1
        own = self.pages(f"/responses/{response['id']}/input_items")
        same(own, [*window, new])
        self.responses.append((response["id"], [*own, *response["output"]]))

    def converse_in_messages(self) -> None:
        """By Anthropic's API, which keeps nothing."""
        body = {"model": "m", "max_tokens": 100, "messages": messages(self.marks)}
        stream = self.chance.choice([True, False])
        answer = self.http.post("/messages", json={**body, "stream": stream})
        assert answer.status_code == 200, answer.text
        assert "fine" in answer.text
        assert marks_of(prompts(self.gateway, "m")[-1]) == marks_of(body["messages"])

    def delete_item(self) -> None:
        name = self.chance.choice(sorted(self.conversations))
        messages = [item for item in self.conversations[name] if item["type"] == "message"]
        if messages:
            item = self.chance.choice(messages)
            self.ask("DELETE", f"/conversations/{name}/items/{quoted(item['id'])}")
            self.conversations[name].remove(item)
            assert self.pages(f"/conversations/{name}/items") == self.conversations[name]

    def send_again(self) -> None:
        """As a client that sends its whole history each time."""
        name = self.chance.choice(sorted(self.conversations))
        known = self.conversations[name]
        new = {"type": "message", "role": "user", "content": self.marks.text()}
        response = self.run({"model": "m", "conversation": name, "input": [*known, new]})
        self.check_prompt(prompts(self.gateway, "m")[-1], [*known, new])
        listed = self.pages(f"/conversations/{name}/items")
        same(listed, [*known, new, *response["output"]])
        assert listed[: len(known)] == known
        self.conversations[name] = listed


def quoted(item_id: str) -> str:
    return quote(item_id, safe="")


def same(listed: list[dict[str, Any]], sent: list[dict[str, Any]]) -> None:
    """The listed items say what was sent."""
    assert [item["type"] for item in listed] == [item["type"] for item in sent]
    for shown, item in zip(listed, sent, strict=True):
        assert said(shown) == said(item)


def said(item: dict[str, Any]) -> dict[str, Any]:
    """What an item says, without what a server adds, and with strings as parts."""
    left_out = {"id", "status", "phase", "max_output_length", "timeout_ms", "annotations", "logprobs", "created_by"}  # fmt: skip
    if item.get("type") == "local_shell_call_output":
        left_out.add("call_id")  # it is its id, until two items have that
    made: dict[str, Any] = {}
    for name, value in item.items():
        if name in left_out or value is None or value == []:
            continue
        if isinstance(value, dict):
            value = said(value)
        if name == "content" and isinstance(value, str):
            kind = "output_text" if item.get("role") == "assistant" else "input_text"
            value = [{"type": kind, "text": value}]
        if isinstance(value, list):
            value = [said(each) if isinstance(each, dict) else each for each in value]
        made[name] = value
    return made


def check(gateway: RunningGateway, chance: random.Random) -> None:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as http:
        client = Client(gateway, http, chance)
        for _ in range(chance.randint(1, 5)):
            steps = [client.respond, client.respond, client.converse]
            steps += [client.compact, client.converse_in_messages]
            if client.conversations:
                steps += [client.delete_item, client.send_again]
            steps[chance.randint(0, len(steps) - 1)]()


@pytest.mark.parametrize(("kind", "examples"), QUICK)
def test_all_that_was_sent_is_listed_and_read_once(
    serve: Callable[[str], RunningGateway], kind: str, examples: int
) -> None:
    run(serve(kind), examples)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "examples"), LONG)
def test_all_that_was_sent_is_listed_and_read_once_for_long(
    serve: Callable[[str], RunningGateway], kind: str, examples: int
) -> None:
    run(serve(kind), examples)


def run(gateway: RunningGateway, examples: int) -> None:
    # Not of Hypothesis, which is not to be used beside a thread that uses `random`, as the gateway's does.
    for seed in range(examples):
        try:
            check(gateway, random.Random(seed))
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_stored_completions_have_all_messages(
    serve: Callable[[str], RunningGateway], kind: str
) -> None:
    gateway = serve(kind)
    messages = [
        {"role": ("user", "assistant")[number % 2], "content": f"q{number}z é😀\u2028"}
        for number in range(23)
    ]
    with httpx.Client(base_url=gateway.base_url, timeout=60) as http:
        made = http.post(
            "/chat/completions", json={"model": "m", "messages": messages, "store": True}
        ).json()
        for order in ("asc", "desc"):
            found: list[dict[str, Any]] = []
            after = None
            while True:
                query = {"limit": 5, "order": order, **({"after": after} if after else {})}
                page = http.get(f"/chat/completions/{made['id']}/messages", params=query).json()
                found += page["data"]
                after = page["last_id"]
                if not page["has_more"]:
                    break
            shown = [{"role": each["role"], "content": each["content"]} for each in found]
            assert shown == (messages if order == "asc" else messages[::-1])
    assert marks_of(json.loads(json.dumps(messages))) == marks_of(prompts(gateway, "m")[-1])


@pytest.mark.parametrize("kept", ["previous_response_id", "conversation"])
@pytest.mark.parametrize("last", [1, 3, 100])
def test_the_end_of_the_history_that_is_sent_again_is_read_once(
    serve: Callable[[str], RunningGateway], kept: str, last: int
) -> None:
    """By a client that names what it continues, and sends what it knows of it too."""
    gateway = serve("memory")
    with httpx.Client(base_url=gateway.base_url, timeout=60) as http:
        conversation = http.post("/conversations", json={}).json()["id"]
        body: dict[str, Any] = {"model": "m", "input": [{"role": "user", "content": "q1z"}]}
        if kept == "conversation":
            body["conversation"] = conversation
        known: list[dict[str, Any]] = []
        for turn in range(2, 6):
            made = http.post("/responses", json=body).json()
            assert made["status"] == "completed"
            path = f"/responses/{made['id']}/input_items?order=asc&limit=100"
            listed = http.get(path).json()["data"]
            ids = {item["id"] for item in known}
            known += [item for item in listed if item["id"] not in ids] + made["output"]
            if kept == "previous_response_id":
                assert marks_of(listed) == [f"q{turn - 1}z"]
            asked = prompts(gateway, "m")[-1]
            assert marks_of(asked) == [f"q{number}z" for number in range(1, turn)]
            assert asked.count("fine") == turn - 2
            new = {"role": "user", "content": f"q{turn}z"}
            body["input"] = [*known[-last:], new]
            if kept == "previous_response_id":
                body[kept] = made["id"]
        # The same message with the same id, but not what the history ends with, is a turn of its own.
        item = {"type": "message", "id": "msg_same", "role": "user", "content": "q9z"}
        first = http.post("/responses", json={"model": "m", "input": [item]}).json()
        again = {"model": "m", "input": [item], "previous_response_id": first["id"]}
        http.post("/responses", json=again)
        assert marks_of(prompts(gateway, "m")[-1]) == ["q9z", "q9z"]

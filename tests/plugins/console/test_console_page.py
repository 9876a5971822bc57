"""The console in a real browser, against a running gateway."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.access.access import hash_key
from gateway.tools.probes import ToolProbes
from gateway_testing.server import run_gateway
from tests.waiting import wait_until

from ..mcp.conftest import COMMAND, configuration, http_server
from .chromium import Chromium, Page
from .conftest import address
from .console_page import LAST, ask, choose, finished

pytestmark = pytest.mark.browser

WEATHER = json.dumps([{"name": "get_weather", "description": "Get the weather in a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}])  # fmt: skip
HOSTILE_NAME = "<img src=x onerror=window.owned=1>"
SHOTS = os.environ.get("LITEGATE_SCREENSHOTS")
"""A folder for screenshots of the documentation."""


def section(page: Page, name: str) -> None:
    """Open a section of the settings."""
    page.run(
        f"[...document.querySelectorAll('.section')].find((each) => each.textContent.startsWith('{name}')).open = true"
    )


def set_field(page: Page, label: str, value: str) -> None:
    page.run(
        "(() => { const label = [...document.querySelectorAll('label')].find((each) => each.textContent === "
        f"{json.dumps(label)}); const field = document.getElementById(label.htmlFor); field.value = {json.dumps(value)}; "
        "field.dispatchEvent(new Event('input')); field.dispatchEvent(new Event('change')); })()"
    )


def check(page: Page, text: str) -> None:
    page.run(
        f"[...document.querySelectorAll('label.check')].find((each) => each.textContent.startsWith('{text}')).querySelector('input').click()"
    )


def button(page: Page, name: str) -> None:
    """Press the last button of that name."""
    page.run(
        f"[...document.querySelectorAll('button')].filter((each) => each.getAttribute('aria-label') === '{name}' || each.innerText === '{name}').at(-1).click()"
    )


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(Path(SHOTS) / f"{name}.png")


def test_first_visit_to_a_streamed_answer(page: Page) -> None:
    page.type("#prompt", "What is the capital of France?")
    page.press("Enter")
    shown = finished(page)
    assert "The capital of France is Paris." in shown
    for part in (" in", " out", "first token", "total"):
        assert part in shown
    assert page.text(".history .title") == "What is the capital of France?"
    assert page.messages == []


def test_a_conversation_goes_on_and_outlasts_a_reload(page: Page) -> None:
    ask(page, "weather in Oslo")
    finished(page)
    ask(page, "Never mind: a person")
    assert '"age": 36' in finished(page, 2)
    page.reload()
    assert '"age": 36' in finished(page, 2)
    assert page.messages == []


def test_libraries_are_loaded_when_an_answer_needs_them(page: Page) -> None:
    def loaded(name: str) -> bool:
        return any(name in url for url in page.requested)

    ask(page, "a person")
    finished(page)
    assert loaded("markdown-it")
    assert not loaded("highlight.min")
    ask(page, "sort a list")
    finished(page, 2)
    page.wait(f"document.querySelector('{LAST} .hljs-string')")
    assert not loaded("katex")
    ask(page, "a formula")
    finished(page, 3)
    page.wait(f"document.querySelectorAll('{LAST} .math.drawn').length === 2")
    page.wait("[...document.fonts].some((each) => each.status === 'loaded')")
    assert page.messages == []


def test_a_tool_round_trip_with_the_tiny_model(page: Page) -> None:
    section(page, "Tools")
    set_field(page, "Functions", WEATHER)
    ask(page, "What is the weather in Paris?", "tiny")
    finished(page)
    assert '"city": "Paris"' in page.text(f"{LAST} .card")
    page.type(".results textarea", '{"temperature": 18, "sky": "sunny"}')
    button(page, "Send results")
    assert "18" in finished(page, 2)
    assert not page.run(f"document.querySelector('{LAST} .results')")
    assert page.messages == []


def test_an_image_that_is_dropped_is_seen(page: Page, pictures: Mapping[str, bytes]) -> None:
    data = base64.b64encode(pictures["I see a red circle."]).decode()
    page.run(
        f"(() => {{ const bytes = Uint8Array.from(atob('{data}'), (each) => each.charCodeAt(0)); const transfer = new DataTransfer(); "
        "transfer.items.add(new File([bytes], 'circle.png', {type: 'image/png'})); "
        "for (const type of ['dragenter', 'dragover', 'drop']) document.body.dispatchEvent(new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer: transfer})); })()"
    )
    page.wait("document.querySelector('.chips li')")
    ask(page, "What do you see?", "tiny")
    assert "I see a red circle." in finished(page)
    assert page.run(f"document.querySelector('{LAST} .bubble img').naturalWidth") == 128
    assert page.messages == []


def test_all_files_of_the_picker_are_attached_in_their_order(page: Page) -> None:
    page.run("(() => { const picker = document.querySelector('.composer input[type=file]'); const transfer = new DataTransfer(); for (const name of ['one.txt', 'two.md', 'three.csv']) transfer.items.add(new File([`text of ${name}, -3 degrees`], name)); picker.files = transfer.files; picker.dispatchEvent(new Event('change')); document.querySelector('#prompt').value = 'What is in them?'; document.querySelector('form.composer').requestSubmit(); })()")  # fmt: skip
    finished(page)
    names = "[...document.querySelectorAll('.turn:last-child .bubble .file')].map((each) => each.innerText)"
    assert page.run(names) == ["one.txt", "two.md", "three.csv"]
    assert page.run("document.querySelectorAll('.chips li').length") == 0
    assert page.messages == []


def test_a_reload_loses_neither_the_question_nor_what_was_read_nor_a_draft(page: Page) -> None:
    ask(page, "go slowly")
    page.wait(f"document.querySelector('{LAST} .answer')?.innerText.includes('slow words')")
    page.type("#prompt", "a draft")
    page.reload()
    assert page.text(".history .title") == "go slowly"
    assert page.text(f"{LAST} .bubble").strip().startswith("go slowly")
    assert "slow words" in page.text(f"{LAST} .answer")
    assert "Stopped" in page.text(LAST)
    assert page.run("document.querySelector('#prompt').value") == "a draft"
    ask(page, "a person")
    assert '"age": 36' in finished(page, 2)
    page.reload()
    assert page.run("document.querySelector('#prompt').value") == ""
    assert page.messages == []


def test_a_text_file_is_read_and_another_is_refused_with_the_servers_sentence(page: Page) -> None:
    page.run("(() => { const transfer = new DataTransfer(); transfer.items.add(new File(['the -3 degrees of it'], 'note.md', {type: 'text/markdown'})); dispatchEvent(Object.assign(new DragEvent('drop', {cancelable: true, dataTransfer: transfer}))); })()")  # fmt: skip
    page.wait("document.querySelector('.chips li')")
    ask(page, "What is in it?")
    assert "It is -3 degrees in Oslo." in finished(page)
    assert page.text(f"{LAST} .bubble .file") == "note.md"
    page.run("(() => { const transfer = new DataTransfer(); transfer.items.add(new File([new Uint8Array([80, 75, 3, 4, 255, 254, 0, 1])], 'data.zip', {type: 'application/zip'})); dispatchEvent(new DragEvent('drop', {cancelable: true, dataTransfer: transfer})); })()")  # fmt: skip
    page.wait("document.querySelector('.chips li')")
    ask(page, "And this?")
    finished(page, 2)
    assert page.text(f"{LAST} .notice.bad").strip()


def test_stop_ends_the_answer_and_the_engine(page: Page, console: str) -> None:
    ask(page, "go on forever")
    page.wait(
        f"document.querySelector('{LAST} .markdown')?.innerText.includes('more words more words')"
    )
    button(page, "Stop")
    assert "Stopped." in finished(page)
    running = 'gateway_running_requests{model="scripted"} 0.0'
    page.wait(
        f"fetch('/metrics').then((answer) => answer.text()).then((text) => text.includes({json.dumps(running)}))"
    )
    page.run("location.hash = '#/stored'")
    page.wait("document.querySelector('.view td')")
    assert "stopped" in page.text(".view tbody")
    assert "in_progress" not in page.text(".view tbody")
    page.resize(380, 740)
    # The button's words stay on one line.
    assert page.run("document.querySelector('.view form button').offsetHeight") < 45
    assert page.messages == []


def test_escape_ends_the_answer(page: Page) -> None:
    ask(page, "go on forever")
    page.wait(f"document.querySelector('{LAST} .answer')?.innerText.includes('more words')")
    page.press("Escape")
    page.wait("!document.querySelector('[aria-label=Send]').hidden")
    assert page.messages == []


def test_an_image_is_not_sent_to_a_model_that_takes_none(page: Page) -> None:
    page.run("(() => { const transfer = new DataTransfer(); transfer.items.add(new File([new Uint8Array([1])], 'a.png', {type: 'image/png'})); dispatchEvent(new DragEvent('drop', {cancelable: true, dataTransfer: transfer})); })()")  # fmt: skip
    page.wait("document.querySelector('.chips li')")
    page.type("#prompt", "What do you see?")
    page.run("(() => { const select = document.querySelector('.model select'); select.value = 'scripted'; select.dispatchEvent(new Event('change')); })()")  # fmt: skip
    page.run("document.querySelector('#prompt').focus()")
    page.press("Enter")
    page.wait("document.querySelector('.composer .error').innerText.includes('takes no images')")
    assert not page.run("document.querySelector('.turn')")
    assert page.run("document.querySelector('#prompt').value") == "What do you see?"
    assert page.run("document.querySelectorAll('.chips li').length") == 1


def test_tools_that_the_gateway_lacks_are_not_offered(page: Page) -> None:
    page.wait("[...document.querySelectorAll('fieldset')].some((each) => each.hidden && each.innerText !== undefined && each.textContent.includes('Run by the gateway'))")  # fmt: skip
    assert "Web search" not in page.text(".settings")


def test_a_background_run_survives_a_reload(page: Page) -> None:
    section(page, "Run")
    check(page, "In the background")
    ask(page, "go slowly")
    page.wait(
        f"document.querySelector('{LAST} .markdown')?.innerText.includes('slow words slow words')"
    )
    # It is kept with the number of its last event.
    page.wait("new Promise((resolve) => { const open = indexedDB.open('litegate-console'); open.onsuccess = () => { const all = open.result.transaction('conversations').objectStore('conversations').getAll(); all.onsuccess = () => resolve(Object.values(all.result[0]?.turns ?? {})[0]?.sequence > 4); }; })")  # fmt: skip
    page.reload()
    text = finished(page)
    assert text.count("slow words") == 40
    assert any("starting_after=" in url for url in page.requested)


def test_cancelling_a_background_run(page: Page, console: str) -> None:
    section(page, "Run")
    check(page, "In the background")
    ask(page, "go on forever")
    page.wait(f"document.querySelector('{LAST} .markdown')?.innerText.includes('more words')")
    button(page, "Stop")
    assert "Stopped." in finished(page)


def test_structured_output(page: Page) -> None:
    section(page, "Output")
    set_field(page, "Format", "json_schema")
    set_field(
        page,
        "JSON schema",
        '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}',
    )
    ask(page, "Tell me something")
    finished(page)
    assert json.loads(page.text(f"{LAST} .markdown"))["name"] is not None


def test_invalid_settings_are_told_before_anything_is_sent(page: Page) -> None:
    section(page, "Tools")
    set_field(page, "Functions", "[{")
    page.type("#prompt", "Hello")
    page.press("Enter")
    page.wait(
        "document.querySelector('.composer .error').innerText.startsWith('Functions is not valid JSON')"
    )
    assert not any(url.endswith("/v1/responses") for url in page.requested)
    assert page.run("document.querySelector('#prompt').value") == "Hello"


@pytest.mark.parametrize(
    ("asked", "said"),
    [("be busy", "The engine is busy. Try again."), ("break down", "failed on this request")],
)
def test_errors_are_shown_with_their_sentence(page: Page, asked: str, said: str) -> None:
    ask(page, asked)
    finished(page)
    assert said in page.text(f"{LAST} .notice.bad")


def test_branches(page: Page) -> None:
    ask(page, "Hello one")
    finished(page)
    button(page, "Answer again")
    page.wait("document.querySelector('.pager')?.innerText.includes('2/2')")
    finished(page)
    page.click("[aria-label='Edit and ask again']")
    page.type(".edit textarea", "Hello two")
    button(page, "Ask again")
    page.wait("document.querySelector('.pager')?.innerText.includes('3/3')")
    assert "Hello two" in finished(page)
    page.click("[aria-label='Previous branch']")
    page.wait("document.querySelector('.bubble').innerText === 'Hello one'")
    page.reload()
    assert "2/3" in page.text(".pager")
    for _ in range(5):  # what was chosen is kept although the page is left at once
        page.run("document.querySelector(\"[aria-label='Previous branch']\").click()")
        page.reload()
        assert "1/3" in page.text(".pager")
        page.run("document.querySelector(\"[aria-label='Next branch']\").click()")
        page.reload()
        assert "2/3" in page.text(".pager")
    assert page.messages == []


@pytest.mark.parametrize("language", ["Python", "curl", "Node"])
def test_show_code_is_the_request(page: Page, console: str, language: str, tmp_path: Path) -> None:
    choose(page, "scripted")
    set_field(page, "Temperature", "0.5")
    page.type("#prompt", 'Isn\'t it "-3 degrees"?')
    button(page, "Code")
    button(page, language)
    code = page.text("[role=tabpanel]:not([hidden]) code")
    assert console in code
    if language == "Python":
        out: dict[str, Any] = {}
        printed: list[str] = []
        exec(
            compile(code, "code", "exec"), {"print": lambda *parts, **_: printed.extend(parts)}, out
        )
        out["client"].close()
        assert "".join(printed) == "It is -3 degrees in Oslo."
    elif language == "curl":
        import subprocess

        answer = subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=True)
        assert "response.completed" in answer.stdout


@pytest.mark.parametrize("stored", [True, False])
def test_show_code_goes_on_with_the_conversation(page: Page, stored: bool) -> None:
    choose(page, "scripted")
    if not stored:
        check(page, "Store on the gateway")
    ask(page, "Is it cold in Oslo?")
    finished(page)
    page.type("#prompt", 'Isn\'t it "-3 degrees"?')
    button(page, "Code")
    code = page.text("[role=tabpanel]:not([hidden]) code")
    assert ("previous_response_id" in code) == stored
    assert ("Is it cold in Oslo?" in code) != stored
    assert '"id"' not in code
    assert '"annotations"' not in code
    printed: list[str] = []
    out: dict[str, Any] = {}
    exec(compile(code, "code", "exec"), {"print": lambda *parts, **_: printed.extend(parts)}, out)
    out["client"].close()
    assert "".join(printed) == "It is -3 degrees in Oslo."


def test_events_as_they_came(page: Page) -> None:
    button(page, "Events")
    ask(page, "Hello")
    finished(page)
    page.wait("document.querySelectorAll('.events li').length > 5")
    types = page.run(
        "[...document.querySelectorAll('.events .type')].map((each) => each.innerText)"
    )
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"


def test_views_look_into_the_gateway(page: Page) -> None:
    ask(page, "Hello")
    finished(page)
    page.click(f"{LAST} .stats a")
    page.wait("document.querySelector('.view .item-list')")
    assert "Hello" in page.text(".view")
    assert "completed" in page.text(".view")
    page.wait("document.querySelector('.view .span-bar')")
    page.click("a[href='#/models']")
    page.wait("document.querySelectorAll('.tile').length === 2")
    assert "loaded" in page.text(".tile")
    assert page.run(
        "[...document.querySelectorAll('.tile')].every((each) => each.innerText.includes('Engine'))"
    )
    page.click("a[href='#/server']")
    page.wait("document.querySelector('.view table')")
    assert "scripted" in page.text(".view table")
    page.wait("document.querySelector('.view').innerText.includes('litegate-console')")
    assert page.messages == []


ONE_IS_SILENT = """
  const plain = window.fetch;
  window.fetch = async (...given) => {
    const answer = await plain(...given);
    if (!String(given[0]).includes("/v1/gateway/")) return answer;
    return Response.json({ ...(await answer.json()), workers: 2, answered: 1, silent: [4711] });
  };
"""
"""Makes a page read the answers of a server with a worker process that does not answer."""


def test_other_keys_are_told_in_the_pages_words_that_a_tool_is_absent(
    chromium: Chromium, tmp_path: Path
) -> None:
    keys = [{"name": "ada", "sha256": hash_key("key-ada")}]
    config = {"models": {"scripted": {"engine": "scripted"}}, "server": {"api_keys": keys}}
    with run_gateway(config, tmp_path) as running, chromium.page() as page:
        page.open(f"{address(running)}/")
        page.type("dialog input", "key-ada")
        button(page, "Use this key")
        page.wait("!document.querySelector('dialog[open]')")
        check(page, "Web search")
        ask(page, "Hello")
        page.wait("document.querySelector('.notice.bad')")
        assert "Take it out under Settings, Tools." in page.text(".notice.bad")
        assert "unsupported_tool" in page.text(".notice.bad")


def test_administrators_see_keys_settings_and_queues(chromium: Chromium, tmp_path: Path) -> None:
    keys = [
        {"name": HOSTILE_NAME, "sha256": hash_key("key-ada"), "tokens_per_day": 1000},
        {"name": "root", "sha256": hash_key("key-root"), "admin": True},
    ]
    config = {"models": {"m": {"engine": "scripted"}}, "server": {"api_keys": keys}}
    with run_gateway(config, tmp_path) as running, chromium.page() as page:
        ada = {"authorization": "Bearer key-ada"}
        body = {"model": "m", "input": "Hello"}
        made = httpx.post(f"{running.base_url}/responses", json=body, headers=ada, timeout=60)
        assert made.status_code == 200, made.text
        page.open(f"{address(running)}/#/keys")
        for name, said in (("ada", "admin = true"), ("root", "of 1,000 tokens today")):
            button(page, "API key")
            page.type("dialog input", f"key-{name}")
            button(page, "Use this key")
            page.wait(f"document.querySelector('.view').innerText.includes({json.dumps(said)})")
        assert HOSTILE_NAME in page.text(".view")
        shot(page, "console-keys")
        page.run("location.hash = '#/config'")
        page.wait("document.querySelector('.view').innerText.includes('gateway.toml line')")
        assert "models.m.engine" in page.text(".view")
        assert "server.grace_period" not in page.text(".view")
        assert hash_key("key-root") not in page.text(".view")
        page.click("#show-defaults")
        page.type("input[type=search]", "grace")
        page.wait("document.querySelector('.view').innerText.includes('server.grace_period')")
        assert "models.m.engine" not in page.text(".view")
        shot(page, "console-config")
        running.services.slots.slots["m"].admission.waiting += 3  # as the history sees it
        page.wait("fetch('/health').then(() => true)")
        history = running.services.queue_history
        assert history is not None
        wait_until(lambda: any(each.waiting == 3 for each in history.of("m")))
        running.services.slots.slots["m"].admission.waiting -= 3
        page.run("location.hash = '#/models'")
        page.wait("document.querySelector('.queue')?.innerText.includes('3 waited')")
        assert page.run("document.querySelectorAll('.queue-bars .tool').length") >= 1
        shot(page, "console-models-queue")
        for view in ("keys", "config", "models"):
            page.run(f"location.hash = '#/{view}'")
            page.resize(390, 800)
            page.wait("document.querySelector('.view :is(table, .tile)')")
            assert page.run("document.documentElement.scrollWidth") <= 390
        page.run(ONE_IS_SILENT)
        for view in ("keys", "models", "requests"):
            page.run(f"location.hash = '#/{view}'")
            page.wait(f"document.querySelector('nav [aria-current]')?.hash === '#/{view}'")
            page.wait("/Did not answer:.* 4711/.test(document.querySelector('.view').innerText)")
        assert not page.run("document.querySelector('.view img')")
        assert page.run("window.owned") is None
        assert [each for each in page.messages if "403" not in each and "401" not in each] == []


def test_mcp_servers_are_asked_only_on_demand(chromium: Chromium, tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    servers: dict[str, Any] = {
        "ex": {"command": COMMAND},
        "gone": {"command": [str(tmp_path / "no-such-program")]},
    }
    config = configuration(tmp_path, servers=servers)
    view = "document.querySelector('.view')"
    with run_gateway(config, tmp_path) as running, chromium.page() as page:
        running.services.tool_probes = ToolProbes(seconds=60, all_seconds=60)  # for slow machines
        page.open(f"{address(running)}/#/tools")
        page.wait(f"{view}?.querySelectorAll('.tile').length === 2")
        assert page.text(".view").count("not asked yet") == 2
        button(page, "Check all servers")
        page.wait(f"{view}.querySelector('.badge.good') && {view}.querySelector('.badge.bad')")
        assert "its program could not be started" in page.text(".view")
        page.click(".view details summary")
        page.wait(f"{view}.innerText.includes('Add two numbers')")
        for width, name in ((1280, "console-tools"), (390, "console-tools-narrow")):
            page.resize(width, 800)
            assert page.run("document.documentElement.scrollWidth") <= width
            shot(page, name)
        page.reload()
        page.wait(f"{view}?.querySelector('.badge.good')")  # what the last probe found
        assert page.messages == []


def test_requests_are_shown_live_with_their_timeline(page: Page) -> None:
    running = "document.querySelectorAll('.runs')[0]"
    ended = "document.querySelectorAll('.runs')[1]"
    ask(page, "go on forever")
    page.wait(f"document.querySelector('{LAST} .answer')?.innerText.includes('more words')")
    page.click("a[href='#/requests']")
    page.wait(f"{running}?.innerText.includes('decoding')")
    number = f"Number(/([\\d,.]+) tokens/.exec({running}.innerText)?.[1].replace(/\\D/g, ''))"
    before = page.wait(number)
    page.wait(f"{number} > {before}")  # by itself, while it is looked at
    page.run(f"{running}.querySelector('summary').focus()")
    page.press("Enter")
    page.wait(f"{running}.querySelector('.span-bar .decoding')")
    assert "Decoding" in page.run(f"{running}.innerText")
    shot(page, "console-requests-running")
    at = page.wait(number)
    page.wait(f"{number} > {at}")
    assert page.run(f"document.activeElement === {running}.querySelector('summary')")
    page.click(".run-row > button")
    page.wait(f"{ended}?.innerText.includes('cancelled')")
    page.wait(f"!{running}.children.length")
    page.resize(390, 800)
    page.wait(f"{ended}.querySelector('.span-bar')")  # it was open, and stays so
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run("document.querySelector('.view').scrollWidth") <= 390
    shot(page, "console-requests-narrow")
    button(page, "Pause")
    page.wait("document.querySelector('[aria-pressed=true]')")
    assert page.messages == []


def test_requests_of_others_need_an_admin_key(chromium: Chromium, tmp_path: Path) -> None:
    keys = [
        {"name": name, "sha256": hash_key(f"key-{name}"), "admin": name == "root"}
        for name in ("ada", "root")
    ]
    config = {"models": {HOSTILE_NAME: {"engine": "scripted"}}, "server": {"api_keys": keys}}
    with run_gateway(config, tmp_path) as running, chromium.page() as page:
        headers = {"authorization": "Bearer key-ada"}
        body = {"model": HOSTILE_NAME, "input": "a secret question"}
        made = httpx.post(f"{running.base_url}/responses", json=body, headers=headers, timeout=60)
        assert made.status_code == 200, made.text
        page.open(f"{address(running)}/#/requests")
        for name, said in (("ada", "admin = true"), ("root", HOSTILE_NAME)):
            button(page, "API key")
            page.type("dialog input", f"key-{name}")
            button(page, "Use this key")
            page.wait(f"document.querySelector('.view').innerText.includes({json.dumps(said)})")
            offered = "[...document.querySelectorAll('.links a')].filter((each) => !each.hidden).map((each) => each.innerText)"
            views = page.wait(
                f"({offered}.includes('Keys') === {json.dumps(name == 'root')}) && {offered}"
            )
            assert ("Requests" in views) == ("Configuration" in views) == (name == "root")
            shown = page.text(".view")
            assert ("· ada" in shown) == (name == "root")
            assert "secret" not in shown
        assert not page.run("document.querySelector('.view img')")
        assert page.run("window.owned") is None


@pytest.mark.parametrize(("choice", "said"), [("yes", "It is five."), ("no", "As you wish.")])
def test_an_mcp_server_by_url_asks_for_approval(
    chromium: Chromium, tmp_path: Path, choice: str, said: str
) -> None:
    pytest.importorskip("mcp")
    remote = {"enabled": True, "allow_hosts": ["127.0.0.1"], "allow_private": True}
    with (
        http_server("streamable-http") as server,
        run_gateway(configuration(tmp_path, remote=remote), tmp_path) as running,
        chromium.page() as page,
    ):
        page.open(f"{address(running)}/")
        section(page, "Tools")
        button(page, "Add an MCP server")
        set_field(page, "Label", "ex")
        set_field(page, "URL", server.url)
        ask(page, "please add", "m")
        finished(page)
        assert "Asks to call add of ex" in page.text(f"{LAST} .items")
        page.run(f"document.querySelector('.results select').value = '{choice}'")
        button(page, "Send results")
        assert said in finished(page, 2)
        assert page.messages == []


def test_an_admin_unloads_and_loads_a_model_and_others_are_told_why_not(
    chromium: Chromium, tmp_path: Path
) -> None:
    keys = [
        {"name": name, "sha256": hash_key(f"key-{name}"), "admin": name == "root"}
        for name in ("ada", "root")
    ]
    models = {name: {"engine": "scripted"} for name in ("one", "two")}
    config = {"models": models, "server": {"api_keys": keys}}
    state = "document.querySelector('.tile .badge')?.innerText === "
    with run_gateway(config, tmp_path) as running, chromium.page() as page:
        page.open(f"{address(running)}/#/models")
        for name in ("ada", "root"):
            page.wait("document.querySelector('dialog[open]') || document.querySelector('.tile')")
            button(page, "API key")
            page.type("dialog input", f"key-{name}")
            button(page, "Use this key")
            page.wait(f"!document.querySelector('dialog[open]') && {state}'loaded'")
            button(page, "Unload one")
            if name == "ada":
                page.wait("document.querySelector('.tile .error').innerText.includes('admin')")
            else:
                page.wait(f"{state}'unloaded'")
                button(page, "Load one")
                page.wait(f"{state}'loaded'")


def test_the_reference_of_the_api(page: Page, console: str) -> None:
    page.open(f"{console}/docs")
    page.wait("document.querySelectorAll('.operation').length > 20")
    page.type("[type=search]", "post /v1/responses create")
    page.run("document.querySelector('[type=search]').dispatchEvent(new Event('input'))")
    page.wait("document.querySelectorAll('.operation').length < 5 || null")
    page.type("[type=search]", "/v1/responses")
    page.run(
        "[...document.querySelectorAll('.operation')].find((each) => each.innerText.includes('POST') && each.querySelector('.path').innerText === '/v1/responses').open = true"
    )
    page.wait(
        "document.querySelector('.operation .fields')?.innerText.includes('max_output_tokens')"
    )
    page.run(
        "[...document.querySelectorAll('.nested')].find((each) => each.innerText.startsWith('reasoning')).open = true"
    )
    page.wait("document.querySelector('.nested[open] .fields')?.innerText.includes('effort')")
    shot(page, "console-api")
    page.run(
        "[...document.querySelectorAll('.reference .operation')].forEach((each) => { each.open = true; })"
    )
    page.wait("document.querySelector('.reference .fields')")
    assert "`" not in page.text(".reference")
    assert page.messages == []


def test_a_stored_response_is_deleted(page: Page) -> None:
    ask(page, "Hello")
    finished(page)
    page.click(f"{LAST} .stats a")
    page.wait("document.querySelector('.view .item-list')")
    address = page.run("location.hash")
    button(page, "Delete")
    page.wait("location.hash === '#/stored'")
    page.run(f"location.hash = '{address}'")
    page.wait("document.querySelector('.view .notice.bad')?.innerText.includes('not found')")


def test_the_key_stays_in_the_tab(chromium: Chromium, tmp_path: Path) -> None:
    server = {"api_keys": [{"name": "ada", "sha256": hash_key("secret-ada")}]}
    with (
        run_gateway(
            {"models": {"m": {"engine": "scripted"}}, "server": server}, tmp_path
        ) as running,
        chromium.page() as page,
    ):
        page.open(f"{address(running)}/")
        page.wait("document.querySelector('dialog[open]')")
        page.type("dialog input", "wrong")
        button(page, "Use this key")
        page.wait("document.querySelector('dialog .error').innerText.includes('Incorrect API key')")
        page.type("dialog input", "secret-ada")
        button(page, "Use this key")
        page.wait("!document.querySelector('dialog[open]')")
        page.type("#prompt", "Hello")
        page.press("Enter")
        assert "Hello" in finished(page)
        assert "secret-ada" not in page.run("JSON.stringify(localStorage)")
        assert "secret-ada" not in page.run("location.href")
        assert page.run("sessionStorage.getItem('litegate.key')") == "secret-ada"
        assert not any("secret-ada" in url for url in page.requested)
        assert httpx.get(f"{running.base_url}/models").status_code == 401


def test_dark_and_light(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page.dark(False)
    light = page.run(ground)
    page.dark(True)
    dark = page.wait(f"{ground} !== '{light}' && {ground}")
    page.wait("document.querySelector('[aria-label=\"Switch to light\"]')")
    button(page, "Switch to light")
    assert page.run(ground) == light
    page.reload()
    assert page.run(ground) == light
    button(page, "Switch to dark")
    assert page.run(ground) == dark


def test_by_keyboard_alone(page: Page) -> None:
    page.run("document.activeElement.blur()")
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.press("Enter")
    page.wait("document.activeElement.id === 'prompt'")
    page.call("Input.insertText", text="Hello")
    page.press("Enter")
    assert "Hello" in finished(page)


def test_on_a_narrow_screen(page: Page) -> None:
    page.resize(390, 800)
    page.wait("!document.querySelector('.show-sidebar')")
    ask(page, "sort a list")  # in so many pieces that it has a rate
    assert "tokens/s" in finished(page)
    assert page.run("document.documentElement.scrollWidth") <= 390
    page.wait("document.querySelector('.scroller').scrollWidth <= 390")
    shot(page, "console-narrow")
    button(page, "Settings, code and events")
    page.wait("getComputedStyle(document.querySelector('.inspector')).display === 'flex'")
    page.press("Escape")
    page.wait("getComputedStyle(document.querySelector('.inspector')).display === 'none'")


AXE = """
axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.map((node) => node.target.join(" ") + " " + node.failureSummary).join("; ")}`))
"""


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(page: Page, dark: bool) -> None:
    file = Path(os.environ.get("LITEGATE_NODE_MODULES", "")) / "axe-core/axe.min.js"
    if not file.is_file():
        pytest.skip("LITEGATE_NODE_MODULES does not say where npm's axe-core is installed")
    page.call("Page.setBypassCSP", enabled=True)
    page.dark(dark)
    page.reload()
    page.run(file.read_text(encoding="utf-8") + "; 0")
    section(page, "Tools")
    set_field(page, "Functions", WEATHER)
    assert page.run(AXE) == []
    ask(page, "sort a list")
    finished(page)
    ask(page, "weather in Oslo")
    finished(page, 2)
    button(page, "Events")
    assert page.run(AXE) == []
    for view in ("stored", "models", "tools", "requests", "keys", "server", "config", "api"):
        page.run(f"location.hash = '#/{view}'")
        page.wait("document.querySelector('.view :is(table, .tile, .operation, .run, .hint)')")
        assert page.run(AXE) == []


@pytest.mark.parametrize("dark", [False, True])
def test_screenshots_for_the_documentation(page: Page, dark: bool) -> None:
    page.dark(dark)
    page.resize(1280, 820, 1.5)
    set_field(page, "Functions", WEATHER)
    ask(page, "How do I sort a list?")
    finished(page)
    name = "dark" if dark else "light"
    shot(page, f"console-{name}")
    ask(page, "What is the weather in Oslo?")
    finished(page, 2)
    button(page, "Code")
    shot(page, f"console-tool-{name}")
    for view in ("models", "stored", "requests", "server"):
        page.run(f"location.hash = '#/{view}'")
        page.wait("document.querySelector('.view :is(table, .tile, .run)')")
        page.run("document.querySelector('.run summary')?.click()")
        shot(page, f"console-{view}-{name}")
    assert page.messages == []

"""Chat templates that requests bring are programs: they end, and hold up nobody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway

LONGEST_SILENCE = 15.0
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    model = {
        "engine": "scripted",
        "renderer": "chat_template",
        "trust_request_chat_template": True,
        "scripted": {"rules": [{"when": "<<", "pieces": [{"text": "Seen."}]}]},
    }
    folder = tmp_path_factory.mktemp("templates")
    with run_gateway({"models": {"m": model, "n": {**model, "trust_request_chat_template": False}}}, folder) as gateway:  # fmt: skip
        yield gateway


def asked(gateway: RunningGateway, **body: Any) -> httpx.Response:
    """The answer to a chat request, while `/health` answers."""
    health = gateway.base_url.removesuffix("/v1") + "/health"
    body = {"model": "m", "messages": MESSAGES, **body}
    url = gateway.base_url + "/chat/completions"
    with ThreadPoolExecutor(1) as threads, httpx.Client(timeout=60) as client:
        client.get(health)
        call = threads.submit(httpx.post, url, json=body, timeout=60)
        slowest = 0.0
        while not call.done():
            begun = time.monotonic()
            assert client.get(health).status_code == 200
            slowest = max(slowest, time.monotonic() - begun)
            time.sleep(0.02)
    assert slowest < LONGEST_SILENCE, f"/health waited {slowest:.1f} s"
    return call.result()


def test_a_template_of_a_request_is_used(gateway: RunningGateway) -> None:
    template = "<<{{ messages[0].content }}>>"
    answer = asked(gateway, chat_template=template)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "Seen."
    url = gateway.base_url.removesuffix("/v1") + "/tokenize"
    for kwargs in ({}, {"chat_template_kwargs": {"a": "b"}}):
        body = {"model": "m", "messages": MESSAGES, "chat_template": template, **kwargs}
        counted = httpx.post(url, json=body)
        assert counted.status_code == 200, counted.text
        assert counted.json()["count"] > 0


NESTED = "{% for a in range(99999) %}" * 6 + "{% endfor %}" * 6
HOSTILE = {
    "nested loops": NESTED,
    "loops without output": "{% set ns = namespace(a=0) %}"
    + NESTED.replace("{% endfor %}", "{% set ns.a = ns.a + 1 %}{% endfor %}", 1),
    "a recursive macro": "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "a recursive loop": "{% for a in [messages] recursive %}{{ loop(a) }}{% endfor %}",
    "a list that grows": "{% set ns = namespace(a=[1]) %}{% for i in range(99) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
    "a text that grows": "{% set ns = namespace(a='x') %}{% for i in range(99) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
    "a number that grows": "{% set ns = namespace(a=9) %}{% for i in range(99) %}{% set ns.a = ns.a * ns.a %}{% endfor %}{{ ns.a }}",
    "a large power": "{{ 9 ** (9 ** 9) }}",
    "a large product": "{{ 'x' * 10 ** 12 }}",
    "a large range": "{{ range(10 ** 12) | list }}",
    "a wide format": "{{ '%1000000000d' % 1 }}",
    "a wide format method": "{{ '{:1000000000d}'.format(1) }}",
    "padding": "{{ 'x'.ljust(10 ** 10) }}",
    "centring": "{{ 'x' | center(10 ** 10) }}",
    "indentation": "{{ ('x\\n' * 1000) | indent(10 ** 9) }}",
    "batches": "{{ [1] | batch(10 ** 9, 0) | list }}",
    "much text": "{% for a in range(99999) %}{{ 'x' * 1000000 }}{% endfor %}",
    "words": "{{ lipsum(n=99999, html=False) }}",
    "replacement": "{{ ('x' * 1000000).replace('', 'x' * 1000000) }}",
    "nested brackets": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "nested conditions": "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "a syntax error": "{% for %}",
    "an attribute": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "itself": "{{ self.__init__.__globals__ }}",
    "a refusal": "{{ raise_exception('no' * 100000) }}",
}  # fmt: skip


QUICK = ("a recursive macro", "a large range", "a syntax error", "an attribute")


@pytest.mark.parametrize(
    "what",
    [what if what in QUICK else pytest.param(what, marks=pytest.mark.slow) for what in HOSTILE],
)
def test_a_template_that_takes_too_much_is_refused(gateway: RunningGateway, what: str) -> None:
    answer = asked(gateway, chat_template=HOSTILE[what] + "{{ messages }}")
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == "chat_template"
    assert len(error["message"]) < 1000
    assert asked(gateway, chat_template="<<").status_code == 200, "others are served"


@pytest.mark.slow
def test_a_template_counts_against_its_deadline_alone(gateway: RunningGateway) -> None:
    with ThreadPoolExecutor(4) as threads:
        calls = [
            threads.submit(
                httpx.post,
                gateway.base_url + "/chat/completions",
                json={"model": "m", "messages": MESSAGES, "chat_template": NESTED},
                timeout=60,
            )
            for _ in range(4)
        ]
        assert asked(gateway, messages=MESSAGES).status_code == 200
    assert {call.result().status_code for call in calls} == {400}


def test_templates_are_refused_where_they_are_not_trusted(gateway: RunningGateway) -> None:
    answer = asked(gateway, model="n", chat_template=NESTED)
    assert answer.status_code == 400
    assert "trust_request_chat_template" in answer.json()["error"]["message"]


VARIABLES: dict[str, Any] = {
    "a huge number": {"n": 10**18, "thinking_budget": 10**18},
    "a name of the sandbox": {"range": 10**12},
    "nested": {"a": [[[[[[[[[[1]]]]]]]]]] * 1000},
    "many": {f"v{number}": number for number in range(10_000)},
}


@pytest.mark.parametrize("what", VARIABLES)
@pytest.mark.parametrize("model", ["m", "n"])
def test_variables_of_a_request_do_not_hold_up_others(
    gateway: RunningGateway, what: str, model: str
) -> None:
    answer = asked(gateway, model=model, chat_template_kwargs=VARIABLES[what])
    assert answer.status_code in (200, 400), answer.text
    if model == "m":
        template = "<<{% for a in range(n) %}{{ a }}{% endfor %}{{ 'x' * n }}"
        answer = asked(gateway, chat_template=template, chat_template_kwargs=VARIABLES[what])
        assert answer.status_code in (200, 400), answer.text

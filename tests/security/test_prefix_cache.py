"""With keys, what an engine has cached of a prompt speeds up its owner's requests alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.access.access import Authenticator
from gateway.config import ApiKey
from gateway.plugins.hookspecs import MakeRenderer, Register, hookimpl
from gateway.plugins.protocols import EngineRequest, RenderedPrompt, TokensPrompt, Turn
from gateway_testing.server import RunningGateway, run_gateway

KEYS = {"alice": "key of alice", "bob": "key of bob"}
API_KEYS = [
    {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest()} for name, key in KEYS.items()
]
SECRET = "The code of the safe in the cellar is nine four two seven, and nobody must know it. " * 8


def config(keys: list[dict[str, str]], **llamacpp: Any) -> dict[str, Any]:
    return {
        "server": {"store": "memory", "api_keys": keys},
        "models": {"tiny": {"engine": "llamacpp", "llamacpp": {"n_parallel": 2, **llamacpp}}},
    }


@pytest.fixture(scope="module", params=[0, 64], ids=["slots alone", "with cache_ram_mib"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    pytest.importorskip("xllamacpp")
    made = config(API_KEYS, cache_ram_mib=request.param)
    with run_gateway(made, tmp_path_factory.mktemp("gateway")) as running:
        yield running


def cached(gateway: RunningGateway, owner: str | None, text: str, **body: Any) -> int:
    """The cached tokens of a response."""
    headers = {} if owner is None else {"authorization": f"Bearer {KEYS[owner]}"}
    answer = httpx.post(
        f"{gateway.base_url}/responses",
        json={"model": "tiny", "input": text, "max_output_tokens": 16, **body},
        headers=headers,
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    found: int = answer.json()["usage"]["input_tokens_details"]["cached_tokens"]
    return found


TEMPLATE = 10
"""Tokens that the template begins each prompt with: an owner's prompts have these in common."""


@pytest.mark.slow
def test_a_guessed_prompt_does_not_tell_that_another_owner_sent_it(gateway: RunningGateway) -> None:
    for number in range(4):
        secret = f"Number {number}: {SECRET}"
        for _ in range(3):  # in all of the slots
            cached(gateway, "alice", secret)
            cached(gateway, "alice", "Hi")
        assert cached(gateway, "bob", f"{secret} guessed") <= TEMPLATE
        assert cached(gateway, "bob", f"{secret} guessed", cache_salt="alice") <= TEMPLATE


def test_an_owner_has_the_use_of_their_own_prompts(gateway: RunningGateway) -> None:
    if gateway.services.config.models["tiny"].options["llamacpp"]["cache_ram_mib"]:
        pytest.skip("this memory does not tell owners apart, so that nothing is used of it")
    text = f"Of both: {SECRET}"
    cached(gateway, "alice", text)
    cached(gateway, "bob", text)
    assert cached(gateway, "alice", text) > 50
    assert cached(gateway, "bob", text) > 50


def test_chat_completions_and_messages_are_kept_apart_too(gateway: RunningGateway) -> None:
    text = f"Told in chat: {SECRET}"
    body = {"model": "tiny", "max_tokens": 16, "messages": [{"role": "user", "content": text}]}
    prompt = {"model": "tiny", "max_tokens": 16, "prompt": text}
    for path, asked in (("/chat/completions", body), ("/completions", prompt)):
        counts = []
        for owner in ("alice", "bob", "alice"):
            answer = httpx.post(
                f"{gateway.base_url}{path}",
                json=asked,
                headers={"authorization": f"Bearer {KEYS[owner]}"},
                timeout=60,
            )
            usage = answer.json()["usage"]
            counts.append(usage["prompt_tokens_details"]["cached_tokens"])
        assert counts[0] <= TEMPLATE
        assert counts[1] <= TEMPLATE
        if not gateway.services.config.models["tiny"].options["llamacpp"]["cache_ram_mib"]:
            assert counts[2] > 50


def test_without_keys_prompts_are_shared(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("xllamacpp")
    with run_gateway(config([]), tmp_path_factory.mktemp("gateway")) as running:
        cached(running, None, SECRET)
        assert cached(running, None, SECRET) > 50


def request(owner: str, salt: str | None = None) -> EngineRequest:
    prompt = TokensPrompt(token_ids=[1])
    return EngineRequest(request_id="r", prompt=prompt, owner=owner, cache_salt=salt)


def test_no_salt_of_a_client_is_another_owners() -> None:
    keys = Authenticator([ApiKey(**key) for key in API_KEYS])
    alice, bob = keys.tag("alice"), keys.tag("bob")
    whole = {
        request(owner, salt).prefix_salt
        for owner in (alice, bob)
        for salt in (None, "s", alice, bob, request(alice).prefix_salt, f"{alice}\0s", f"\0{bob}")
    }
    assert len(whole) == 14
    assert None not in whole
    # "" is no salt, as where there are no keys.
    assert request(alice, "").prefix_salt == request(alice).prefix_salt


def test_kept_token_ids_of_prompts_have_the_same_bounds(tmp_path: Path) -> None:
    """What a renderer keeps of prompts is found by the requests that may share an engine's cache of them."""
    scopes: list[str | None] = []

    class Renderer:
        def render(self, turn: Turn) -> RenderedPrompt:
            scopes.append(turn.cache_scope)
            return RenderedPrompt(prompt=TokensPrompt(token_ids=[1]))

    class Renderers:
        @hookimpl
        def gateway_register_renderers(self, register: Register[MakeRenderer]) -> None:
            register("watched", lambda config, context: Renderer())

    made = {
        "server": {"api_keys": API_KEYS},
        "models": {"m": {"engine": "scripted", "renderer": "watched", "parser": "plain"}},
    }
    with run_gateway(made, tmp_path, plugins=[Renderers()]) as running:
        for owner, more in (
            *(("alice", {}), ("bob", {}), ("alice", {}), ("alice", {"cache_salt": "s"})),
            *(("bob", {"cache_salt": "s"}), ("alice", {"cache_salt": "s"})),
        ):
            for path, said in (("responses", "input"), ("chat/completions", "messages")):
                answer = httpx.post(
                    f"{running.base_url}/{path}",
                    json={"model": "m", said: [{"role": "user", "content": "hi"}], **more},
                    headers={"authorization": f"Bearer {KEYS[owner]}"},
                    timeout=60,
                )
                assert answer.status_code == 200, answer.text
    first, second = scopes[::2], scopes[1::2]
    assert first == second
    assert None not in first
    alice, bob, again, salted, bobs, salted_again = first
    assert (alice, salted) == (again, salted_again)
    assert len({alice, bob, salted, bobs}) == 4


def test_engines_are_not_told_who_the_owner_is() -> None:
    tag = Authenticator([ApiKey(**key) for key in API_KEYS]).tag("alice")
    other = Authenticator(
        [ApiKey(name="alice", sha256="0" * 64), ApiKey(name="b", sha256="1" * 64)]
    )
    assert "alice" not in tag
    assert tag != hashlib.sha256(b"alice").hexdigest()[:32]
    assert tag != other.tag("alice"), "who does not know the keys cannot make the tag of a name"


def test_without_keys_a_salt_is_handed_on_as_it_is() -> None:
    assert Authenticator([]).tag(None) == ""
    assert request("", "mine").prefix_salt == "mine"
    assert request("").prefix_salt is None

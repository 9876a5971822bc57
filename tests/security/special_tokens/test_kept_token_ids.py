"""Token ids that are kept of earlier prompts: the same as without, for every text, family and tokenizer, and of nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.engines import origins
from gateway.engines.origins import Origin, OriginEncoder
from gateway.engines.token_cache import TokenCache
from gateway_harmony.encoding import PromptEncoder
from gateway_scripted.tokenizer import ScriptedTokenizer

KINDS = ("json", "hf")
FAMILY_NAMES = (
    *("qwen", "llama", "mistral", "tekken", "gemma", "deepseek", "glm", "phi", "t5", "tags"),
    "overlapping",
)


@pytest.fixture(autouse=True)
def short_prompts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "_LEAST_KEPT", 0)


def texts_of(kit: Any, family: str) -> st.SearchStrategy[str]:
    """Texts with the control tokens of a family: whole, in halves, with what some normalize or strip beside them."""
    known = kit.families[family]
    whole = [*known.special, *known.markers]
    halves = [half for text in whole for half in (text[: len(text) // 2], text[len(text) // 2 :])]
    beside = [*"<>|/w~▁☃é", " ", "\n", "\u0338", "\u0301", "ﬁ", "'s", " the", "Paris is", "12"]
    fragments = st.sampled_from(whole) | st.sampled_from(halves) | st.sampled_from(beside)
    return st.lists(fragments, max_size=6).map("".join)


class Counting:
    """A tokenizer that notes what it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self.added_tokens = tokenizer.added_tokens
        self.decode, self.token_bytes = tokenizer.decode, tokenizer.token_bytes
        self.given: list[str] = []
        self._encode = tokenizer.encode

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        self.given.append(text)
        ids: list[int] = self._encode(text)
        return ids


@pytest.mark.parametrize("family", FAMILY_NAMES[:-1])
def test_texts_around_a_dividing_token_are_tokenized_apart(kit: Any, family: str) -> None:
    """What tokenizers promise with `divides`."""
    made = [kit.json_tokenizer(family), kit.hf_tokenizer(family)]
    made += [ScriptedTokenizer()] if family == "qwen" else []

    @settings(max_examples=40, deadline=None)
    @given(texts_of(kit, family), texts_of(kit, family))
    def holds(before: str, after: str) -> None:
        for tokenizer in made:
            for text, token in tokenizer.added_tokens.items():
                if token.divides and text.strip():  # "\n\n" overlaps with itself in "\n\n\n"
                    head, tail = tokenizer.encode(before + text), tokenizer.encode(text + after)
                    assert tail[0] == token.id
                    assert tokenizer.encode(before + text + after) == head + tail[1:]

    holds()


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_parts_have_the_same_ids_whatever_was_encoded_before(kit: Any, family: str) -> None:
    known = kit.families[family]
    written = st.sampled_from([*known.special, *known.markers, "user\n", "\n", " ", "x"])
    templates = st.lists(written, max_size=4).map("".join)
    part = st.tuples(templates, st.just(Origin.TEMPLATE)) | st.tuples(
        texts_of(kit, family), st.sampled_from([Origin.OUTSIDE, Origin.ASSISTANT])
    )
    made = [kit.json_tokenizer(family), kit.hf_tokenizer(family)]
    made += [ScriptedTokenizer()] if family == "qwen" else []
    pairs = [(OriginEncoder(each, cache_bytes=50_000), OriginEncoder(each)) for each in made]

    @settings(max_examples=60, deadline=None)
    @given(st.lists(part, max_size=9), st.lists(part, max_size=4), st.integers(0, 9))
    def holds(one: list[Any], other: list[Any], at: int) -> None:
        prompts = [one, [*one, *other], [*one[:at], *other, *one[at:]], one[at:], other]
        for keeping, plain in pairs:
            for parts in prompts:
                assert keeping.encode(parts, scope="a") == plain.encode(parts)

    holds()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_a_conversation_has_the_same_prompt_whatever_was_rendered_before(
    kit: Any, family: str, kind: str
) -> None:
    tokenizer = kit.json_tokenizer(family) if kind == "json" else kit.hf_tokenizer(family)
    renderer = kit.renderer(family, tokenizer)
    text = texts_of(kit, family).map(lambda made: made + "w")

    @settings(max_examples=12, deadline=None)
    @given(st.lists(text, min_size=1, max_size=7))
    def holds(said: list[str]) -> None:
        items = [
            {"role": "assistant" if index % 2 else "user", "content": each}
            for index, each in enumerate(said)
        ]
        for end in range(1, len(items) + 1, 2):
            kept = renderer.render(kit.turn(items[:end], cache_scope="a"))
            assert kept == renderer.render(kit.turn(items[:end]))

    holds()


@pytest.mark.parametrize("family", ["qwen", "llama", "mistral", "gemma", "deepseek", "phi"])
def test_what_is_unchanged_is_not_tokenized_again_for_the_same_scope_alone(
    kit: Any, family: str
) -> None:
    counting = Counting(kit.json_tokenizer(family))
    renderer = kit.renderer(family, counting)
    said = [f"text {number} " * 20 for number in range(12)]
    items = [
        {"role": "assistant" if index % 2 else "user", "content": each}
        for index, each in enumerate(said)
    ]

    def given_for(number: int, scope: str | None) -> str:
        counting.given.clear()
        renderer.render(kit.turn(items[:number], cache_scope=scope))
        return "".join(counting.given)

    assert said[0].strip() in given_for(9, "a")
    longer = given_for(11, "a")
    assert said[10].strip() in longer
    assert said[7].strip() not in longer
    assert given_for(11, "a") == ""
    for scope in ("b", None):
        assert said[0].strip() in given_for(11, scope)


def test_nothing_is_kept_where_that_is_configured(kit: Any) -> None:
    counting = Counting(kit.json_tokenizer("qwen"))
    encoder = OriginEncoder(counting, cache_bytes=0)
    parts = [("<|im_start|>", Origin.TEMPLATE), ("hello", Origin.OUTSIDE)]
    counting.given.clear()
    encoder.encode(parts, scope="a")
    encoder.encode(parts, scope="a")
    assert counting.given == ["<|im_start|>hello"] * 2


def test_a_conversation_of_many_changes_is_tokenized_in_one_call(kit: Any) -> None:
    """Each call of some tokenizers is a message to another process."""
    counting = Counting(kit.json_tokenizer("qwen"))
    renderer = kit.renderer("qwen", counting)
    items = [{"role": "user", "content": f"text {number}"} for number in range(100)]
    renderer.render(kit.turn(items, cache_scope="a"))
    changed = [
        {**item, "content": "new"} if index % 3 == 1 else item for index, item in enumerate(items)
    ]
    counting.given.clear()
    renderer.render(kit.turn(changed, cache_scope="a"))
    assert len(counting.given) == 1


def test_long_salts_count_as_what_is_kept(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client chooses its salts: each request can have another one, longer than what it says."""
    sizes: list[int] = []
    keep = TokenCache.keep

    def noted(cache: TokenCache, key: Any, texts: Any, ids: Any) -> None:
        sizes.append(sum(map(len, texts)))
        keep(cache, key, texts, ids)

    monkeypatch.setattr(TokenCache, "keep", noted)
    turn = kit.turn([{"role": "user", "content": "hello"}], cache_scope="salt" * 250)
    kit.renderer("qwen", kit.json_tokenizer("qwen")).render(turn)
    harmony = PromptEncoder(ScriptedTokenizer(), "m", cache_bytes=50_000)
    harmony.add([], [], "hello", [], scope="salt" * 250)
    assert len(sizes) > 1
    assert min(sizes) > 1000

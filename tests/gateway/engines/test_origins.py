"""A control token is only what the origin of its text may write; all other text has the ids that it always has.

The tokenizers of well-known families are tested in `tests/security/special_tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.engines import origins
from gateway.engines.origins import Origin, OriginEncoder, Part
from gateway_scripted.tokenizer import ScriptedTokenizer

TEMPLATE, ASSISTANT, OUTSIDE = Origin.TEMPLATE, Origin.ASSISTANT, Origin.OUTSIDE
WRITERS = {
    "<|im_start|>": TEMPLATE,  # special
    "[/INST]": TEMPLATE,
    "<|turn>": TEMPLATE,  # not special, and begins a message
    "<image_pad>": TEMPLATE,  # a placeholder
    "<think>": ASSISTANT,
    "</tool_call>": ASSISTANT,
    "<named>": ASSISTANT,  # named as a marker
    "<shown>": ASSISTANT,  # in the chat template
    "<odd>": OUTSIDE,  # has the form of a marker
    "hello": OUTSIDE,  # a word that is one token
}
"""Added tokens, by the least trusted origin whose text may contain them."""
ADDED = re.compile("|".join(map(re.escape, WRITERS)))
TOKENIZER = ScriptedTokenizer([*WRITERS])


def encoder(*, cache_bytes: int = 0) -> OriginEncoder:
    return OriginEncoder(
        TOKENIZER,
        template="{{ '<shown>' }}",
        markers=["<named>"],
        placeholders=["<image_pad>"],
        cache_bytes=cache_bytes,
    )


ENCODER = encoder()
HALVES = [half for text in WRITERS for half in (text[: len(text) // 2], text[len(text) // 2 :])]
TEXT = st.lists(
    st.sampled_from([*WRITERS, *HALVES, " ", "\n", "word", " word", "é", "漢", "<", "|>"]),
    max_size=4,
).map("".join)
PARTS = st.lists(st.tuples(TEXT, st.sampled_from(Origin)), max_size=6)


def expected(parts: Sequence[Part]) -> list[int | bytes]:
    """The ids of a prompt, and the bytes of each control token that its origin may not write."""
    text = "".join(part for part, _ in parts)
    by = [origin for part, origin in parts for _ in part]
    verdicts = [max(by[at.start() : at.end()]) <= WRITERS[at[0]] for at in ADDED.finditer(text)]
    added = {TOKENIZER.id_of(each) for each in WRITERS}
    allowed = iter(verdicts)
    return [
        TOKENIZER.token_bytes(token) if token in added and not next(allowed) else token
        for token in TOKENIZER.encode(text)
    ]


def holds(ids: Sequence[int], wanted: Sequence[int | bytes]) -> bool:
    """Whether `ids` are those that are wanted, with ordinary tokens in place of bytes."""
    rest = list(ids)
    for each in wanted:
        if isinstance(each, int):
            if rest[:1] != [each]:
                return False
            del rest[0]
            continue
        spelled = b""
        while rest and len(spelled) < len(each):
            token = rest.pop(0)
            spelled += TOKENIZER.token_bytes(token)
            if token < 1024:  # an added token
                return False
        if spelled != each:
            return False
    return not rest


@given(PARTS)
@example([("<|im_", TEMPLATE), ("start|>", OUTSIDE)])
@example([("<th", ASSISTANT), ("ink>", TEMPLATE)])
@example([("<|im_", TEMPLATE), ("", OUTSIDE), ("start|>", TEMPLATE)])
def test_each_origin_writes_its_own_control_tokens(parts: list[Part]) -> None:
    ids = ENCODER.encode(parts)
    assert holds(ids, expected(parts))
    assert TOKENIZER.decode(ids) == "".join(part for part, _ in parts)


@given(PARTS)
def test_how_text_of_one_origin_is_divided_does_not_matter(parts: list[Part]) -> None:
    letters = [(letter, origin) for part, origin in parts for letter in part]
    assert ENCODER.encode(letters) == ENCODER.encode(parts)


@given(PARTS)
def test_text_of_the_template_is_encoded_as_it_is(parts: list[Part]) -> None:
    own = [(part, TEMPLATE) for part, _ in parts]
    assert ENCODER.encode(own) == TOKENIZER.encode("".join(part for part, _ in parts))


@given(TEXT)
def test_an_ordinary_text_is_one_from_outside(text: str) -> None:
    ids = ENCODER.ordinary(text)
    assert ids == ENCODER.encode([(text, OUTSIDE)])
    assert holds(ids, expected([(text, OUTSIDE)]))


@settings(max_examples=25)
@given(st.lists(PARTS, max_size=4))
def test_what_was_encoded_before_does_not_matter(prompts: list[list[Part]]) -> None:
    """Short prompts are not kept, so each has much text in common."""
    keeping = encoder(cache_bytes=20_000)
    same: list[Part] = [("x" * 600, OUTSIDE), ("[/INST]", TEMPLATE), ("y" * 600, OUTSIDE)]
    other = {TEMPLATE: TEMPLATE, ASSISTANT: OUTSIDE, OUTSIDE: ASSISTANT}
    swapped = [[(part, other[origin]) for part, origin in parts] for parts in prompts]
    for parts in (*prompts, *swapped):
        for prompt in ([*parts, *same], [*same, *parts], [*parts, *same, *parts]):
            for scope in ("a", "a", "b", None):
                assert keeping.encode(prompt, scope=scope) == ENCODER.encode(prompt)


class Noting:
    """A tokenizer that tells nobody its added tokens, and notes what it is given."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.decode, self.token_bytes = TOKENIZER.decode, TOKENIZER.token_bytes

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        self.given.append(text)
        return TOKENIZER.encode(text)


class Telling(Noting):
    """The same, and tells its tokens."""

    added_tokens = TOKENIZER.added_tokens


@pytest.mark.parametrize("length", [998, 1000])
def test_only_long_prompts_of_a_scope_are_kept(length: int) -> None:
    """From a thousand characters on."""
    noting = Telling()
    keeping = OriginEncoder(noting, cache_bytes=20_000)
    prompt: list[Part] = [("[/INST]", TEMPLATE), ("x" * (length - 7), OUTSIDE)]
    for scope, tokenized in (
        ("a", True),
        ("a", length < 1000),
        ("b", True),
        (None, True),
        (None, True),
        ("a", length < 1000),
    ):
        noting.given.clear()
        keeping.encode(prompt, scope=scope)
        assert any("xxx" in text for text in noting.given) is tokenized


def test_only_what_is_new_is_tokenized() -> None:
    noting = Telling()
    keeping = OriginEncoder(noting, cache_bytes=50_000)
    said: list[Part] = [("x" * 600, OUTSIDE), ("[/INST]", TEMPLATE), ("y" * 600, OUTSIDE), ("[/INST]", TEMPLATE)]  # fmt: skip
    keeping.encode(said, scope="a")
    noting.given.clear()
    keeping.encode([*said, ("new", OUTSIDE)], scope="a")
    assert noting.given == ["[/INST]new"]
    noting.given.clear()
    keeping.encode([*said[:2], ("other", OUTSIDE), ("[/INST]", TEMPLATE), *said[2:]], scope="a")
    assert noting.given == ["[/INST]other[/INST]"]


def test_a_tokenizer_that_does_not_list_its_tokens_is_tried() -> None:
    """Every token that is found is special: those of known families, of the template, and the named ones."""
    made = OriginEncoder(
        Noting(),
        template="<shown>{{ x }}[/INST]",
        markers=["<named>"],
        placeholders=["<image_pad>"],
    )
    tried = ["<|im_start|>", "[/INST]", "<image_pad>", "<think>", "</tool_call>", "<named>", "<shown>"]  # fmt: skip
    for text in WRITERS:
        own = TOKENIZER.id_of(text)
        for origin in Origin:
            is_token = origin is TEMPLATE or text not in tried
            assert (own in made.encode([(text, origin)])) is is_token


def test_a_text_with_more_tokens_than_are_looked_at_at_once_is_protected_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(origins, "AT_ONCE", 3)
    parts: list[Part] = [("a b c d e <|im_start|> f" * 3, OUTSIDE)]
    assert holds(ENCODER.encode(parts), expected(parts))

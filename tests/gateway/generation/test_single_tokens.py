"""Outputs of several tokens are divided into those that the engine would have given one by one."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.generation.single_tokens import divided, token_by_token
from gateway.plugins.protocols import EngineOutput, TokenLogprob
from gateway_scripted.tokenizer import ScriptedTokenizer

TOKENIZER = ScriptedTokenizer()
END = TOKENIZER.id_of("<|im_end|>")
TEXTS = st.lists(
    st.sampled_from(
        ["a", "word ", "é", "漢字", "😀", "👩‍👩‍👧", "\ufffd", "<|im_start|>", "<think>", "\n"]
    )
).map("".join)


def one_by_one(
    text: str, *, skips_special: bool, logprobs: bool, ended: bool, cut: int
) -> list[EngineOutput]:
    """What an engine gives without delay; without the text's last `cut` tokens."""
    ids = TOKENIZER.encode(text)
    ids = ids[: len(ids) - cut]
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    outputs: list[EngineOutput] = []
    for token in ids:
        hidden = skips_special and not TOKENIZER.decode([token], skip_special_tokens=True)
        data = b"" if hidden else TOKENIZER.token_bytes(token)
        outputs.append(_output(token, decode(data), data, logprobs=logprobs))
    if ended:
        outputs.append(_output(END, "", b"", logprobs=logprobs))
    if outputs:
        outputs[-1].text += decode(b"", True)
        outputs[-1].finish_reason = "stop" if ended else "length"
    return outputs


def _output(token: int, text: str, data: bytes, *, logprobs: bool) -> EngineOutput:
    output = EngineOutput(text=text, token_ids=(token,))
    if logprobs:
        output.logprobs = [TokenLogprob(token, str(token), -1.0, data)]
    return output


def merged(outputs: Sequence[EngineOutput]) -> EngineOutput:
    ids = [token for each in outputs for token in each.token_ids]
    output = EngineOutput(text="".join(each.text for each in outputs), token_ids=ids)
    if outputs[0].logprobs is not None:
        output.logprobs = [found for each in outputs for found in each.logprobs or ()]
    output.finish_reason = outputs[-1].finish_reason
    return output


@given(TEXTS, st.lists(st.integers(2, 5)), st.booleans(), st.booleans(), st.booleans())
def test_every_output_is_divided_where_it_was_merged(
    text: str, sizes: list[int], skips_special: bool, logprobs: bool, ended: bool
) -> None:
    cut = 0 if ended else min(1, len(TOKENIZER.encode(text)))
    whole = one_by_one(text, skips_special=skips_special, logprobs=logprobs, ended=ended, cut=cut)
    rest = whole
    for size in [*sizes, len(whole)]:
        group, rest = rest[:size], rest[size:]
        if len(group) > 1:
            found = list(divided(merged(group), TOKENIZER, skips_special=skips_special))
            assert [(each.text, *each.token_ids) for each in found] == [
                (each.text, *each.token_ids) for each in group
            ]
            assert [each.logprobs for each in found] == [each.logprobs for each in group]
            assert [each.finish_reason for each in found] == [each.finish_reason for each in group]


@given(st.text(), st.lists(st.integers(0, 5000), min_size=2), st.booleans())
def test_nothing_is_lost_of_text_that_its_tokens_do_not_spell(
    text: str, ids: list[int], ended: bool
) -> None:
    output = EngineOutput(text=text, token_ids=ids, finish_reason="stop" if ended else None)
    output.logprobs = [TokenLogprob(ids[-1], "", -1.0, b"")]
    found = list(divided(output, TOKENIZER, skips_special=True))
    assert "".join(each.text for each in found) == text
    assert [token for each in found for token in each.token_ids] == ids
    assert [each for part in found for each in part.logprobs or ()] == output.logprobs


@pytest.mark.anyio
async def test_what_is_told_once_comes_first_and_the_end_last() -> None:
    ids = TOKENIZER.encode("one two three")
    closed: list[bool] = []

    async def outputs() -> AsyncGenerator[EngineOutput, None]:
        try:
            yield EngineOutput(
                text="one two three",
                token_ids=ids,
                prompt_tokens=7,
                cached_tokens=3,
                finish_reason="stop",
                stop_reason=5,
            )
        finally:
            closed.append(True)

    stream = token_by_token(outputs(), TOKENIZER, skips_special=False)
    found = [each async for each in stream]
    assert len(found) == len(ids) > 1
    assert [each.prompt_tokens for each in found] == [7] + [None] * (len(ids) - 1)
    assert [each.stop_reason for each in found] == [None] * (len(ids) - 1) + [5]
    stream = token_by_token(outputs(), TOKENIZER, skips_special=False)
    await anext(stream)
    await stream.aclose()
    assert closed == [True, True]

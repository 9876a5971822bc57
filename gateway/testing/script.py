"""From a text to the outputs of an engine: tokens, stops and limits, log probabilities, chunks. Pure."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from gateway.protocols import EngineOutput, FinishReason, Sampling, TokenLogprob, TopLogprob
from gateway.testing.tokenizer import ScriptedTokenizer


class Said(Struct, frozen=True):
    """One token of a script."""

    token_id: int
    text: str
    """The characters that it completes."""
    data: bytes
    """The bytes that it adds to the visible text."""


class Script(Struct, frozen=True):
    """What one generation gives, and how it ends. `finish` is None where it was not ended by a stop or a limit."""

    tokens: list[Said]
    finish: FinishReason | None = None
    stop_reason: str | int | None = None


def make_script(
    token_ids: Sequence[int],
    sampling: Sampling,
    tokenizer: ScriptedTokenizer,
    *,
    limit: int,
    eos_token_ids: Sequence[int] = (),
) -> Script:
    """Cut `token_ids` where an engine would: at a stop string or token, or after `limit` tokens.

    A stop string may lie across tokens; the text ends before the earliest one, or after it if the sampling wants it
    included. A token that stops is counted and has no text.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    reach = max(map(len, sampling.stop), default=1) - 1
    tokens: list[Said] = []
    recent, before = (
        "",
        0,
    )  # the characters that a stop string may begin in, and how many came before them
    for token_id in token_ids:
        if len(tokens) >= limit:
            return Script(_visible(tokens), "length")
        early = len(tokens) + 1 < (sampling.min_tokens or 0)
        stops = token_id in sampling.stop_token_ids
        if (stops or (token_id in eos_token_ids and not sampling.ignore_eos)) and not early:
            shown = stops and sampling.include_stop_str_in_output
            data = tokenizer.token_bytes(token_id) if shown else b""
            tokens.append(Said(token_id, decoder.decode(data), data))
            return Script(_visible(tokens), "stop", token_id if stops else None)
        hidden = sampling.skip_special_tokens and tokenizer.is_control(token_id)
        data = b"" if hidden else tokenizer.token_bytes(token_id)
        text = decoder.decode(data)
        tokens.append(Said(token_id, text, data))
        recent += text
        if not early and (hit := _earliest(recent, sampling.stop)):
            at, stop = hit
            end = before + at + (len(stop) if sampling.include_stop_str_in_output else 0)
            return Script(_visible(tokens, characters=end), "stop", stop)
        surplus = max(0, len(recent) - reach)
        recent, before = recent[surplus:], before + surplus
    return Script(_visible(tokens))


def _earliest(text: str, stops: Sequence[str]) -> tuple[int, str] | None:
    found = [(at, stop) for stop in stops if stop and (at := text.find(stop)) >= 0]
    return min(found, key=lambda hit: hit[0], default=None)


def _visible(tokens: list[Said], *, characters: int | None = None) -> list[Said]:
    """The tokens without the text after so many characters, and without bytes that no text shows.

    Bytes without text are those of a character that a limit cut in two.
    """
    whole = "".join(token.text for token in tokens)[:characters]
    characters_left, bytes_left = len(whole), len(whole.encode())
    cut: list[Said] = []
    for token in tokens:
        text, data = token.text[:characters_left], token.data[:bytes_left]
        characters_left -= len(text)
        bytes_left -= len(data)
        cut.append(Said(token.token_id, text, data))
    return cut


def invent_logprobs(
    token_id: int, data: bytes, tokenizer: ScriptedTokenizer, alternatives: int
) -> TokenLogprob:
    """A made-up, well-formed log probability: the same token always has the same, and is its own best alternative."""
    logprob = -0.001 - (token_id * 2654435761 % 1000) / 2000
    own = tokenizer.token_bytes(token_id).decode("utf-8", "replace")
    top = [TopLogprob(token_id, own, logprob, data)]
    # The rest of the probability goes to single ASCII characters, each less likely than the one before.
    rest = math.log1p(-math.exp(logprob))
    for rank, letter in enumerate(
        islice((c for c in _LETTERS if c != own), max(0, alternatives - 1)), 1
    ):
        (letter_id,) = tokenizer.encode(letter)
        top.append(TopLogprob(letter_id, letter, min(logprob, rest) - 0.7 * rank, letter.encode()))
    return TokenLogprob(token_id, own, logprob, data, tuple(top[:alternatives]))


_LETTERS = "etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ"


def make_outputs(
    script: Script, tokenizer: ScriptedTokenizer, *, chunk: int | None, logprobs: int | None
) -> list[EngineOutput]:
    """The outputs that say `script`: one for each token, or one for each `chunk` characters of text.

    With chunks, a token goes with the first of its characters. The last output, and only the last, has the finish
    reason, if the script has one: then there is at least one output.
    """
    groups: list[tuple[str, list[Said]]]
    if chunk is None:
        groups = [(token.text, [token]) for token in script.tokens]
    else:
        whole = "".join(token.text for token in script.tokens)
        groups = [(whole[at : at + chunk], []) for at in range(0, len(whole), chunk)]
        at = 0
        for token in script.tokens:
            if not groups:
                groups.append(("", []))
            groups[min(at // chunk, len(groups) - 1)][1].append(token)
            at += len(token.text)
    if not groups and script.finish is not None:
        groups.append(("", []))
    outputs = [
        EngineOutput(
            text=text,
            token_ids=tuple(token.token_id for token in tokens),
            logprobs=None
            if logprobs is None
            else [invent_logprobs(t.token_id, t.data, tokenizer, logprobs) for t in tokens],
        )
        for text, tokens in groups
    ]
    if outputs:
        outputs[-1].finish_reason = script.finish
        outputs[-1].stop_reason = script.stop_reason
    return outputs

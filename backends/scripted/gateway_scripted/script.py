"""Converting a text to the outputs of an engine: tokens, stops and limits, log probabilities, chunks. Pure functions."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from gateway.sdk import EngineOutput, FinishReason, Sampling, TokenLogprob, TopLogprob
from gateway.sdk.engines import StopStrings
from gateway_scripted.tokenizer import ScriptedTokenizer


class ScriptedToken(Struct, frozen=True):
    """One token of a script."""

    token_id: int
    text: str
    """The characters that it completes."""
    data: bytes
    """The bytes that it adds to the visible text."""


class Script(Struct, frozen=True):
    """The output of one generation, and how it ends. `finish` is None if no stop or limit ended it."""

    tokens: list[ScriptedToken]
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
    """Cut `token_ids` like an engine: at a stop string or token, or after `limit` tokens.

    A stop string may span tokens. The text ends before the one that ends first, or after it if the sampling includes stop
    strings. A stop token is counted and has no text.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    stops = StopStrings(sampling.stop)
    tokens: list[ScriptedToken] = []
    shown = 0  # characters before those in which a stop string may begin
    for token_id in token_ids:
        if len(tokens) >= limit:
            return Script(_visible(tokens), "length")
        early = len(tokens) + 1 < (sampling.min_tokens or 0)
        ends = token_id in sampling.stop_token_ids
        if (ends or (token_id in eos_token_ids and not sampling.ignore_eos)) and not early:
            data = b""
            if ends and sampling.include_stop_str_in_output:
                data = tokenizer.token_bytes(token_id)
            tokens.append(ScriptedToken(token_id, decoder.decode(data), data))
            return Script(_visible(tokens), "stop", token_id if ends else None)
        hidden = sampling.skip_special_tokens and tokenizer.is_control(token_id)
        data = b"" if hidden else tokenizer.token_bytes(token_id)
        text = decoder.decode(data)
        tokens.append(ScriptedToken(token_id, text, data))
        released, stop, _ = stops.feed(text, searching=not early)
        shown += len(released)
        if stop is not None:
            shown += len(stop) if sampling.include_stop_str_in_output else 0
            return Script(_visible(tokens, characters=shown), "stop", stop)
    return Script(_visible(tokens))


def _visible(tokens: list[ScriptedToken], *, characters: int | None = None) -> list[ScriptedToken]:
    """The tokens without the text after `characters` characters, and without bytes that are not in the text.

    Bytes without text belong to a character that a limit cut in two.
    """
    whole = "".join(token.text for token in tokens)[:characters]
    characters_left, bytes_left = len(whole), len(whole.encode())
    cut: list[ScriptedToken] = []
    for token in tokens:
        text, data = token.text[:characters_left], token.data[:bytes_left]
        characters_left -= len(text)
        bytes_left -= len(data)
        cut.append(ScriptedToken(token.token_id, text, data))
    return cut


def invent_logprobs(
    token_id: int, data: bytes, tokenizer: ScriptedTokenizer, alternatives: int
) -> TokenLogprob:
    """A generated, well-formed log probability. It depends only on the token, which is its own best alternative."""
    logprob = -0.001 - (token_id * 2654435761 % 1000) / 2000
    own = tokenizer.token_bytes(token_id).decode("utf-8", "replace")
    top = [TopLogprob(token_id, own, logprob, data)]
    # The remaining probability is distributed over ASCII characters, in decreasing order.
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
    """The outputs for `script`: one per token, or one per `chunk` characters of text.

    With chunks, a token belongs to its first character. The last output, and only the last, has the finish reason, if
    the script has one; there is then at least one output.
    """
    groups: list[tuple[str, list[ScriptedToken]]]
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

"""Dividing an engine's outputs into outputs of one token each.

An engine that is ahead of its reader gives several tokens in one output. If a single token may end the answer, for
example by completing a stop string, the tokens after it must not count.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

from gateway.plugins.protocols import EngineOutput, Tokenizer, TokenLogprob


async def token_by_token(
    outputs: AsyncGenerator[EngineOutput, None], tokenizer: Tokenizer | None, *, skips_special: bool
) -> AsyncGenerator[EngineOutput, None]:
    """Yield `outputs`, divided into single tokens. `skips_special`: whether their text lacks special tokens."""
    async with aclosing(outputs):
        async for output in outputs:
            if len(output.token_ids) < 2 or tokenizer is None or output.deltas is not None:
                yield output
                continue
            for each in divided(output, tokenizer, skips_special=skips_special):
                yield each


def divided(
    output: EngineOutput, tokenizer: Tokenizer, *, skips_special: bool
) -> Iterator[EngineOutput]:
    """Yield the single tokens of `output`, each with the characters that it completes.

    The first one has the counts and other fields that appear once, and text that belongs to none of these tokens (the
    end of a character that began earlier). The last one has the finish reason.
    """
    ids = output.token_ids
    logprobs = _by_token(output)
    texts = _texts(output, tokenizer, logprobs, skips_special=skips_special)
    last = len(ids) - 1
    for index, token in enumerate(ids):
        each = EngineOutput(text=texts[index], token_ids=(token,))
        if logprobs is not None:
            each.logprobs = logprobs[index]
        if index == 0:
            each.prompt_tokens, each.cached_tokens = output.prompt_tokens, output.cached_tokens
            each.prompt_logprobs = output.prompt_logprobs
            each.kv_transfer_params = output.kv_transfer_params
        if index == last:
            each.finish_reason, each.stop_reason = output.finish_reason, output.stop_reason
        yield each


def _by_token(output: EngineOutput) -> list[list[TokenLogprob]] | None:
    """Return the log probabilities of each token. A token that is only a part of a character may have none."""
    if output.logprobs is None:
        return None
    left = list(output.logprobs)
    found: list[list[TokenLogprob]] = []
    for token in reversed(output.token_ids):
        found.append([left.pop()] if left and left[-1].token_id == token else [])
    found.reverse()
    found[0][:0] = left
    return found


def _texts(
    output: EngineOutput,
    tokenizer: Tokenizer,
    logprobs: Sequence[Sequence[TokenLogprob]] | None,
    *,
    skips_special: bool,
) -> list[str]:
    """Return the text of each token. Together they are the text of the output."""
    if logprobs is not None and all(logprobs):
        own = [b"".join(each.bytes for each in of_token) for of_token in logprobs]
    else:
        own = [_bytes(tokenizer, each, skips_special) for each in output.token_ids]
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    decoded = [decode(data) for data in own]
    if output.finish_reason is not None:
        # An incomplete character at the end may be shown. A token that ended the output may not be in its text.
        choices = (decoded[-1] + decode(b"", True), decoded[-1], "")
        decoded[-1] = next(each for each in choices if output.text.endswith(each))
    # Counted from the end: text that belongs to none of these tokens comes first.
    texts: list[str] = []
    end = len(output.text)
    for piece in reversed(decoded[1:]):
        start = max(0, end - len(piece))
        texts.append(output.text[start:end])
        end = start
    texts.append(output.text[:end])
    texts.reverse()
    return texts


def _bytes(tokenizer: Tokenizer, token: int, skips_special: bool) -> bytes:
    try:
        if skips_special and not tokenizer.decode([token], skip_special_tokens=True):
            return b""
        return tokenizer.token_bytes(token)
    except ValueError:  # outside the vocabulary, such as padding
        return b""

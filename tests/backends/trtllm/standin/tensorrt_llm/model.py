"""A model that is a hash: any context has its next tokens, always the same."""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Sequence
from typing import Any

from tensorrt_llm.result import TokenIdLogprob

GUIDES = importlib.util.find_spec("xgrammar") is not None


class Grammar:
    """What a guide allows next; needs xgrammar, as the real one."""

    def __init__(self, guide: Any, compiler: Any, size: int) -> None:
        import json

        import xgrammar

        if guide.json is not None:
            compiled = compiler.compile_json_schema(json.dumps(guide.json))
        elif guide.json_object:
            compiled = compiler.compile_builtin_json_grammar()
        elif guide.regex is not None:
            compiled = compiler.compile_regex(guide.regex)
        elif guide.grammar is not None:
            compiled = compiler.compile_grammar(guide.grammar)
        else:
            compiled = compiler.compile_structural_tag(guide.structural_tag)
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._mask = xgrammar.allocate_token_bitmask(1, size)
        self._reset = xgrammar.reset_token_bitmask
        self._size = size

    def allowed(self) -> list[int]:
        self._reset(self._mask)
        self._matcher.fill_next_token_bitmask(self._mask)
        words = self._mask[0].tolist()
        return [i for i in range(self._size) if words[i // 32] >> (i % 32) & 1]

    def accept(self, token_id: int) -> None:
        assert self._matcher.accept_token(token_id)


class Model:
    def __init__(self, tokenizer: Any, ends: Sequence[int], size: int) -> None:
        self.size = size
        self.ends = frozenset(ends)
        special = tokenizer.all_special_ids
        self._ordinary = [i for i in range(len(tokenizer)) if i not in special or i in self.ends]
        # Parts of characters come seldom.
        self._penalties = [0.0] * size
        for token_id in range(len(tokenizer)):
            if "\ufffd" in tokenizer.backend_tokenizer.decode([token_id]):
                self._penalties[token_id] = 4.0
        self._compiler: Any = None
        self._tokenizer = tokenizer

    def grammar(self, guide: Any) -> Grammar | None:
        if guide is None:
            return None
        if self._compiler is None:
            import xgrammar

            vocabulary = [self._tokenizer.token(i) for i in range(self.size)]
            info = xgrammar.TokenizerInfo(
                vocabulary,
                vocab_type=xgrammar.VocabType.BYTE_LEVEL,
                stop_token_ids=list(self.ends),
            )
            self._compiler = xgrammar.GrammarCompiler(info)
        return Grammar(guide, self._compiler, self.size)

    def logits(self, context: Sequence[int]) -> list[float]:
        """All tokens' scores after a context, by its last three tokens, its length, and the images in it."""
        images = [token for token in context if token < 0]
        draw = random.Random(repr((context[-3:], len(context), *images))).random
        scores = [draw() * 8 - penalty for penalty in self._penalties]
        for token_id in range(self.size):
            if token_id in self.ends:
                # It ends by itself now and then, and soon where a grammar lets it.
                scores[token_id] += 2.5
        return scores

    def next_token(
        self, context: Sequence[int], made: Sequence[int], params: Any, grammar: Grammar | None
    ) -> tuple[int, list[float]]:
        """The token, and all tokens' log probabilities."""
        scores = self.logits(context)
        raw = log_softmax(scores)
        allowed = self._ordinary if grammar is None else grammar.allowed()
        banned = set(params.bad_token_ids or ())
        for word in params.bad_word_ids:
            if list(made[len(made) - len(word) + 1 :]) == word[:-1]:
                banned.add(word[-1])
        if len(made) < (params.min_tokens or 0):
            banned |= self.ends
        bias = params.embedding_bias
        assert bias is None or len(bias) == self.size
        choices = {i: scores[i] + (bias[i] if bias else 0.0) for i in allowed if i not in banned}
        if params.temperature == 0 or params.top_k == 1:
            return max(choices, key=choices.__getitem__), raw
        heat = params.temperature or 1.0
        draw = random.Random(repr((params.seed, len(made)))).random()
        top = max(choices.values())
        weights = {i: math.exp((value - top) / heat) for i, value in choices.items()}
        draw *= sum(weights.values())
        for token_id, weight in weights.items():
            draw -= weight
            if draw <= 0:
                return token_id, raw
        return token_id, raw


def log_softmax(scores: list[float]) -> list[float]:
    top = max(scores)
    whole = top + math.log(sum(math.exp(each - top) for each in scores))
    return [each - whole for each in scores]


def best(raw: list[float], token_id: int, wanted: int) -> dict[int, TokenIdLogprob]:
    """The `wanted` best, and the token itself, last if it is none of them."""
    order = sorted(range(len(raw)), key=raw.__getitem__, reverse=True)
    entries = {i: TokenIdLogprob(raw[i], place) for place, i in enumerate(order[:wanted], start=1)}
    if token_id not in entries:
        entries[token_id] = TokenIdLogprob(raw[token_id], order.index(token_id) + 1)
    return entries

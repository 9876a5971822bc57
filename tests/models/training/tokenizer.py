"""The tokenizer: byte-level BPE whose merges stay within runs of letters, runs of punctuation or runs of space.

A word therefore has the same tokens after a space, a quote or a line start, which is what lets so small a model copy
an argument from the request into a call. The pre-tokenizer is Qwen2's, so llama.cpp's "qwen2" splits the same way.
Pieces of JSON schemas that nearly every client sends are tokens of their own: they shorten prompts with tools to a half.
"""

import collections
import json
import re

import prompts
import words
from dialogues import Dialogues
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 1216
LEARNT = 1040
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
]
# No fragment ends as another begins (but for a quote or brace), so the leftmost longest match (tokenizers) and the longest match (llama.cpp) agree.
FRAGMENTS = [
    '{"type": "function", "function": {"name": "',
    '{"type": "function", "function": {"',
    '", "description": "',
    '", "parameters": {"type": "object", "properties": {"',
    '", "parameters": {"',
    '"parameters": {"type": "object", "properties": {"',
    '": {"type": "',
    '": {"description": "',
    '": {"title": "',
    '", "type": "',
    '"}, "',
    '"}}, "required": ["',
    '"]}}, "required": ["',
    '"]}, "',
    '", "enum": ["',
    '"], "additionalProperties": false',
]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Learns the merges from dialogues drawn with a fixed seed."""
    source = Dialogues(1)
    texts = ["".join(text for text, _ in prompts.pieces(source.draw())) for _ in range(20_000)]
    known = re.compile("|".join(map(re.escape, CONTROL + MARKS + FRAGMENTS)))
    texts = [known.sub("\n", text) for text in texts]
    vocabulary, merges = _learn(texts)
    _join_spaces(vocabulary, merges, texts)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(CONTROL)
    tokenizer.add_tokens(
        [AddedToken(t, special=False, normalized=False) for t in MARKS + FRAGMENTS]
    )
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise AssertionError(f"{tokenizer.get_vocab_size()} tokens instead of {VOCABULARY}")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=32768,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = prompts.TEMPLATE
    return fast


def _learn(texts: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                Regex(r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s"), "isolated"
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNT,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [(left, right) for left, right in model["merges"]]


def _join_spaces(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], texts: list[str]
) -> None:
    """Fills the vocabulary with " word" for the commonest words of the patterns, never for words that are copied."""
    lists = [
        words.NAMES,
        words.CITIES,
        words.NOUNS,
        words.KINDS,
        words.VERBS,
        words.THINGS,
        words.FIELDS,
        words.WORDS,
        words.TOPICS,
        words.CONDITIONS,
        words.DAYS,
        list(words.CAPITALS),
    ]
    function_words = set(words.FUNCTION_WORDS)
    copied = {
        word for entries in lists for entry in entries for word in entry.split()
    } - function_words
    counts = collections.Counter(
        word for text in texts for word in re.findall(r" ([A-Za-z]+)", text)
    )
    room = VOCABULARY - len(CONTROL + MARKS + FRAGMENTS)
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if len(vocabulary) >= room:
            break
        if (
            word in vocabulary
            and word not in copied
            and (len(word) > 1 or word in ("a", "I"))
            and count > 20
        ):
            vocabulary["Ġ" + word] = len(vocabulary)
            merges.append(("Ġ", word))

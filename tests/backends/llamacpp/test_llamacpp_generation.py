"""What does not need a model: cutting, recovering, reading the vocabulary."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plugins.protocols import Sampling
from gateway_llamacpp.chunks import Details, Probability
from gateway_llamacpp.generation import GenerationState
from gateway_llamacpp.gguf_header import read_metadata
from gateway_llamacpp.model_files import TINY_MODEL
from gateway_llamacpp.recovery import ends_inside_character, recover
from gateway_llamacpp.vocabulary import Vocabulary

VOCABULARY = Vocabulary(read_metadata(TINY_MODEL))


def chunks_of(ids):
    """What llama.cpp sends for these tokens: nothing for one that ends inside a character, its text with the next."""
    unsent = b""
    for number, token in enumerate(ids, 1):
        unsent += VOCABULARY.bytes_of[token]
        if not ends_inside_character(unsent):
            yield Details(
                tokens=[token],
                content=unsent.decode(errors="replace"),
                tokens_predicted=number,
                completion_probabilities=[Probability(token, -1.0)],
            )
            unsent = b""


def tokens_of(text):
    """One token for each byte."""
    return [VOCABULARY.id_of(bytes([byte])) for byte in text.encode()]


def run(ids, **sampling):
    generation = GenerationState(VOCABULARY, Sampling(logprobs=0, **sampling), limit=10_000)
    outputs = []
    for details in chunks_of(ids):
        output = generation.feed(details)
        if output is not None:
            outputs.append(output)
            if output.finish_reason is not None:
                return outputs
    outputs.append(
        generation.feed(Details(stop=True, stop_type="limit", tokens_predicted=len(ids)))
    )
    return outputs


@given(text=st.text(max_size=30), stop=st.text(min_size=1, max_size=3))
def test_text_tokens_and_log_probabilities_agree(text, stop):
    outputs = run(tokens_of(text), stop=(stop,))
    said = "".join(output.text for output in outputs)
    expected, found, _ = text.partition(stop)
    assert said == expected
    assert outputs[-1].finish_reason == ("stop" if found else "length")
    spelled = b"".join(entry.bytes for output in outputs for entry in output.logprobs or ())
    assert spelled.decode() == said
    ids = [token for output in outputs for token in output.token_ids]
    used = text[: len(expected) + len(found)]
    assert ids == tokens_of(used)


@given(
    text=st.text(
        alphabet=st.characters(min_codepoint=0x80, exclude_categories=("Cs",)),
        min_size=1,
        max_size=8,
    )
)
def test_tokens_come_with_their_text(text):
    ids = 0
    for output in run(tokens_of(text)):
        ids += len(output.token_ids)
        assert bool(output.text) == bool(output.token_ids)
    assert ids == len(text.encode())


@given(text=st.characters(min_codepoint=0x80, exclude_categories=("Cs",)), data=st.data())
def test_lost_tokens_are_found_again(text, data):
    spelled = text.encode()
    missing = spelled[: data.draw(st.integers(1, len(spelled) - 1))]
    assert recover(VOCABULARY, missing, spelled[len(missing) :], len(missing)) == tuple(
        tokens_of_bytes(missing)
    )


def tokens_of_bytes(value):
    return [VOCABULARY.id_of(bytes([byte])) for byte in value]


@given(text=st.text(max_size=5), last=st.characters(min_codepoint=0x80), data=st.data())
def test_a_character_that_the_limit_cuts_is_no_text(text, last, data):
    if "\ud800" <= last <= "\udfff":
        return
    spelled = last.encode()
    begun = spelled[: data.draw(st.integers(1, len(spelled) - 1))]
    generation = GenerationState(
        VOCABULARY, Sampling(logprobs=0), limit=len(text.encode()) + len(begun)
    )
    outputs = [generation.feed(each) for each in chunks_of(tokens_of_bytes(text.encode() + begun))]
    outputs.append(
        generation.feed(
            Details(stop=True, stop_type="limit", tokens_predicted=len(text.encode() + begun))
        )
    )
    made = [output for output in outputs if output is not None]
    end = next(number for number, output in enumerate(made) if output.finish_reason is not None)
    made = made[: end + 1]
    assert "".join(output.text for output in made) == text
    assert (
        b"".join(each.bytes for output in made for each in output.logprobs or ()) == text.encode()
    )


@given(values=st.lists(st.integers(0, 255), min_size=1, max_size=12))
def test_malformed_output_keeps_its_text_and_its_number_of_tokens(values):
    """What llama.cpp does not tell is replaced by tokens that give the same text."""
    values += b"AAA"  # so many bytes llama.cpp may hold back
    ids = tokens_of_bytes(values)
    outputs = run(ids)
    found = [token for output in outputs for token in output.token_ids]
    said = "".join(output.text for output in outputs)
    assert said == bytes(values).decode(errors="replace")
    if len(found) == len(ids):
        assert VOCABULARY.decode(found) == said
    spelled = b"".join(entry.bytes for output in outputs for entry in output.logprobs or ())
    assert spelled.decode(errors="replace") == said


def test_tokens_that_cannot_be_told_are_counted():
    generation = GenerationState(VOCABULARY, Sampling(), limit=100)
    letter = VOCABULARY.id_of(b"A")
    output = generation.feed(Details(tokens=[letter], content="A", tokens_predicted=2))
    assert (output.text, output.token_ids) == ("A", [letter])
    assert generation.count == 2


def test_the_header_reads_what_the_gguf_library_reads():
    gguf = pytest.importorskip("gguf")
    metadata = read_metadata(TINY_MODEL)
    reader = gguf.GGUFReader(TINY_MODEL)
    theirs = {
        key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")
    }
    assert metadata == theirs
    del reader
    gc.collect()  # the library leaves its memory map to the collector


@pytest.mark.parametrize("cut", [30, 200, 5000])
def test_a_file_that_ends_in_its_metadata_is_an_error(tmp_path, cut):
    path = tmp_path / "cut.gguf"
    path.write_bytes(TINY_MODEL.read_bytes()[:cut])
    with pytest.raises(ValueError, match="ends in the middle"):
        read_metadata(path)


def test_a_token_outside_the_vocabulary_is_an_error():
    for token in (-1, len(VOCABULARY)):
        with pytest.raises(ValueError, match="is not a token"):
            VOCABULARY.token_bytes(token)


def test_sentencepiece_tokens_are_words_and_bytes():
    vocabulary = Vocabulary(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": ["<unk>", "<s>", "<0x0A>", "▁the", "é"],
            "tokenizer.ggml.token_type": [2, 3, 6, 1, 1],
        }
    )
    assert list(vocabulary.bytes_of) == [b"<unk>", b"<s>", b"\n", b" the", "é".encode()]
    assert vocabulary.special == {0, 1}
    assert vocabulary.decode([1, 3, 2, 4], skip_special_tokens=True) == " the\né"


def test_a_tokenizer_of_an_unknown_kind_is_an_error():
    with pytest.raises(ValueError, match="rwkv"):
        Vocabulary({"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": ["a"]})

"""Finding the bytes of tokens from the texts that represent them in a vocabulary."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

TokenReader: TypeAlias = Callable[[int, str], bytes]
"""Returns the bytes of a token, for its id and its text in the vocabulary."""

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"


def token_reader(tokenizer: Any) -> TokenReader:
    """The function that reads the tokens of a tokenizer of the library `tokenizers`, except added tokens."""
    decoders = _decoder_types(tokenizer)
    if "ByteLevel" in decoders:
        return byte_level_reader(byte_level_alphabet())
    if decoders & {"ByteFallback", "Metaspace"}:
        return sentencepiece_bytes

    def by_decoding(token_id: int, token: str) -> bytes:
        """The bytes that the token adds to a text that ends with the same token: spaces at the start of a text may be
        removed."""
        once = tokenizer.decode([token_id], skip_special_tokens=False)
        twice = tokenizer.decode([token_id, token_id], skip_special_tokens=False)
        return str(twice)[len(once) :].encode()

    return by_decoding


def byte_level_alphabet() -> dict[str, int]:
    """Maps the characters of byte-level vocabularies to bytes, as in GPT-2's encoder: printable bytes represent
    themselves, and the others are represented by characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(0x100) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + number): byte for number, byte in enumerate(others)
    }


def byte_level_reader(alphabet: Mapping[str, int]) -> TokenReader:
    """The function that reads tokens written in the characters of `alphabet`."""

    def read(token_id: int, token: str) -> bytes:
        try:
            return bytes(alphabet[character] for character in token)
        except KeyError:
            # An added token that is not declared as such. Its text is not encoded.
            return token.encode()

    return read


def sentencepiece_bytes(token_id: int, token: str) -> bytes:
    """The bytes of a token of SentencePiece: one byte, written as `<0x0A>`, or a text in which spaces are marked."""
    byte = _BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace(_SPACE, " ").encode()


def _decoder_types(tokenizer: Any) -> set[str]:
    """The types of a tokenizer's decoder and of the decoders in it. `Metaspace` also stands for its equivalent
    sequence."""
    if tokenizer.decoder is None:
        return set()
    outer = json.loads(tokenizer.decoder.__getstate__())
    found: set[str] = set()
    for decoder in outer.get("decoders", [outer]):
        found.add(decoder["type"])
        if decoder["type"] == "Replace" and decoder.get("pattern", {}).get("String") == _SPACE:
            found.add("Metaspace")
    return found

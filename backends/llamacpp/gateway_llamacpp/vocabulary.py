"""A model's vocabulary from its GGUF file: the bytes of each token."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.sdk import AddedToken
from gateway.sdk.engines import byte_level_alphabet

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""The values of `tokenizer.ggml.token_type`."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

_MARKUP = re.compile(r"\S?[<\[]\S+[>\]]")


class Vocabulary:
    """Token ids, their bytes, and which are special. Immutable."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        """Read a GGUF file's metadata. Raises ValueError, with a phrase, for an unsupported kind of tokenizer."""
        kind = metadata.get("tokenizer.ggml.model")
        texts: Sequence[str] = metadata.get("tokenizer.ggml.tokens", ())
        types: Sequence[int] = metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(texts)
        if not texts:
            raise ValueError("it has no vocabulary")
        if kind == "gpt2":
            alphabet = byte_level_alphabet()
            bytes_of = [
                _byte_level(text, type_, alphabet) for text, type_ in zip(texts, types, strict=True)
            ]
        elif kind in ("llama", "gemma4", "t5"):
            bytes_of = [
                _sentencepiece(text, type_) for text, type_ in zip(texts, types, strict=True)
            ]
        else:
            raise ValueError(f"its tokenizer is of the kind {kind!r}, which is not supported")
        self.bytes_of: Sequence[bytes] = bytes_of
        self.text_of: Sequence[str] = [value.decode("utf-8", "replace") for value in bytes_of]
        self.special = frozenset(
            index for index, type_ in enumerate(types) if type_ in (CONTROL, UNKNOWN)
        )
        """Ids that `skip_special_tokens` drops."""
        self.added_tokens = {
            # llama.cpp cuts a text at these, and tokenizes what is between them.
            self.text_of[index]: AddedToken(
                id=index, special=index in self.special, divides=type_ != UNKNOWN
            )
            for index, type_ in enumerate(types)
            if type_ in (CONTROL, UNKNOWN, USER_DEFINED)
        }
        """Tokens that are matched wherever their text occurs, as declared by the file."""
        self.doubtful = {
            self.text_of[index]: index
            for index, type_ in enumerate(types)
            if type_ == NORMAL and _MARKUP.fullmatch(texts[index])
        }
        """Ordinary tokens that look like markup. llama.cpp treats some as control tokens regardless of the file."""
        self.longest = max(map(len, bytes_of))
        """Maximum number of text bytes in one token."""
        self._ids: dict[bytes, int] = {}
        for index, value in enumerate(bytes_of):
            if value and index not in self.special:
                self._ids.setdefault(value, index)

    def __len__(self) -> int:
        return len(self.bytes_of)

    def id_of(self, value: bytes) -> int | None:
        """The ordinary token with exactly these bytes, or None."""
        return self._ids.get(value)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to a text; raises ValueError outside the vocabulary."""
        if not 0 <= token_id < len(self.bytes_of):
            raise ValueError(f"{token_id} is not a token: the vocabulary has {len(self.bytes_of)}")
        return self.bytes_of[token_id]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of `token_ids`; malformed UTF-8 becomes replacement characters."""
        kept = (
            (token for token in token_ids if token not in self.special)
            if skip_special_tokens
            else token_ids
        )
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")


def _byte_level(text: str, type_: int, alphabet: Mapping[str, int]) -> bytes:
    if type_ in (CONTROL, USER_DEFINED, UNKNOWN, UNUSED):
        return text.encode()
    try:
        return bytes(alphabet[character] for character in text)
    except KeyError:  # a token outside the byte alphabet stands for itself
        return text.encode()


def _sentencepiece(text: str, type_: int) -> bytes:
    if type_ in (CONTROL, UNKNOWN):
        return text.encode()
    byte = _BYTE_TOKEN.fullmatch(text)
    if type_ == BYTE and byte:
        return bytes([int(byte[1], 16)])
    return text.replace("\u2581", " ").encode()

"""A Hugging Face tokenizer as the gateway's `Tokenizer`: exact bytes per token, and thread-safe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from gateway.protocols import AddedToken

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "▁"


class HfTokenizer:
    """Wraps a tokenizer loaded by vLLM. A fast tokenizer is copied, so that changes to its settings elsewhere have no
    effect.

    `special` maps the texts of the tokens that `skip_special_tokens` removes to their ids.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._slow = tokenizer
        self._fast = _own_copy(tokenizer)
        if self._fast is not None:
            added = self._fast.get_added_tokens_decoder()
            contents = {token_id: token.content for token_id, token in added.items()}
            special = {
                token.content: token_id for token_id, token in added.items() if token.special
            }
            self._size = self._fast.get_vocab_size(with_added_tokens=True)
            # The library cuts a text at these before it normalizes what is between them.
            dividing = {
                token.content
                for token in added.values()
                if not token.normalized and not token.single_word
            }
        else:
            contents = {token_id: text for text, token_id in tokenizer.get_added_vocab().items()}
            special = dict(
                zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
            )
            self._size = len(tokenizer)
            dividing = set()
        self.special: dict[str, int] = special
        self.added_tokens = {
            text: AddedToken(id=token_id, special=text in special, divides=text in dividing)
            for text, token_id in (*((t, i) for i, t in contents.items()), *special.items())
        }
        self.special_ids = frozenset(special.values())
        self._added = {token_id: text.encode() for token_id, text in contents.items()}
        self._highest = max(self._size - 1, max(contents, default=0))
        self._to_bytes = self._reader()
        self._bytes: dict[int, bytes] = dict(self._added)
        self._pieces: dict[int, tuple[str, bytes]] = {}

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of `text`. Special tokens written in the text become their ids."""
        if self._fast is not None:
            # Unlike `encode`, it does not hold the interpreter's lock, nor find the places of tokens in the text.
            (encoded,) = self._fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)
            ids: list[int] = encoded.ids
            return ids
        return list(self._slow.encode(text, add_special_tokens=add_special_tokens))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of `token_ids`; malformed UTF-8 becomes replacement characters."""
        if self._fast is not None:
            return str(self._fast.decode(token_ids, skip_special_tokens=skip_special_tokens))
        return str(self._slow.decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token adds to a text. Raises ValueError for an id outside the vocabulary."""
        found = self._bytes.get(token_id)
        if found is None:
            token = self._token(token_id)
            if token is None:
                raise ValueError(f"token id {token_id} is outside the vocabulary")
            found = self._bytes[token_id] = self._to_bytes(token_id, token)
        return found

    def piece(self, token_id: int) -> tuple[str, bytes]:
        """A token as text, with replacement characters, and as bytes. Empty for ids that only pad the vocabulary."""
        found = self._pieces.get(token_id)
        if found is None:
            try:
                data = self.token_bytes(token_id)
            except ValueError:
                data = b""
            found = self._pieces[token_id] = data.decode("utf-8", "replace"), data
        return found

    def _token(self, token_id: int) -> str | None:
        if not 0 <= token_id <= self._highest:
            return None
        if self._fast is not None:
            token: str | None = self._fast.id_to_token(token_id)
            return token
        found = self._slow.convert_ids_to_tokens([token_id])[0]
        return None if found is None else str(found)

    def _reader(self) -> Callable[[int, str], bytes]:
        """The function that decodes this vocabulary's tokens to bytes."""
        if self._fast is not None:
            decoders = _decoder_types(self._fast)
            if "ByteLevel" in decoders:
                return _byte_level_reader(_characters_of_bytes())
            if decoders & {"ByteFallback", "Metaspace"}:
                return _read_sentencepiece
            return self._read_by_decoding
        alphabet = getattr(self._slow, "byte_decoder", None)
        if isinstance(alphabet, dict):
            return _byte_level_reader(alphabet)
        return _read_sentencepiece

    def _read_by_decoding(self, token_id: int, token: str) -> bytes:
        """For other vocabularies: what the token adds after itself, because at the start of a text spaces may be
        removed."""
        once = self.decode([token_id])
        return self.decode([token_id, token_id])[len(once) :].encode()


def _own_copy(tokenizer: Any) -> Any | None:
    """A copy of the inner Rust tokenizer, without truncation and padding; None for tokenizers written in Python."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        return None
    own = type(backend).from_str(backend.to_str())
    own.no_truncation()
    own.no_padding()
    return own


def _decoder_types(tokenizer: Any) -> set[str]:
    """The types of a Rust tokenizer's decoder and of nested ones; `Metaspace` also for its equivalent sequence."""
    if tokenizer.decoder is None:
        return set()
    outer = json.loads(tokenizer.decoder.__getstate__())
    found: set[str] = set()
    for decoder in outer.get("decoders", [outer]):
        found.add(decoder["type"])
        if decoder["type"] == "Replace" and decoder.get("pattern", {}).get("String") == _SPACE:
            found.add("Metaspace")
    return found


def _characters_of_bytes() -> dict[str, int]:
    """The alphabet of byte-level vocabularies, as in GPT-2's encoder: printable bytes represent themselves, the others
    are mapped to characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    alphabet.update((chr(0x100 + number), byte) for number, byte in enumerate(others))
    return alphabet


def _byte_level_reader(alphabet: dict[str, int]) -> Callable[[int, str], bytes]:
    def read(token_id: int, token: str) -> bytes:
        try:
            return bytes(alphabet[character] for character in token)
        except KeyError:
            # A token that was added without being declared: plain text.
            return token.encode()

    return read


def _read_sentencepiece(token_id: int, token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    if byte is not None:
        return bytes.fromhex(byte[1])
    return token.replace(_SPACE, " ").encode()

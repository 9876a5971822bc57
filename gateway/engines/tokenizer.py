"""A Hugging Face tokenizer as the gateway's `Tokenizer`, thread-safe and with the exact bytes of each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.engines.token_bytes import (
    TokenReader,
    byte_level_reader,
    sentencepiece_bytes,
    token_reader,
)
from gateway.plugins.protocols import AddedToken


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
            # The library cuts a text at these tokens before it normalizes the text between them.
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
            # Unlike `encode`, this releases the interpreter's lock, and does not compute the
            # positions of tokens in the text.
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
        """A token as text, with replacement characters for malformed UTF-8, and as bytes. Empty for ids that only pad
        the vocabulary."""
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

    def _reader(self) -> TokenReader:
        """The function that decodes this vocabulary's tokens to bytes."""
        if self._fast is not None:
            return token_reader(self._fast)
        alphabet = getattr(self._slow, "byte_decoder", None)
        if isinstance(alphabet, dict):
            return byte_level_reader(alphabet)
        return sentencepiece_bytes


def _own_copy(tokenizer: Any) -> Any | None:
    """A copy of the inner Rust tokenizer, without truncation and padding; None for tokenizers written in Python."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        return None
    own = type(backend).from_str(backend.to_str())
    own.no_truncation()
    own.no_padding()
    return own

"""Implements the gateway's `Tokenizer` from a `tokenizer.json`. Exact bytes for each token, no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.sdk import AddedToken, ConfigurationError
from gateway.sdk.engines import token_reader

if TYPE_CHECKING:
    import tokenizers


class JsonTokenizer:
    """Wraps a tokenizer of the `tokenizers` library, whose methods are thread-safe.

    `bytes_of` holds the bytes of every id; padding ids have none. `special` maps the text of special tokens to their
    ids; `skip_special_tokens` drops these.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self.special = {token.content: index for index, token in added.items() if token.special}
        self.special_ids = frozenset(self.special.values())
        self.added_tokens = {
            token.content: AddedToken(
                id=index,
                special=token.special,
                # The library cuts a text at these before it normalizes what is between them.
                divides=not token.normalized and not token.single_word,
            )
            for index, token in added.items()
        }
        size = max(tokenizer.get_vocab_size(with_added_tokens=True), max(added, default=-1) + 1)
        read = token_reader(tokenizer)
        table: list[bytes] = []
        for index in range(size):
            token = tokenizer.id_to_token(index)
            if index in added:
                table.append(added[index].content.encode())
            else:
                table.append(b"" if token is None else read(index, token))
        self.bytes_of = table
        self.text_of = [data.decode("utf-8", "replace") for data in table]
        self.shown_of = [
            b"" if index in self.special_ids else data for index, data in enumerate(table)
        ]
        """Like `bytes_of`, but empty for special tokens."""
        self.whole_of: list[str | None] = list(map(_decoded, table))
        """Text of tokens that are whole characters; None for other and special tokens."""
        for index in self.special_ids:
            self.whole_of[index] = None

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of `text`. Special tokens spelled out in the text become their ids."""
        # Unlike `encode`, it does not hold the interpreter's lock, nor find the places of tokens in the text.
        (encoded,) = self._tokenizer.encode_batch_fast(
            [text], add_special_tokens=add_special_tokens
        )
        return list(encoded.ids)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of `token_ids`; malformed UTF-8 becomes replacement characters."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token adds to a text; raises ValueError for an id outside the vocabulary."""
        if not 0 <= token_id < len(self.bytes_of):
            raise ValueError(f"{token_id} is outside the vocabulary of {len(self.bytes_of)} tokens")
        return self.bytes_of[token_id]


def load_tokenizer(file: Path) -> JsonTokenizer:
    """Load the tokenizer in `file`. Raises `ConfigurationError` if it is invalid."""
    import tokenizers

    try:
        return JsonTokenizer(tokenizers.Tokenizer.from_file(str(file)))
    except Exception as error:  # the library raises bare exceptions for invalid files
        raise ConfigurationError(f"The tokenizer {file} cannot be read: {error}.") from error


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None

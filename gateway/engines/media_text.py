"""Writing prompts with images or sounds as text, with a marker for each of them, as engines such as llama.cpp need
them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.base.errors import InvalidRequest
from gateway.plugins.protocols import AddedToken, PlacedMedia

_BREAK: Final = "\u2060"
"""Word joiner. It is inserted into ordinary text that spells a control token, so that the engine does not read it as
one."""


class MediaText:
    """Writes the prompts of one model. The engine recognizes control tokens in the text, so ordinary text that spells
    one is changed. Thread-safe."""

    def __init__(
        self,
        added: Mapping[str, AddedToken],
        *,
        encode: Callable[[str], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        """`added` are the tokenizer's added tokens, by their text. `decode` must not remove them."""
        self._added = {token.id: text for text, token in added.items()}
        self._encode = encode
        self._decode = decode
        self._texts = sorted(filter(None, added), key=len, reverse=True)

    def write(self, ids: Sequence[int], media: Sequence[PlacedMedia], marker: str) -> str:
        """The prompt as text, with `marker` for each image and sound, and nowhere else."""
        spelled = re.compile("|".join(map(re.escape, [marker, *self._texts])))
        parts: list[str] = []
        start = 0
        for placed in media:
            parts += self._text(ids[start : placed.at], spelled), marker
            start = placed.at
        parts.append(self._text(ids[start:], spelled))
        return "".join(parts)

    def check(self, ids: Sequence[int], media: Sequence[PlacedMedia], marker: str) -> None:
        """Raise `InvalidRequest` if the engine would recognize other control tokens in the text than the prompt
        contains."""
        read = self._encode(self.write(ids, media, marker))
        if [token for token in read if token in self._added] != [
            token for token in ids if token in self._added
        ]:
            raise InvalidRequest(
                "The text of this prompt cannot be told apart from the model's control tokens. Remove them from the text,"
                " or send it without images and sounds.",
                param="input",
            )

    def _text(self, ids: Sequence[int], spelled: re.Pattern[str]) -> str:
        """The text of tokens. Ordinary tokens are written so that their text spells no added token."""
        parts: list[str] = []
        start = 0
        for place, token in enumerate(ids):
            if token in self._added:
                parts += self._ordinary(ids[start:place], spelled), self._added[token]
                start = place + 1
        parts.append(self._ordinary(ids[start:], spelled))
        return "".join(parts)

    def _ordinary(self, ids: Sequence[int], spelled: re.Pattern[str]) -> str:
        return spelled.sub(lambda found: found[0][0] + _BREAK + found[0][1:], self._decode(ids))

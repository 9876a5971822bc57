"""The placeholder tokens that a model's own chat template writes for images and sounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.sdk import InvalidRequest, KnowsAddedTokens, MediaKind, PlacedMedia, Tokenizer
from gateway_chat_template.conversation import MessageMedia
from gateway_chat_template.features import Features

_SHAPED = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
_FRAME = re.compile(
    r"start|begin|end|\bbo[ia]\b|\beo[ia]\b|sep|break|content|_[be]os|^<(img|audio)>$|^[<\[]/"
)
"""Words in tokens that stand around a placeholder, as in `<|vision_start|><|image_pad|><|vision_end|>`."""


class Placeholder(Struct, frozen=True):
    """The token that stands for an image or sound."""

    text: str
    id: int
    count: int
    """The number of these tokens for one image."""


def find_placeholders(features: Features, tokenizer: Tokenizer) -> Mapping[MediaKind, Placeholder]:
    """The placeholders among the tokens that the template writes for an image and for a sound. A kind for which it
    writes ordinary text is left out."""
    found: dict[MediaKind, Placeholder] = {}
    if image := _placeholder(features.image_text, tokenizer):
        found["image"] = image
    audio = _placeholder(features.audio_text, tokenizer)
    if audio and (image is None or audio.id != image.id):
        found["audio"] = audio
    return found


def _placeholder(written: str, tokenizer: Tokenizer) -> Placeholder | None:
    ids = tokenizer.encode(written) if written else []
    if isinstance(tokenizer, KnowsAddedTokens):
        texts = {token.id: text for text, token in tokenizer.added_tokens.items()}
    else:
        spelled = {text: tokenizer.encode(text) for text in _SHAPED.findall(written)}
        texts = {each[0]: text for text, each in spelled.items() if len(each) == 1}
    tokens = [token for token in ids if token in texts]
    if not tokens:
        return None
    inner = [token for token in tokens if not _FRAME.search(texts[token])]
    chosen = (inner or tokens)[0]
    return Placeholder(texts[chosen], chosen, ids.count(chosen))


def placed_at_placeholders(
    token_ids: Sequence[int],
    media: Sequence[MessageMedia],
    placeholders: Mapping[MediaKind, Placeholder],
) -> list[PlacedMedia]:
    """The media at their placeholders. Raises `InvalidRequest` if there are fewer or more placeholders than media."""
    placed: list[PlacedMedia] = []
    for kind, placeholder in placeholders.items():
        shown = [each for each in media if each.media.kind == kind]
        if not shown:
            continue
        places = [at for at, token in enumerate(token_ids) if token == placeholder.id]
        if len(places) != len(shown) * placeholder.count:
            raise InvalidRequest(
                f"The model's chat template has {len(places) // placeholder.count} places for the {len(shown)} parts"
                f" of the kind '{kind}' in this conversation.",
                param=shown[0].param,
            )
        firsts = places[:: placeholder.count]
        placed += [each.placed(at) for each, at in zip(shown, firsts, strict=True)]
    return sorted(placed, key=lambda each: each.at)

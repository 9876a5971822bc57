"""Placeholder tokens, which mark the positions of images in prompts of tokens. Engines replace them by the tokens of
the images."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from gateway.base.errors import InvalidRequest, Unsupported
from gateway.plugins.protocols import PlacedMedia

_NAMES: Final = tuple(
    f"{kind}_token_{name}" for kind in ("image", "video", "audio") for name in ("id", "index")
)


def placeholder_ids(hf_config: Any) -> frozenset[int]:
    """The ids of the tokens that stand for media, according to the configuration of a Hugging Face model."""
    ids = (getattr(hf_config, name, None) for name in _NAMES)
    return frozenset(each for each in ids if isinstance(each, int))


def check_images(
    ids: Sequence[int],
    media: Sequence[PlacedMedia],
    *,
    takes_images: bool,
    placeholders: Collection[int],
) -> None:
    """Raise `InvalidRequest` for media other than images, for images that are not at a placeholder, and for placeholders
    without an image: engines may crash on these."""
    for placed in media:
        if placed.media.kind != "image" or not takes_images:
            kind = "images" if placed.media.kind == "image" else "audio"
            raise Unsupported(f"This model takes no {kind}. Send text.", param=placed.param)
        if placed.at >= len(ids) or ids[placed.at] not in placeholders:
            raise InvalidRequest(
                "The prompt has no placeholder for this image.", param=placed.param
            )
    if placeholders and sum(token in placeholders for token in ids) != len(media):
        raise InvalidRequest(
            "The prompt has the token of an image, and no image for it.", param="input"
        )

"""What the scripted engine sees of images and sounds: their sizes and hashes."""

from __future__ import annotations

from typing import Literal

from gateway.sdk import Media, TokensPrompt
from gateway_scripted.tokenizer import ScriptedTokenizer


def described(media: Media) -> str:
    """An image or sound in words: `[image 4x3 5f2c61a0]`, `[audio 1.5s 5f2c61a0]`."""
    size = f"{media.width}x{media.height}" if media.kind == "image" else f"{media.seconds:g}s"
    return f"[{media.kind} {size} {media.sha256[:8]}]"


def length_of(media: Media) -> int:
    """The number of tokens that an image or sound takes: more for larger ones."""
    if media.kind == "image":
        return 4 + media.width * media.height // 1024
    return 4 + int(media.seconds * 10)


def prompt_length(prompt: TokensPrompt, placeholders: Literal["template", "none"]) -> int:
    """The length of a prompt with its images and sounds. One that has a placeholder token takes its place."""
    given = _placeholder_tokens(placeholders)
    return len(prompt.token_ids) + sum(length_of(each.media) - given for each in prompt.media)


def _placeholder_tokens(placeholders: Literal["template", "none"]) -> int:
    """The number of tokens that the template writes for one image."""
    return 1 if placeholders == "template" else 0


def text_of(
    prompt: TokensPrompt,
    tokenizer: ScriptedTokenizer,
    placeholders: Literal["template", "none"],
) -> str:
    """The text of a prompt, with a description of each image and sound in its place. Raises `ValueError` for ids that
    are no tokens, and for places outside the prompt."""
    ids = prompt.token_ids
    if not prompt.media:
        return tokenizer.decode(ids)
    given = _placeholder_tokens(placeholders)
    pieces: list[str] = []
    start = 0
    for placed in prompt.media:
        if not start <= placed.at <= len(ids):
            raise ValueError(f"an image or sound at {placed.at} is not in order")
        pieces += tokenizer.decode(ids[start : placed.at]), described(placed.media)
        start = placed.at + given
    return "".join([*pieces, tokenizer.decode(ids[start:])])

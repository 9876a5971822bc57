"""Images and sounds of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.errors import InvalidRequest, Unsupported
from gateway.media.resolver import MediaResolver
from gateway.protocols import CountingEngine, Engine, PlacedMedia, TokensPrompt, Turn
from gateway.runtime.media import CAPABILITIES
from gateway.runtime.services import ServedModel, Services


def media_resolver(
    model: ServedModel, services: Services, owner: str | None
) -> MediaResolver | None:
    """Finds the images and sounds in the turns of one answer; None if the model takes none."""
    if not model.media_kinds or services.media is None:
        return None
    return services.media.resolver(owner or "", model.media_kinds)


async def with_media(turn: Turn, media: MediaResolver | None) -> Turn:
    """`turn` with the images and sounds of its items, if the model takes any."""
    if media is None:
        return turn
    return msgspec.structs.replace(turn, media=await media.resolve(turn.items))


def check_media(media: Sequence[PlacedMedia], engine: Engine) -> None:
    """Raise `InvalidRequest`, naming the part, for media that the engine does not take."""
    for placed in media:
        kind = placed.media.kind
        if CAPABILITIES[kind] not in engine.capabilities:
            raise InvalidRequest(
                f"This model takes no {CAPABILITIES[kind]}. Send text.", param=placed.param
            )


async def prompt_length(prompt: TokensPrompt, engine: Engine) -> int:
    """The length of a prompt in tokens. Raises `InvalidRequest` for images and sounds that the engine cannot count."""
    if not prompt.media:
        return len(prompt.token_ids)
    check_media(prompt.media, engine)
    if not isinstance(engine, CountingEngine):
        kind = CAPABILITIES[prompt.media[0].media.kind]
        raise Unsupported(
            f"The engine of this model does not tell how many tokens {kind} have.",
            param=prompt.media[0].param,
        )
    return await engine.count(prompt)

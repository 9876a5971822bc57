"""Images, sounds and documents of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.base.errors import InvalidRequest, Unsupported
from gateway.media.file_resolver import FileResolver, data_url
from gateway.media.part_resolver import PartResolver
from gateway.media.uploaded_parts import UploadedParts
from gateway.models.media import CAPABILITIES, sees_images
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import CountingEngine, Engine, PlacedMedia, TokensPrompt
from gateway.services import Services


def part_resolver(model: ServedModel, services: Services, owner: str | None) -> PartResolver:
    """Return the resolver of the images, sounds and documents in the turns of one answer of `model`."""
    owner = owner or ""
    capabilities = model.engine.capabilities
    media = files = None
    if model.media_kinds and services.media is not None:
        media = services.media.resolver(owner, model.media_kinds)
    if "files" not in capabilities:
        by_tokens = "tokens" in capabilities
        files = FileResolver(
            services.documents,
            owner,
            shows_pages=sees_images(model.engine, model.media_kinds),
            url_of=None if by_tokens else data_url,
        )
    uploaded = None
    if "tokens" not in capabilities:
        limits = services.config.documents
        uploaded = UploadedParts(
            owner,
            files="files" in capabilities,
            max_bytes=limits.max_bytes,
            max_total_bytes=limits.max_total_bytes,
        )
    return PartResolver(media=media, files=files, uploaded=uploaded)


def check_media(media: Sequence[PlacedMedia], engine: Engine) -> None:
    """Raise `InvalidRequest`, naming the part, for media that the engine does not accept."""
    for placed in media:
        kind = placed.media.kind
        if CAPABILITIES[kind] not in engine.capabilities:
            raise InvalidRequest(
                f"This model takes no {CAPABILITIES[kind]}. Send text.", param=placed.param
            )


async def prompt_length(prompt: TokensPrompt, engine: Engine) -> int:
    """Return the length of a prompt in tokens. Raises `InvalidRequest` for images and sounds that the engine does not
    accept or cannot count."""
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

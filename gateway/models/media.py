"""The kinds of media, images and sounds, that a model accepts."""

from __future__ import annotations

from typing import Final

from gateway.plugins.protocols import (
    Capability,
    Engine,
    MediaKind,
    MediaRenderer,
    PromptRenderer,
)

CAPABILITIES: Final[dict[MediaKind, Capability]] = {"image": "images", "audio": "audio"}


def media_kinds(engine: Engine, renderer: PromptRenderer) -> frozenset[MediaKind]:
    """The kinds of media that the engine accepts and the renderer can insert into prompts.

    Empty for engines that take messages, whose renderers pass on the parts of messages unchanged.
    """
    if not isinstance(renderer, MediaRenderer) or "tokens" not in engine.capabilities:
        return frozenset()
    return frozenset(
        kind for kind in renderer.media_kinds if CAPABILITIES[kind] in engine.capabilities
    )


def media_capabilities(engine: Engine) -> frozenset[Capability]:
    """The engine's capabilities for media."""
    return engine.capabilities & frozenset(CAPABILITIES.values())


def sees_images(engine: Engine, kinds: frozenset[MediaKind]) -> bool:
    """Whether a model with this engine accepts images. `kinds` is the result of `media_kinds`."""
    return "image" in kinds or (
        "images" in engine.capabilities and "tokens" not in engine.capabilities
    )


def shown_capabilities(engine: Engine, kinds: frozenset[MediaKind]) -> frozenset[Capability]:
    """The engine's capabilities, without those for kinds of media that the renderer does not support."""
    if "tokens" not in engine.capabilities:
        return engine.capabilities
    unseen = {name for kind, name in CAPABILITIES.items() if kind not in kinds}
    return engine.capabilities - unseen

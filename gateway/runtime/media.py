"""The images and sounds that a model takes."""

from __future__ import annotations

from typing import Final

from gateway.protocols import (
    Capability,
    Engine,
    MediaKind,
    MediaRenderer,
    PromptRenderer,
)

CAPABILITIES: Final[dict[MediaKind, Capability]] = {"image": "images", "audio": "audio"}


def media_kinds(engine: Engine, renderer: PromptRenderer) -> frozenset[MediaKind]:
    """The kinds of media that the engine takes and the renderer places. Empty for message-level engines, whose renderers
    pass on what a part says."""
    if not isinstance(renderer, MediaRenderer) or "tokens" not in engine.capabilities:
        return frozenset()
    return frozenset(
        kind for kind in renderer.media_kinds if CAPABILITIES[kind] in engine.capabilities
    )


def media_capabilities(engine: Engine) -> frozenset[Capability]:
    """The engine's capabilities for media."""
    return engine.capabilities & frozenset(CAPABILITIES.values())


def sees_images(engine: Engine, kinds: frozenset[MediaKind]) -> bool:
    """Whether a model with this engine sees images. `kinds` are its `media_kinds`."""
    return "image" in kinds or (
        "images" in engine.capabilities and "tokens" not in engine.capabilities
    )


def shown_capabilities(engine: Engine, kinds: frozenset[MediaKind]) -> frozenset[Capability]:
    """The engine's capabilities, without those for media of which the renderer places none."""
    if "tokens" not in engine.capabilities:
        return engine.capabilities
    unseen = {name for kind, name in CAPABILITIES.items() if kind not in kinds}
    return engine.capabilities - unseen

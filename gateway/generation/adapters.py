"""LoRA adapters, which are served as models of their own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.generation.fingerprint import with_fingerprint
from gateway.models.served_model import ServedModel


def with_adapters(model: ServedModel) -> Sequence[ServedModel]:
    """Return the model with its fingerprint, followed by the adapters of its engine. They share the model's engine and
    queue."""
    info = msgspec.structs.replace(model.info, adapters=model.engine.info.adapters)
    model = with_fingerprint(msgspec.structs.replace(model, info=info))
    adapters = (
        msgspec.structs.replace(model, name=name, adapter=name, parent=model.name)
        for name in info.adapters
    )
    return [model, *map(with_fingerprint, adapters)]

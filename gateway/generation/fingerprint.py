"""`system_fingerprint`: identifies everything, other than the request, that an answer depends on."""

from __future__ import annotations

from hashlib import sha256
from importlib.metadata import version

import msgspec

from gateway.models.served_model import ServedModel
from gateway.wire.common import encode


def with_fingerprint(model: ServedModel) -> ServedModel:
    """Return the model with its fingerprint, which depends on gateway, engine, model and configuration.

    Answers with the same fingerprint and `seed` were made under the same conditions.
    """
    fields = {
        "gateway": version("litegate"),
        "info": model.info,
        "renderer": type(model.renderer).__qualname__,
        "format": model.output_format.name,
        "config": model.config,
        "adapter": model.adapter,
    }
    name = f"fp_{sha256(encode(fields)).hexdigest()[:10]}"
    return msgspec.structs.replace(model, fingerprint=name)

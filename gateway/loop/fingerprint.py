"""`system_fingerprint`: a name for everything but the request that an answer depends on."""

from __future__ import annotations

from hashlib import sha256
from importlib.metadata import version

import msgspec

from gateway.serving.served import ServedModel
from gateway.wire.common import encode


def with_fingerprint(model: ServedModel) -> ServedModel:
    """The model with its fingerprint: the same for as long as gateway, engine, model and configuration are.

    Two answers with one fingerprint and one `seed` are made under the same circumstances.
    """
    told = {
        "gateway": version("litegate"),
        "info": model.info,
        "renderer": type(model.renderer).__qualname__,
        "format": model.output_format.name,
        "config": model.config,
        "adapter": model.adapter,
    }
    name = f"fp_{sha256(encode(told)).hexdigest()[:10]}"
    return msgspec.structs.replace(model, fingerprint=name)

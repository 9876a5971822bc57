"""Reading images from the user's disk, as parts of a question."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

from gateway.sdk import ConfigurationError

MAX_IMAGE_BYTES: Final = 20 << 20
_TYPES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


def image_part(path: str) -> dict[str, Any]:
    """The image at `path` as an `input_image`. Raises `ConfigurationError`."""
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(MAX_IMAGE_BYTES + 1)
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # also for an unknown home folder, and for a null character
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"The image {path!r} cannot be read: {reason}.") from error
    if len(data) > MAX_IMAGE_BYTES:
        raise ConfigurationError(f"The image {path!r} has more than {MAX_IMAGE_BYTES} bytes.")
    for start, media_type in _TYPES.items():
        if data.startswith(start):
            encoded = base64.b64encode(data).decode()
            return {"type": "input_image", "image_url": f"data:{media_type};base64,{encoded}"}
    raise ConfigurationError(f"{path!r} is not a PNG, JPEG, WebP or GIF image.")

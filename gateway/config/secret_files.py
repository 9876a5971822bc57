"""Files with a password, as Kubernetes, Docker and systemd mount them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 65_536


def read_secret_file(path: str, name: str) -> str:
    """Read the text of a file, without a byte order mark and without line ends around it. Raises `OSError` with a
    message that contains `name`, the setting, and nothing of the text."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise OSError(f"{name} cannot be read: {getattr(error, 'strerror', error)}") from None
    if len(text) > _MOST_BYTES:
        raise OSError(f"{name} has more than {_MOST_BYTES} bytes, which is no password")
    try:
        return text.decode("utf-8-sig").strip("\r\n")
    except UnicodeDecodeError:
        raise OSError(f"{name} is not UTF-8") from None

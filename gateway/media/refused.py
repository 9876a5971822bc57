"""The error for an image or a sound that cannot be used."""

from __future__ import annotations

from typing import Final

INVALID_URL: Final = "invalid_image_url"
DOWNLOAD_FAILED: Final = "failed_to_download_image"
FILE_NOT_FOUND: Final = "image_file_not_found"
FILE_TOO_LARGE: Final = "image_file_too_large"
EMPTY_FILE: Final = "empty_image_file"
INVALID_BASE64: Final = "invalid_base64_image"
WRONG_MEDIA_TYPE: Final = "unsupported_image_media_type"
WRONG_FORMAT: Final = "invalid_image_format"
TOO_LARGE: Final = "image_too_large"
PARSE_ERROR: Final = "image_parse_error"
INVALID_IMAGE: Final = "invalid_image"
INVALID_SOUND: Final = "invalid_value"


class MediaRefused(Exception):
    """An image or sound cannot be used. `code` is OpenAI's machine-readable code; `message` addresses the client.

    The text of the exception contains both, so that it can be passed on from a helper process.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @classmethod
    def from_text(cls, text: str) -> MediaRefused:
        """The exception with the text `text`."""
        code, _, message = text.partition(": ")
        return cls(code, message)

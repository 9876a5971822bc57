"""The text of documents, extracted in helper processes. Requires `litegate[documents]`."""

from gateway.media.documents.failures import (
    InvalidFile,
    UnsupportedFile,
)
from gateway.media.documents.reader import (
    DocumentReader,
    ReadingFailure,
)
from gateway.media.documents.text import (
    read_text,
)

__all__ = ["DocumentReader", "InvalidFile", "ReadingFailure", "UnsupportedFile", "read_text"]

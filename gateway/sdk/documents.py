"""The text of documents, extracted in helper processes. Requires `litegate[documents]`."""

from gateway.documents.failures import (
    InvalidFile,
    UnsupportedFile,
)
from gateway.documents.reader import (
    DocumentReader,
    ReadingFailure,
)
from gateway.documents.text import (
    read_text,
)

__all__ = ["DocumentReader", "InvalidFile", "ReadingFailure", "UnsupportedFile", "read_text"]

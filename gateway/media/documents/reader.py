"""Extracts the text of documents in helper processes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, Literal

from gateway.base.errors import ConfigurationError
from gateway.base.process_pool import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperFailure,
    PoolBusy,
    ProcessPool,
)
from gateway.media.documents.failures import InvalidFile, UnsupportedFile
from gateway.media.documents.text import read_text

_CHARACTER_BYTES: Final = 8
"""Upper bound for the bytes of a result per character: a character has at most four bytes, and chunks overlap by up to
half."""


class ReadingFailure(Exception):
    """The document has no readable text. The message says why; `code` is the API's error code."""

    def __init__(
        self,
        message: str,
        code: Literal["server_error", "unsupported_file", "invalid_file"] = "invalid_file",
    ) -> None:
        super().__init__(message)
        self.code = code


class DocumentReader:
    """Extracts the text of documents. Each document is read by a new process, because another document could have
    corrupted the process."""

    def __init__(
        self,
        *,
        processes: int,
        seconds: float,
        memory: int,
        max_text: int,
        preload: str = "gateway.media.documents.text",
        max_result: int = 0,
    ) -> None:
        """`seconds` and `memory` (bytes) limit each process, `max_text` the characters of a document. A process imports
        the module `preload`. `max_result` limits what a function returns besides text, in bytes. Raises
        `ConfigurationError` if a package is missing."""
        # Not imported here: only the processes need them, and the import takes a tenth of a second.
        if find_spec("lxml") is None or find_spec("pypdfium2") is None:
            raise ConfigurationError(
                "Reading documents needs the packages lxml and pypdfium2: pip install 'litegate[documents]'."
            )
        self.max_text: Final = max_text
        self.seconds: Final = seconds
        self.pool: Final = ProcessPool(
            processes=processes,
            memory=memory,
            max_result=max_text * _CHARACTER_BYTES + max_result + 1_048_576,
            max_calls=1,
            preload=[preload],
        )

    async def text(self, content: bytes, filename: str, *, key: str = "") -> str:
        """The text of a document. The processes are shared fairly between the values of `key` (owners). Raises
        `ReadingFailure`."""
        try:
            return await self.pool.run(
                read_text, content, filename, self.max_text, seconds=self.seconds, key=key
            )
        except HelperFailure as failure:
            raise self.failure(failure) from None

    def failure(self, failure: HelperFailure) -> ReadingFailure:
        """Convert the failure of a helper process to a `ReadingFailure` with a message for the client."""
        match failure:
            case HelperDeadlineExceeded():
                return ReadingFailure(
                    f"The file could not be read within {self.seconds:g} seconds."
                )
            case FunctionFailed(name=UnsupportedFile.__name__):
                return ReadingFailure(failure.message, "unsupported_file")
            case FunctionFailed(name=InvalidFile.__name__):
                return ReadingFailure(failure.message)
            case FunctionFailed(name=MemoryError.__name__):
                return ReadingFailure("Reading it takes more memory than this server allows.")
            case PoolBusy():
                return ReadingFailure("Too many files are being read.", "server_error")
            case _:
                return ReadingFailure("The file cannot be read: its reader broke off.")

    async def close(self) -> None:
        await self.pool.close()

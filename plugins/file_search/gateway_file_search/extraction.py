"""From a file's bytes to its text."""

from __future__ import annotations

import asyncio
import codecs
import sys
from pathlib import Path
from typing import Literal

from gateway_file_search import reading
from gateway_file_search.config import FileSearchConfig

_HTML = (".html", ".htm", ".xhtml")
_SAMPLE = 8192
_REPLACED = "\ufffd"
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class ReadingFailure(Exception):
    """The file has no text that can be read; the text says why, `code` is the API's."""

    def __init__(
        self,
        message: str,
        code: Literal["server_error", "unsupported_file", "invalid_file"] = "invalid_file",
    ) -> None:
        super().__init__(message)
        self.code = code


async def text_of(content: bytes, filename: str, config: FileSearchConfig) -> str:
    """The text of a text file, an HTML page or a PDF. Raises `ReadingFailure`."""
    if not content:
        raise ReadingFailure("The file is empty.")
    if b"%PDF-" in content[:1024]:
        text = await _read_apart("pdf", content, config)
    elif filename.lower().endswith(_HTML):
        text = await _read_apart("html", content, config)
    else:
        text = await asyncio.to_thread(_plain, content)
    text = text.replace("\x00", "").replace("\r\n", "\n")
    if not text.strip():
        raise ReadingFailure("The file has no text.")
    if len(text) > config.max_text:
        raise ReadingFailure(
            f"The file's text has more than {config.max_text} characters, this server's limit."
        )
    return text


def _plain(content: bytes) -> str:
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return _well_formed(content.decode(encoding, "replace"))
    if b"\x00" in content[:_SAMPLE]:
        raise ReadingFailure(
            "Files of this kind cannot be read. Text, Markdown, HTML, PDF, JSON, CSV and source code can.",
            "unsupported_file",
        )
    text = content.decode("utf-8", "replace")
    if text.count(_REPLACED) * 10 > len(text):
        raise ReadingFailure(
            "The file is not text in UTF-8 or UTF-16. Convert it and upload it again.",
            "unsupported_file",
        )
    return text


def _well_formed(text: str) -> str:
    """Without lone surrogates, which UTF-16 can hold."""
    return text.encode("utf-8", "replace").decode()


async def _read_apart(
    kind: Literal["html", "pdf"], content: bytes, config: FileSearchConfig
) -> str:
    """The text, read by a process of its own that has limits."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(Path(reading.__file__)),
        kind,
        str(config.reading_memory),
        str(int(config.reading_time) + 1),
        str(config.max_text),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(config.reading_time):
            text, problem = await process.communicate(content)
    except TimeoutError:
        raise ReadingFailure(
            f"The file could not be read within {config.reading_time:g} seconds."
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return text.decode("utf-8", "replace")
    if process.returncode == reading.UNREADABLE:
        raise ReadingFailure(problem.decode("utf-8", "replace"))
    raise ReadingFailure("The file cannot be read: its reader broke off.")

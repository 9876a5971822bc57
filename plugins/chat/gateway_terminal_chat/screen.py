"""Writing an answer to a terminal or a pipe."""

from __future__ import annotations

from typing import Final, Literal, TextIO

from gateway.sdk.commands import one_line, visible

_DIM: Final = "\x1b[2m"
_RESET: Final = "\x1b[0m"


class Screen:
    """Writes an answer. Control characters in it are made visible (`visible`), so that they do not affect the terminal.

    If the stream is not a terminal, only the text of the answer is written.
    """

    def __init__(self, stream: TextIO, *, colours: bool) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._colours = colours
        self._open: Literal["text", "reasoning"] | None = None
        self._line_begun = False

    def text(self, text: str) -> None:
        """Write a part of the answer."""
        self._begin("text")
        self._write(visible(text))

    def reasoning(self, text: str) -> None:
        """Write a part of the reasoning, dimmed."""
        if self._terminal:
            self._begin("reasoning")
            self._write(visible(text), dim=True)

    def note(self, label: str, text: str = "") -> None:
        """Write a line about the answer, dimmed: `[label] text`."""
        if self._terminal:
            self.end()
            self._write(f"[{one_line(label)}] {one_line(text)}".rstrip() + "\n", dim=True)

    def line(self, text: str) -> None:
        """Write a line of the chat itself."""
        self.end()
        self._write(f"{visible(text)}\n")

    def end(self) -> None:
        """End the current line, if it is not empty."""
        if self._line_begun:
            self._write("\n")
        self._open = None

    def _begin(self, kind: Literal["text", "reasoning"]) -> None:
        if self._open == kind:
            return
        if self._open is not None:
            self.end()
        self._open = kind
        if kind == "reasoning":
            self._write("[reasoning] ", dim=True)

    def _write(self, text: str, *, dim: bool = False) -> None:
        if not text:
            return
        self._line_begun = not text.endswith("\n")
        if dim and self._colours:
            line = text.removesuffix("\n")
            text = f"{_DIM}{line}{_RESET}{text[len(line) :]}"
        self._stream.write(text)
        self._stream.flush()

"""Arguments that a model has written as a JSON string of their JSON."""

from __future__ import annotations

import json

from gateway_parsers.kit.json_text import JsonText


class EncodedArguments:
    """Reads the string from behind its opening quote, and gives arguments: the object that it says, or else the string."""

    __slots__ = ("_is_object", "_text")

    def __init__(self, quote: str) -> None:
        self._text = JsonText(quote)
        self._is_object: bool | None = None

    @property
    def done(self) -> bool:
        return self._text.done

    def read(self, text: str, pos: int, *, final: bool) -> tuple[int, str]:
        """Like `JsonValue.read`."""
        pos, said = self._text.read(text, pos, final=final)
        opening = ""
        if self._is_object is None:
            said = said.lstrip()
            if said:
                self._is_object = said[0] == "{"
                opening = "" if self._is_object else '"'
        if self._is_object:
            return pos, said
        if self._is_object is None:
            return pos, ""
        quoted = json.dumps(said, ensure_ascii=False)[1:]
        return pos, opening + (quoted if self.done else quoted[:-1])

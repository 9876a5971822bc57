"""What several client libraries are asked for: an object of a schema, and a call of a function."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

CHAT_WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
"""A tool of Chat Completions."""
WEATHER: Any = {"type": "function", **CHAT_WEATHER["function"]}
"""The same of Responses."""


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int

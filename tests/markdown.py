"""Reading pages of the documentation."""

from __future__ import annotations

import re


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of `page` in one language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)

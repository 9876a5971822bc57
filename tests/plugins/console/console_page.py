"""What the tests of the console do on its page."""

from __future__ import annotations

from .chromium import Page

LAST = ".turn:last-child"


def choose(page: Page, model: str) -> None:
    page.run(f"(() => {{ const select = document.querySelector('.model select'); select.value = '{model}'; select.dispatchEvent(new Event('change')); }})()")  # fmt: skip


def ask(page: Page, text: str, model: str = "scripted") -> None:
    choose(page, model)
    page.type("#prompt", text)
    page.press("Enter")


def finished(page: Page, turns: int = 1) -> str:
    """Wait until as many turns are complete. Returns the text of the last one's answer."""
    page.wait(
        f"document.querySelectorAll('.turn').length === {turns} && document.querySelector('{LAST} .stats')"
    )
    return page.text(f"{LAST} .answer")

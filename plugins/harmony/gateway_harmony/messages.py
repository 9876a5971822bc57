"""Messages of a Harmony conversation and their markup."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gateway_harmony.markers import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, START, Markup


class HarmonyMessage(Struct, frozen=True, kw_only=True):
    """One message. `author` is a role, or the address of a tool."""

    author: str
    text: str
    channel: Literal["analysis", "commentary", "final"] | None = None
    recipient: str | None = None
    content_type: Literal["json", "code"] | None = None

    @property
    def is_thought(self) -> bool:
        """Whether it is chain of thought without a recipient."""
        return self.channel == "analysis" and self.recipient is None

    @property
    def is_final(self) -> bool:
        return self.channel == "final"

    @property
    def header(self) -> Markup:
        """Markup from `<|start|>` to `<|message|>`. The recipient follows the channel on commentary, and precedes it
        elsewhere."""
        to = f" to={self.recipient}" if self.recipient else ""
        space = " " if self.content_type is not None else ""
        if self.channel is None:
            parts = [(START, f"{self.author}{to}{space}")]
        elif self.channel == "commentary":
            parts = [(START, self.author), (CHANNEL, f"{self.channel}{to}{space}")]
        else:
            parts = [(START, f"{self.author}{to}"), (CHANNEL, f"{self.channel}{space}")]
        if self.content_type is not None:
            parts.append((CONSTRAIN, self.content_type))
        return (*parts, (MESSAGE, ""))

    @property
    def end(self) -> str:
        """Markup after the content."""
        return CALL if self.author == "assistant" and self.recipient else END

"""Messages of a Harmony conversation, and how they are written."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gateway_harmony.markers import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, START


class HarmonyMessage(Struct, frozen=True, kw_only=True):
    """One message. `author` is a role, or a tool's address where the tool speaks."""

    author: str
    text: str
    channel: Literal["analysis", "commentary", "final"] | None = None
    recipient: str | None = None
    content_type: Literal["json", "code"] | None = None

    @property
    def is_thought(self) -> bool:
        """Whether it is chain of thought that is addressed to nobody."""
        return self.channel == "analysis" and self.recipient is None

    @property
    def is_final(self) -> bool:
        return self.channel == "final"

    @property
    def header(self) -> str:
        """From `<|start|>` to `<|message|>`. On the commentary channel the recipient stands behind it, else before."""
        to = f" to={self.recipient}" if self.recipient else ""
        parts = [START, self.author]
        if self.channel != "commentary":
            parts.append(to)
        if self.channel is not None:
            parts += (CHANNEL, self.channel)
        if self.channel == "commentary":
            parts.append(to)
        if self.content_type is not None:
            parts += (" ", CONSTRAIN, self.content_type)
        return "".join((*parts, MESSAGE))

    @property
    def end(self) -> str:
        """What follows the content."""
        return CALL if self.author == "assistant" and self.recipient else END

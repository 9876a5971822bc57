"""As of 1.4."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class ConversationParams:
    conversation_id: str

"""The log of requests: one line at the end of each, and its texts if `log_content` asks for them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from gateway.deltas import CallArgumentsDelta, CallStarted, Delta, ReasoningDelta, TextDelta
from gateway.request_stats import Content, RequestStats

logger = logging.getLogger("gateway.requests")

FIELDS = "gateway_fields"
"""The attribute of a log record that has further fields: `name=value` in text, members in JSON. The message and the fields
of such a record contain no secrets: they are not searched for any."""
TEXTS = "gateway_texts"
"""The attribute of a log record that has texts from outside, by name. They are searched for secrets."""
LONGEST = 16_384
"""Maximum length of a logged text in characters."""
_MARGIN = 1024
"""Characters beyond `LONGEST` that redaction still reads, so that a secret is not cut into an unknown half."""
_PROBES = frozenset(("/health", "/ready", "/metrics"))
"""Routes whose requests are logged at the level `debug`."""
_CREDENTIALS = re.compile(
    r'("(?:authorization|headers|env|api_key|token)"\s*:\s*)(?:"(?:[^"\\]|\\.)*"?|\{(?:[^"}]|"(?:[^"\\]|\\.)*"?)*\}?)',
    re.IGNORECASE,
)
"""Members of a request's JSON that hold credentials of tools, at any depth; the last may be cut off."""

ContentKind = Literal["input", "output"]
RedactContent = Callable[[str, ContentKind], str]
"""Returns the text that is logged in place of a text."""


class RequestContent:
    """The texts of one request: its body, and what the model wrote."""

    __slots__ = ("_left", "_output", "_policy", "input", "logged")

    def __init__(self, policy: ContentPolicy) -> None:
        self.input = b""
        self.logged = False
        self._output: list[str] = []
        self._left = LONGEST + _MARGIN
        self._policy = policy

    def read(self, body: bytes) -> None:
        """Keep the beginning of a request's body."""
        self.input = body[: 4 * (LONGEST + _MARGIN)]

    def see(self, deltas: Sequence[Delta]) -> None:
        """Keep the text of `deltas`, as long as there is room."""
        if self._left <= 0:
            return
        for delta in deltas:
            match delta:
                case TextDelta() | ReasoningDelta() | CallArgumentsDelta():
                    text = delta.text
                case CallStarted():
                    text = f"\n{delta.name} "
                case _:
                    continue
            self._output.append(text[: self._left])
            self._left -= len(text)

    def texts(self, *, failed: bool) -> dict[str, str] | None:
        """The redacted texts; None if those of such a request are not logged."""
        policy = self._policy
        if policy.errors_only and not failed:
            return None
        body = self.input.decode("utf-8", "replace")
        body = _CREDENTIALS.sub(r'\1"[hidden]"', body[: LONGEST + _MARGIN])
        return {
            "input": policy.redacted(body, "input"),
            "output": policy.redacted("".join(self._output), "output"),
        }


class ContentPolicy:
    """Which texts are logged, and what is removed from them."""

    def __init__(self, *, errors_only: bool, redact: Sequence[RedactContent] = ()) -> None:
        self.errors_only = errors_only
        self._redact = redact

    def content(self) -> RequestContent:
        """The place for the texts of a new request."""
        return RequestContent(self)

    def redacted(self, text: str, kind: ContentKind) -> str:
        """`text` as it is logged."""
        try:
            for redact in self._redact:
                text = redact(text, kind)
        except Exception:
            logger.exception("a gateway_redact_content hook failed; the text is not logged")
            return "[not logged]"
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def log_request(stats: RequestStats, *, line: bool = True) -> None:
    """Log the end of a request: its texts, if the configuration asks for them, and if `line` is set one line of ids, names,
    numbers and times, without texts or keys."""
    if stats.content is not None:
        _log_content(stats, stats.content)
    if not line:
        return
    refused = stats.status in (401, 403)
    level = logging.DEBUG if stats.route in _PROBES and not refused else logging.INFO
    if not logger.isEnabledFor(level):
        return
    logger.log(level, "request", extra={FIELDS: fields_of(stats)})


def fields_of(stats: RequestStats) -> dict[str, Any]:
    """What is known of a request, by name. What it does not have is left out."""
    run = stats.run
    fields: dict[str, Any] = {
        "method": stats.method,
        "route": stats.route,
        "status": stats.status or None,
        "client": stats.client,
        "key": None if stats.owner is None else _one_word(stats.owner),
    }
    error = stats.error_code
    if run is not None:
        fields |= {
            "run": run.status,
            "api": run.api,
            "model": run.model or None,
            "response_id": run.response_id or None,
            "engine_request_id": run.engine_request_id or None,
        }
        error = run.error_code or error
        if (usage := run.usage) is not None:
            fields |= {
                "input_tokens": usage.input_tokens,
                "cached_tokens": usage.input_tokens_details.cached_tokens,
                "output_tokens": usage.output_tokens,
                "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
            }
        fields["queue_ms"] = _milliseconds(run.queue_seconds)
        fields["first_token_ms"] = _milliseconds(run.first_token_seconds)
    fields["total_ms"] = _milliseconds(stats.seconds)
    fields["error_code"] = error
    fields["client_left"] = stats.client_left or None
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _log_content(stats: RequestStats, content: Content) -> None:
    run = stats.run
    # A background run logs its texts when it ends, not when its request does.
    if content.logged or (run is not None and run.model and run.status is None):
        return
    content.logged = True
    failed = stats.status >= 400 or (run is not None and run.status == "failed")
    texts = content.texts(failed=failed)
    if texts is not None:
        logger.info("content", extra={TEXTS: texts})


def _one_word(name: str) -> str:
    """A key's name, which may come from outside, so that it cannot be taken for another field or line."""
    return name if name.isprintable() and " " not in name else json.dumps(name)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)

"""The log of requests: one line at the end of each request, and its texts if `log_content` is enabled."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from gateway.base.deltas import CallArgumentsDelta, CallStarted, Delta, ReasoningDelta, TextDelta
from gateway.observe.request_context import RequestContext
from gateway.observe.run_stats import Content

logger = logging.getLogger("gateway.requests")

FIELDS = "gateway_fields"
"""The attribute of a log record with further fields: `name=value` in text logs, members of the object in JSON logs. The
message and fields of such a record must not contain secrets, because they are not redacted."""
TEXTS = "gateway_texts"
"""The attribute of a log record with texts of clients and models, by name. Secrets in them are redacted."""
LONGEST = 16_384
"""Maximum length of a logged text in characters."""
_MARGIN = 1024
"""Characters beyond `LONGEST` that redaction still reads, so that a secret at the limit is seen as a whole."""
_PROBES = frozenset(("/health", "/ready", "/metrics"))
"""Routes whose requests are logged at the level `debug`."""
_CREDENTIALS = re.compile(
    r'("(?:authorization|headers|env|api_key|token)"\s*:\s*)(?:"(?:[^"\\]|\\.)*"?|\{(?:[^"}]|"(?:[^"\\]|\\.)*"?)*\}?)',
    re.IGNORECASE,
)
"""Matches members of a request's JSON with credentials of tools, at any depth. The last one may be cut off."""

ContentKind = Literal["input", "output"]
RedactContent = Callable[[str, ContentKind], str]
"""Returns the text to log in place of a text."""


class RequestContent:
    """The texts of one request: its body and the model's output."""

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
        """Keep the text of `deltas`, up to the maximum length."""
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
        """The redacted texts; None if only failed requests are logged and this one did not fail."""
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
    """Decides which texts are logged, and redacts them."""

    def __init__(self, *, errors_only: bool, redact: Sequence[RedactContent] = ()) -> None:
        self.errors_only = errors_only
        self._redact = redact

    def content(self) -> RequestContent:
        """Create the container for the texts of a new request."""
        return RequestContent(self)

    def redacted(self, text: str, kind: ContentKind) -> str:
        """Return `text` as it should be logged: redacted, with at most `LONGEST` characters. If a hook fails, the
        text is not logged."""
        try:
            for redact in self._redact:
                text = redact(text, kind)
        except Exception:
            logger.exception("a gateway_redact_content hook failed; the text is not logged")
            return "[not logged]"
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def log_request(stats: RequestContext, *, line: bool = True) -> None:
    """Log the end of a request: its texts, if they are to be logged, and if `line` is true one line with ids, names,
    numbers and times. The line contains no texts and no API keys."""
    if stats.content is not None:
        _log_content(stats, stats.content)
    if not line:
        return
    refused = stats.status in (401, 403)
    level = logging.DEBUG if stats.route in _PROBES and not refused else logging.INFO
    if not logger.isEnabledFor(level):
        return
    logger.log(level, "request", extra={FIELDS: fields_of(stats)})


def fields_of(stats: RequestContext) -> dict[str, Any]:
    """The fields of a request's log line, by name. Fields without a value are omitted."""
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


def _log_content(stats: RequestContext, content: Content) -> None:
    run = stats.run
    # The texts of a background run are logged when the run ends, not when its request ends.
    if content.logged or (run is not None and run.model and run.status is None):
        return
    content.logged = True
    failed = stats.status >= 400 or (run is not None and run.status == "failed")
    texts = content.texts(failed=failed)
    if texts is not None:
        logger.info("content", extra={TEXTS: texts})


def _one_word(name: str) -> str:
    """Quote a principal's name if necessary. It may come from outside, and must not look like another field or line."""
    return name if name.isprintable() and " " not in name else json.dumps(name)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)

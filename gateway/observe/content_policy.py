"""Creates the policy that decides which texts of requests are logged, with the plugins that redact them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from gateway.observe.request_log import ContentKind, ContentPolicy, RedactContent


def content_policy(log_content: Literal["off", "errors", "all"], hook: Any) -> ContentPolicy | None:
    """The policy for the setting `log_content`; None if no text is logged. `hook` is the plugin manager's hook
    caller."""
    if log_content == "off":
        return None
    return ContentPolicy(errors_only=log_content == "errors", redact=list(_redactors(hook)))


def _redactors(hook: Any) -> Iterator[RedactContent]:
    """The implementations of `gateway_redact_content`, in the order in which pluggy calls them. Each receives the
    result of the previous one."""
    for implementation in reversed(hook.gateway_redact_content.get_hookimpls()):
        yield partial(_redacted, implementation)


def _redacted(implementation: Any, text: str, kind: ContentKind) -> str:
    given = {"text": text, "kind": kind}
    redacted = implementation.function(*(given[name] for name in implementation.argnames))
    if redacted is None:
        return text
    if not isinstance(redacted, str):
        raise TypeError("gateway_redact_content returns the text that is logged")
    return redacted

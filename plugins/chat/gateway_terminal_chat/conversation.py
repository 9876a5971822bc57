"""A conversation: its history, and streaming the answer to a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.sdk import ConfigurationError
from gateway.sdk.commands import ApiClient, ApiError
from gateway_terminal_chat.answer import AnswerPrinter
from gateway_terminal_chat.screen import Screen

Json = dict[str, Any]

_NOT_SENT: Final = ("reasoning", "mcp_list_tools")
"""Items that are not sent back to servers without a store: they do not need them, or do not accept them."""
_APPROVALS: Final = ("mcp_approval_request", "mcp_approval_response")
_MAX_APPROVALS: Final = 32


class ChatSession:
    """Asks questions, and keeps the history of the conversation.

    If the server stores responses, the history is given by `previous_response_id`. Otherwise its items are sent.
    """

    def __init__(
        self, client: ApiClient, screen: Screen, model: str, tools: Sequence[Json] = ()
    ) -> None:
        self._client = client
        self._screen = screen
        self._tools = list(tools)
        self.model = model
        self.images: list[Json] = []
        """Images that are sent with the next question."""
        self.allows: Callable[[str], bool] = lambda question: False
        """Asks the user whether a tool may be called."""
        self.clear()

    def clear(self) -> None:
        """Forget the history."""
        self._items: list[Json] = []
        self._previous: str | None = None
        self._sent = 0
        """Number of items that the response `_previous` already contains."""

    def ask(self, question: str) -> None:
        """Ask a question, and show the answer while it is streamed. If this raises `ApiError`, the question is
        forgotten.

        If the answer is interrupted, the part that was written stays in the history.
        """
        before = len(self._items), self._previous, self._sent
        content: list[Json] = [{"type": "input_text", "text": question}, *self.images]
        self.images = []
        self._items.append({"type": "message", "role": "user", "content": content})
        try:
            for _ in range(_MAX_APPROVALS):
                requests = self._respond()
                if not requests:
                    break
                self._items += [self._decision(request) for request in requests]
        except ApiError:
            count, self._previous, self._sent = before
            del self._items[count:]
            raise

    def _respond(self) -> list[Json]:
        """Create one response. Returns its requests for approval."""
        try:
            return self._streamed()
        except ApiError as error:
            if self._previous is None or error.param != "previous_response_id":
                raise
        self._previous, self._sent = None, 0  # the server does not have the response any more
        return self._streamed()

    def _streamed(self) -> list[Json]:
        answer = AnswerPrinter(self._screen)
        try:
            with self._client.stream(self._body()) as events:
                for event in events:
                    answer.take(event)
        except KeyboardInterrupt:
            self._items += answer.written()
            raise
        finally:
            self._screen.end()
        response = answer.final()
        output = [item for item in response.get("output") or () if isinstance(item, dict)]
        self._items += output
        if response.get("store") is True and isinstance(response.get("id"), str):
            self._previous, self._sent = response["id"], len(self._items)
        return [item for item in output if item.get("type") == "mcp_approval_request"]

    def _body(self) -> Json:
        body: Json = {"model": self.model}
        if self._previous is None:
            body["input"] = _without_store(self._items)
        else:
            body["input"] = [_without_id(item) for item in self._items[self._sent :]]
            body["previous_response_id"] = self._previous
        if self._tools:
            body["tools"] = self._tools
        return body

    def _decision(self, request: Mapping[str, Any]) -> Json:
        call = f"{request.get('server_label')}: {request.get('name')}({request.get('arguments')})"
        return {
            "type": "mcp_approval_response",
            "approval_request_id": request.get("id"),
            "approve": self.allows(call),
        }


def _without_store(items: Sequence[Json]) -> list[Json]:
    """The items that are sent to a server without a store. Approvals are used once, so only those of the last question
    are included."""
    users = [index for index, item in enumerate(items) if item.get("role") == "user"]
    return [
        item if item.get("type") in _APPROVALS else _without_id(item)
        for index, item in enumerate(items)
        if item.get("type") not in _NOT_SENT
        if index > users[-1] or item.get("type") not in _APPROVALS
    ]


def _without_id(item: Json) -> Json:
    return {key: value for key, value in item.items() if key != "id"}


def requested_tool(text: str) -> Json:
    """The tool that `text` describes, by its type or as a JSON object. Raises `ConfigurationError`."""
    if not text.lstrip().startswith("{"):
        container = {"container": {"type": "auto"}} if text == "code_interpreter" else {}
        return {"type": text, **container}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ConfigurationError(f"--tool is not a JSON object: {error}.") from error

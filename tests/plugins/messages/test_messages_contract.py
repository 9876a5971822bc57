"""The Anthropic Messages API, held against the kit for APIs."""

from __future__ import annotations

from gateway_testing import ApiContract
from gateway_testing.api_contract import ApiRequest


class TestMessages(ApiContract):
    name = "messages"
    config = {"ping_interval": 0.5}
    endings = (b"event: message_stop", b"event: error")
    keep_alive = b"event: ping"

    def generation(self, text: str, *, model: str, stream: bool) -> ApiRequest:
        message = {"role": "user", "content": text}
        body = {"model": model, "max_tokens": 90_000, "messages": [message], "stream": stream}
        return ApiRequest(path="/v1/messages", body=body)

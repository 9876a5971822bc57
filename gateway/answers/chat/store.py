"""Storing chat completions whose requests have `store: true`."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from gateway.plugins.protocols import Sampling, StoredCompletion
from gateway.wire.chat import ChatCompletion, ChatRequest
from gateway.wire.common import JsonObject
from gateway.wire.large_bodies import threaded_if_many
from gateway.wire.stored_chat import StoredChatCompletion, stored_messages


class CompletionToStore(Struct, frozen=True, kw_only=True):
    """The request data that is stored with an answer."""

    owner: str | None
    sent: JsonObject
    """The request body."""
    metadata: dict[str, str]
    sampling: Sampling

    async def record(self, completion: ChatCompletion) -> StoredCompletion:
        """Return the record of a completion, without the fields that only streaming or only non-streaming answers
        have."""
        sent, sampling = self.sent, self.sampling
        fields: dict[str, Any] = msgspec.structs.asdict(completion)
        fields |= dict.fromkeys(
            ("prompt_logprobs", "prompt_token_ids", "kv_transfer_params"), UNSET
        )
        fields["choices"] = [
            msgspec.structs.replace(choice, token_ids=UNSET) for choice in completion.choices
        ]
        kept = StoredChatCompletion(
            **fields,
            metadata=self.metadata,
            input_user=sent.get("user"),
            seed=sampling.seed,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            response_format=sent.get("response_format"),
            tools=sent.get("tools"),
            tool_choice=sent.get("tool_choice"),
        )
        return StoredCompletion(
            completion=kept,
            messages=await threaded_if_many(
                sent["messages"], partial(stored_messages, completion.id)
            ),
            owner=self.owner,
        )


def to_store(
    request: ChatRequest, sampling: Sampling, owner: str | None
) -> CompletionToStore | None:
    """Return the data to store with an answer to `request`; None if the answer is not stored."""
    if not request.store:
        return None
    return CompletionToStore(
        owner=owner, sent=request.sent, metadata=request.metadata or {}, sampling=sampling
    )

"""What the fields of requests mean, for `/openapi.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FIELD_TEXTS: Final[Mapping[str, str]] = {
    "model": "The name of a model, an alias or a route, as GET /v1/models lists them.",
    "input": "A text, or the items of the conversation.",
    "messages": "The conversation.",
    "instructions": "A system message, for this response only.",
    "previous_response_id": "The stored response that this one follows.",
    "conversation": "The conversation whose items come first, and to which those of this response are added.",
    "prompt": "A stored prompt, with its variables.",
    "tools": "What the model may call: functions of the client, and tools that the gateway runs.",
    "tool_choice": "Whether it must call a tool, and which.",
    "parallel_tool_calls": "Whether it may call several at once.",
    "max_tool_calls": "The most calls of tools that the gateway runs.",
    "stream": "Whether to send events as the answer is made.",
    "stream_options": "What a stream has besides.",
    "background": "Whether to answer at once with a response that is queued, and to run it without a connection.",
    "store": "Whether to keep the result, to be read or followed later.",
    "max_output_tokens": "The most tokens to generate, reasoning included.",
    "max_completion_tokens": "The most tokens to generate, reasoning included.",
    "max_tokens": "The older name of max_completion_tokens.",
    "text": "The form of the final text: plain, a JSON object, or JSON that fits a schema.",
    "response_format": "The form of the final text: plain, a JSON object, or JSON that fits a schema.",
    "reasoning": "How much the model reasons, and whether a summary is shown.",
    "reasoning_effort": "How much the model reasons.",
    "temperature": "How much chance there is in the choice of tokens; 0: none.",
    "top_p": "The share of probability that the likeliest tokens, from which one is chosen, have together.",
    "stop": "Texts that end the answer.",
    "seed": "A number that makes the choice repeatable.",
    "presence_penalty": "Makes tokens that have occurred less likely.",
    "frequency_penalty": "Makes tokens less likely, the more often they have occurred.",
    "logit_bias": "By token id: what is added to its logit.",
    "n": "The number of answers.",
    "logprobs": "Whether to show the log probabilities of tokens.",
    "top_logprobs": "The number of likeliest tokens to show at each place.",
    "include": "Further parts of the response, such as reasoning.encrypted_content.",
    "truncation": "Whether to leave out the oldest items of a conversation that is too long (auto), or refuse it.",
    "metadata": "Up to 16 texts by name, kept with the result.",
    "user": "Who the client's user is. Passed to the model's server if that takes it.",
    "safety_identifier": "Who the client's user is, in place of user. Passed to the model's server if that takes it.",
    "service_tier": "How urgent the request is at OpenAI. Passed to the model's server if that takes it.",
}
"""By name, in the order in which a reference shows them; other fields follow. docs/parameters.md has all."""

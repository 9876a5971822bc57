"""What this API does with its own parameters. For those that all generating APIs share, `gateway.wire.parameter_table` says it."""

from __future__ import annotations

from typing import Final

from gateway.sdk.wire import SHARED_PARAMETERS, ApiParameters, Parameter, Refusal
from gateway_messages.errors import THREADS_UNSUPPORTED

API: Final = "messages"

# fmt: off
PARAMETERS: Final = (
    Parameter("model", honoured=API),
    Parameter("max_tokens", honoured=API),
    Parameter("messages", honoured=API),
    Parameter("system", honoured=API),
    Parameter("stream", honoured=API),
    Parameter("stop_sequences", honoured=API),
    Parameter("thinking", honoured=API),
    Parameter("tools", honoured=API),
    Parameter("tool_choice", honoured=API),
    Parameter("mcp_servers", honoured=API),
    Parameter("output_config", honoured=API),
    Parameter("output_format", honoured=API),
    Parameter("thread", refused=[
        Refusal(API, "This server does not store conversations for this API. Send all messages, without 'thread'.",
                harmless=(), code=THREADS_UNSUPPORTED),
    ]),
    Parameter("container", refused=[
        Refusal(API, "Each answer has containers of its own here, which end with it. Leave the parameter out."),
    ]),
    Parameter("stop", refused=[Refusal(API, "The stop strings of this API are 'stop_sequences'.")]),
    Parameter("compaction", refused=[
        Refusal(API, "Conversations are not summarized through this API. Use /v1/responses/compact.", harmless=()),
    ]),
    Parameter("fallbacks", refused=[
        Refusal(API, "Models to fall back to are configured on this server. Leave the parameter out, or send 'default'.",
                harmless=([], "default")),
    ]),
    Parameter("metadata", ignored=API),
    Parameter("service_tier", ignored=API),
    Parameter("context_management", ignored=API),
    Parameter("cache_control", ignored=API),
    Parameter("diagnostics", ignored=API),
    Parameter("inference_geo", ignored=API),
    Parameter("speed", ignored=API),
    Parameter("billing_policy", ignored=API),
    Parameter("fallback_credit_token", ignored=API),
)
# fmt: on
MESSAGES: Final = ApiParameters(API, PARAMETERS, base=SHARED_PARAMETERS)

"""The parameter table: what each API does with each parameter of its requests.

An API honours a parameter, within the bounds of the request's type; or refuses it with an error message, because it
cannot be honoured there and would change the answer; or ignores it and reports that to the client. Parameters without a
row are reported as unknown. If a request has several refused parameters, the error names the first one in the table.
`scripts/parameters_page.py` writes docs/parameters.md from the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.wire.api_parameters import ApiParameters, Need, Parameter, Refusal

ALL = "responses chat completions plugins"
"""The generating APIs. `plugins` stands for the APIs of plugins, as far as they share the parameters of the others."""
OPENAI = "responses chat completions"
"""OpenAI's generating APIs, for parameters that all of them have."""
_EMPTY: Final[tuple[Any, ...]] = ([], {}, "")

# fmt: off
_OF_BEAMS = "This is a parameter of beam search. Send use_beam_search: true, or leave it out."
_RAW = "Completions takes prompts as they are, without a chat template. Use /v1/chat/completions."
_SPLIT = "Prefill and decoding are not split by requests on this server. Leave the parameter out."
_PROCESSORS = "Logits processors are not taken from requests on this server. Leave the parameter out."
_IDS = "Token ids are returned with return_token_ids on this server."
_MEDIA = "Settings of the media processor are not taken from requests on this server. Leave the parameter out."
_HIDDEN = "The model's inner states are not shown on this server. Leave the parameter out."
_COUNTS = "Counts of tokens are in the usage on this server. Leave the parameter out."
_SEPARATE = "Reasoning is always apart from the text on this server, and streamed. Leave the parameter out, or read the model's own text from /v1/completions."
_GRAMMAR = "Send the grammar as structured_outputs.grammar."
_AS_TEXT = "Messages are not embedded on this server. Send their text as input."
_OVERRIDES = "Vectors of tokens are not taken from requests on this server. Leave the parameter out."
_AS_CONFIGURED = "Scores are as the model's own configuration has them. Leave it out."
_COUNTS_ITSELF = "The engine of this model counts its tokens itself, so its reasoning cannot be limited. Use the effort."


def _permission(name: str, harmless: tuple[object, ...] = ({},)) -> Need:
    """Require that the engine has the capability `name`, and that the model's configuration allows the parameter."""
    message = f"This model does not take {name} from requests (engine_parameters). Leave it out."
    return Need((name,), message, harmless=harmless, permission=True)


GENERATING: Final = (
    # The parameters of most requests. /openapi.json shows these first, in this order.
    Parameter("model", "The name of a model, an alias or a route, as GET /v1/models lists them.",
              honoured="responses chat completions", openai=OPENAI),
    Parameter("input", "A text, or the items of the conversation.", honoured="responses", openai="responses"),
    Parameter("messages", "The conversation.", honoured="chat", openai="chat"),
    Parameter("instructions", "A system message, for this response only.", honoured="responses", openai="responses"),
    Parameter("previous_response_id", "The stored response that this one follows.", honoured="responses", openai="responses"),
    Parameter("conversation", "The conversation whose items come first, and to which those of this response are added.",
              honoured="responses", openai="responses"),
    Parameter("prompt", "A stored prompt, with its variables.", honoured="responses completions", openai="responses completions"),
    Parameter("tools", "What the model may call: functions of the client, and tools that the gateway runs.",
              honoured="responses chat", openai="responses chat"),
    Parameter("tool_choice", "Whether it must call a tool, and which.", honoured="responses chat", openai="responses chat"),
    Parameter("parallel_tool_calls", "Whether it may call several at once.", honoured="responses chat", openai="responses chat"),
    Parameter("max_tool_calls", "The most calls of tools that the gateway runs.", honoured="responses", openai="responses"),
    Parameter("stream", "Whether to send events as the answer is made.", honoured="responses chat completions", openai=OPENAI),
    Parameter("stream_options", "What a stream has besides.", honoured="chat completions", ignored="responses", openai=OPENAI),
    Parameter("background", "Whether to answer at once with a response that is queued, and to run it without a connection.",
              honoured="responses", openai="responses"),
    Parameter("store", "Whether to keep the result, to be read or followed later.", honoured="responses chat", openai="responses chat"),
    Parameter("max_output_tokens", "The most tokens to generate, reasoning included.", honoured="responses", openai="responses"),
    Parameter("max_completion_tokens", "The most tokens to generate, reasoning included.", honoured="chat", openai="chat"),
    Parameter("max_tokens", "The older name of max_completion_tokens.", honoured="chat completions", openai="chat completions"),
    Parameter("text", "The form of the final text: plain, a JSON object, or JSON that fits a schema.",
              honoured="responses", openai="responses"),
    Parameter("response_format", "The form of the final text: plain, a JSON object, or JSON that fits a schema.",
              honoured="chat completions", openai="chat"),
    Parameter("reasoning", "How much the model reasons, and whether a summary is shown.", honoured="responses chat", openai="responses"),
    Parameter("reasoning_effort", "How much the model reasons.", honoured="chat", openai="chat"),
    Parameter("temperature", "How much chance there is in the choice of tokens; 0: none.", honoured=ALL, openai=OPENAI),
    Parameter("top_p", "The share of probability that the likeliest tokens, from which one is chosen, have together.",
              honoured=ALL, openai=OPENAI),
    Parameter("stop", "Texts that end the answer.", honoured=ALL, openai="chat completions"),
    Parameter("seed", "A number that makes the choice repeatable.", honoured=ALL, openai="chat completions"),
    Parameter("presence_penalty", "Makes tokens that have occurred less likely.", honoured=ALL, openai="chat completions"),
    Parameter("frequency_penalty", "Makes tokens less likely, the more often they have occurred.", honoured=ALL, openai="chat completions"),
    Parameter("logit_bias", "By token id: what is added to its logit.", honoured=ALL, openai="chat completions"),
    Parameter("n", "The number of answers.", honoured="chat completions", openai="chat completions"),
    Parameter("logprobs", "Whether to show the log probabilities of tokens.", honoured="chat completions", openai="chat completions",
              needs=Need(("logprobs",), "The engine of this model gives no log probabilities. Leave the parameter out.", harmless=(False,))),
    Parameter("top_logprobs", "The number of likeliest tokens to show at each place.", honoured="responses chat", openai="responses chat"),
    Parameter("include", "Further parts of the response, such as reasoning.encrypted_content.", honoured="responses", openai="responses"),
    Parameter("truncation", "Whether to leave out the oldest items of a conversation that is too long (auto), or refuse it.",
              honoured="responses", openai="responses"),
    Parameter("metadata", "Up to 16 texts by name, kept with the result.", honoured="responses chat", openai="responses chat"),
    Parameter("user", "Who the client's user is. Passed to the model's server if that takes it.",
              honoured="responses chat completions", openai=OPENAI),
    Parameter("safety_identifier", "Who the client's user is, in place of user. Passed to the model's server if that takes it.",
              honoured="responses chat", openai="responses chat"),
    Parameter("service_tier", "How urgent the request is at OpenAI. Passed to the model's server if that takes it.",
              honoured="responses chat", openai="responses chat"),
    # Further parameters of OpenAI's APIs.
    Parameter("functions", honoured="chat", openai="chat"),
    Parameter("function_call", honoured="chat", openai="chat"),
    Parameter("verbosity", honoured="chat", openai="chat"),
    Parameter("web_search_options", honoured="chat", openai="chat"),
    Parameter("modalities", honoured="chat", openai="chat"),
    Parameter("prediction", ignored="chat", openai="chat"),
    Parameter("generate", honoured="responses", openai="responses"),
    Parameter("prompt_cache_key", honoured="responses chat", openai="responses chat"),
    Parameter("prompt_cache_retention", honoured="responses chat", openai="responses chat"),
    Parameter("prompt_cache_options", honoured="responses", ignored="chat", openai="responses chat"),
    Parameter("background_options", ignored="responses", openai="responses"),
    Parameter("context_management", honoured="responses", openai="responses"),
    Parameter("client_metadata", ignored="responses", openai="responses"),
    Parameter("access_programs", ignored="responses", openai="responses"),
    Parameter("stream_id", ignored="responses", openai="responses"),
    # From Qwen's own API. Reported as unknown if another parameter takes precedence.
    Parameter("enable_thinking", honoured="chat"),
    # Parameters of vLLM and SGLang that change no answer.
    Parameter("session_id", ignored=ALL),
    Parameter("stream_interval", ignored=ALL),
    Parameter("mm_payload", ignored=ALL),
    Parameter("return_mm_kwargs", ignored=ALL),
    Parameter("custom_labels", ignored=ALL),
    # Sampling and scheduling, with vLLM's names.
    Parameter("top_k", honoured=ALL),
    Parameter("min_p", honoured=ALL),
    Parameter("repetition_penalty", honoured=ALL),
    Parameter("stop_token_ids", honoured=ALL),
    Parameter("include_stop_str_in_output", honoured=ALL),
    Parameter("min_tokens", honoured=ALL),
    Parameter("ignore_eos", honoured=ALL),
    Parameter("bad_words", honoured=ALL),
    Parameter("allowed_token_ids", honoured=ALL,
              needs=Need(("allowed_token_ids",), "The engine of this model takes no list of allowed tokens. Use logit_bias.", harmless=())),
    Parameter("cache_salt", honoured=ALL),
    Parameter("priority", honoured=ALL),
    Parameter("request_id", honoured=ALL),
    # Passed to the engine unchecked.
    Parameter("vllm_xargs", honoured=ALL, needs=_permission("vllm_xargs")),
    Parameter("data_parallel_rank", honoured=ALL, needs=_permission("data_parallel_rank", harmless=())),
    Parameter("kv_transfer_params", honoured=ALL, needs=_permission("kv_transfer_params")),
    # The format of the text, with vLLM's names.
    Parameter("structured_outputs", honoured=ALL),
    Parameter("guided_json", honoured=ALL),
    Parameter("guided_regex", honoured=ALL),
    Parameter("guided_choice", honoured=ALL),
    Parameter("guided_grammar", honoured=ALL),
    # Beam search.
    Parameter("use_beam_search", honoured=ALL),
    Parameter("length_penalty", refused=[Refusal(ALL, _OF_BEAMS, harmless=(1.0,), unless_beams=True)]),
    Parameter("early_stopping", refused=[Refusal(ALL, _OF_BEAMS, unless_beams=True)]),
    Parameter("best_of", openai="completions",
              refused=[
                  Refusal(ALL, "best_of is the number of beams on this server. Send use_beam_search: true, or leave it out.", unless_beams=True),
              ]),
    # Parameters of vLLM that no API honours.
    Parameter("logits_processors", refused=[Refusal(ALL, "Logits processors are not taken from requests on this server.")]),
    Parameter("ec_transfer_params", refused=[Refusal(ALL, "Transfers of the engine's cache are not taken from requests on this server.")]),
    Parameter("media_io_kwargs", refused=[Refusal(ALL, "Settings for loading media are not taken from requests on this server.")]),
    Parameter("return_token_offsets", refused=[Refusal(ALL, "Offsets of tokens are not shown on this server. Leave the parameter out.")]),
    Parameter("return_prompt_text", refused=[Refusal(ALL, "The prompt's text is not shown on this server. Leave the parameter out.")]),
    Parameter("logprob_token_ids",
              refused=[Refusal(ALL, "Log probabilities of chosen tokens are not available on this server. Use top_logprobs.")]),
    Parameter("truncation_side",
              refused=[
                  Refusal(ALL, "The side is not chosen on this server: truncate_prompt_tokens keeps the prompt's end.", harmless=("left",)),
              ]),
    Parameter("repetition_detection",
              refused=[Refusal(ALL, "Detection of repetition is not available on this server. Use repetition_penalty.")]),
    Parameter("routed_experts_prompt_start",
              refused=[Refusal(ALL, "Routed experts are not shown on this server. Leave the parameter out.")]),
    Parameter("watermarking", refused=[Refusal(ALL, "Watermarks are not available on this server. Leave the parameter out.")]),
    Parameter("enable_response_messages",
              refused=[Refusal(ALL, "The engine's own messages are not shown on this server. Read the items of the output.")]),
    Parameter("previous_input_messages",
              refused=[Refusal(ALL, "The engine's own messages are not taken on this server. Send items as input.")]),
    # The prompt, and what an answer shows in addition to the text.
    Parameter("add_special_tokens", honoured="completions",
              refused=[
                  Refusal("responses chat plugins", "The model's chat template writes special tokens here. Leave the parameter out."),
              ]),
    Parameter("skip_special_tokens", honoured="completions",
              refused=[
                  Refusal("responses chat plugins", "skip_special_tokens is only available in Completions: elsewhere the model's output format decides it.", harmless=(True,)),
              ]),
    Parameter("spaces_between_special_tokens", honoured=ALL),
    Parameter("truncate_prompt_tokens", honoured="completions",
              refused=[
                  Refusal("responses", "A conversation is not cut to tokens on this server. Use truncation: 'auto'."),
                  Refusal("chat plugins", "A conversation is not cut to tokens on this server. Send fewer messages."),
              ]),
    Parameter("echo", honoured="chat completions", openai="completions",
              refused=[Refusal("responses plugins", "The prompt is not repeated in answers of this API. Leave the parameter out.")]),
    Parameter("prompt_logprobs", honoured="chat completions",
              refused=[
                  Refusal("responses plugins", "Answers of this API have no log probabilities of the prompt. Use /v1/chat/completions.", harmless=()),
              ],
              needs=Need(("prompt_logprobs",), "The engine of this model gives no log probabilities of the prompt.", harmless=())),
    Parameter("return_token_ids", honoured="chat completions",
              refused=[Refusal("responses plugins", "Answers of this API have no token ids. Use /v1/chat/completions.")]),
    Parameter("include_reasoning", honoured="chat",
              refused=[
                  Refusal("responses plugins", "Reasoning is a part of this API's answers. Leave the parameter out.", harmless=(True,)),
                  Refusal("completions", _RAW, harmless=(True,)),
              ]),
    Parameter("return_tokens_as_token_ids", honoured="responses chat completions",
              refused=[Refusal("plugins", "Answers of this API have no log probabilities. Use /v1/chat/completions.")],
              needs=Need(("tokens",), "The engine of this model does not report token ids. Leave the parameter out.")),
    Parameter("timings_per_token", honoured="responses chat completions",
              refused=[Refusal("plugins", "Answers of this API do not say how long they took. Use /v1/chat/completions.")]),
    Parameter("documents", honoured="responses chat plugins", refused=[Refusal("completions", _RAW)]),
    Parameter("chat_template", honoured="responses chat plugins", refused=[Refusal("completions", _RAW)]),
    Parameter("chat_template_kwargs", honoured="responses chat plugins", refused=[Refusal("completions", _RAW)]),
    Parameter("add_generation_prompt", honoured="responses chat",
              refused=[
                  Refusal("completions", _RAW, harmless=(True,)),
                  Refusal("plugins", "add_generation_prompt is not a parameter of this API: its messages say what is continued.", harmless=(True,)),
              ]),
    Parameter("continue_final_message", honoured="responses chat",
              refused=[
                  Refusal("completions", _RAW),
                  Refusal("plugins", "continue_final_message is not a parameter of this API: its messages say what is continued."),
              ]),
    Parameter("thinking_token_budget", honoured="responses chat plugins",
              refused=[Refusal("completions", _RAW, harmless=())],
              needs=Need(("tokens", "thinking_budget"), _COUNTS_ITSELF, harmless=())),
    Parameter("thinking_budget_tokens", honoured="responses chat plugins",
              refused=[Refusal("completions", _RAW, harmless=(-1,))],
              needs=Need(("tokens", "thinking_budget"), _COUNTS_ITSELF, harmless=(-1,))),
    Parameter("mm_processor_kwargs", honoured="responses chat plugins",
              refused=[Refusal("completions", _RAW)],
              needs=_permission("mm_processor_kwargs")),
    # Parameters of OpenAI that are not honoured.
    Parameter("audio", openai="chat", refused=[Refusal("chat", "Audio output is not available on this server. Leave the parameter out.")]),
    Parameter("moderation", openai="responses chat",
              refused=[Refusal("responses chat", "Moderation is not available on this server. Leave the parameter out.")]),
    Parameter("image", openai="responses",
              refused=[
                  Refusal("responses", "Images of the input are not compressed on this server. Send image.context_compression 'auto' or 'disabled'.", harmless=({}, {"context_compression": "auto"}, {"context_compression": "disabled"}, {"context_compression": None})),
              ]),
    Parameter("suffix", openai="completions",
              refused=[Refusal("completions", "Text cannot be inserted before a suffix on this server. Leave suffix out.")]),
    Parameter("prompt_embeds",
              refused=[Refusal("completions", "Prompts are taken as text or token ids here, not as embeddings.", harmless=())]),
)

OTHER_SERVERS: Final = (
    # From vLLM: older requests, and batched requests.
    Parameter("guided_whitespace_pattern",
              refused=[Refusal(ALL, "White space is not set apart from the schema on this server. Leave the parameter out.")]),
    # From SGLang.
    Parameter("regex", refused=[Refusal(ALL, "Send the pattern as structured_outputs.regex.")]),
    Parameter("ebnf", refused=[Refusal(ALL, _GRAMMAR)]),
    Parameter("json_schema", refused=[Refusal(ALL, "Send the schema as structured_outputs.json.")]),
    Parameter("stop_regex", refused=[Refusal(ALL, "Patterns do not end the output on this server. Send stop strings.")]),
    Parameter("no_stop_trim", refused=[Refusal(ALL, "The stop string is kept with include_stop_str_in_output on this server.")]),
    Parameter("rid", refused=[Refusal(ALL, "The id of a request is request_id on this server.")]),
    Parameter("extra_key", refused=[Refusal(ALL, "The key of the prefix cache is cache_salt on this server.")]),
    Parameter("routed_dp_rank", refused=[Refusal(ALL, "The replica is chosen with data_parallel_rank on this server.")]),
    Parameter("disagg_prefill_dp_rank", refused=[Refusal(ALL, _SPLIT)]),
    Parameter("bootstrap_host", refused=[Refusal(ALL, _SPLIT)]),
    Parameter("bootstrap_port", refused=[Refusal(ALL, _SPLIT)]),
    Parameter("bootstrap_room", refused=[Refusal(ALL, _SPLIT)]),
    Parameter("custom_logit_processor", refused=[Refusal(ALL, _PROCESSORS)]),
    Parameter("custom_params", refused=[Refusal(ALL, _PROCESSORS)]),
    Parameter("lora_path", refused=[Refusal(ALL, "An adapter is chosen by its name as the model on this server.")]),
    Parameter("session_params",
              refused=[Refusal(ALL, "Sessions of the engine are not taken from requests on this server. Leave the parameter out.")]),
    Parameter("separate_reasoning", refused=[Refusal(ALL, _SEPARATE, harmless=(True,))]),
    Parameter("stream_reasoning", refused=[Refusal(ALL, _SEPARATE, harmless=(True,))]),
    Parameter("input_ids", refused=[Refusal(ALL, "Prompts of token ids are taken by /v1/completions only.")]),
    Parameter("images_config", refused=[Refusal(ALL, _MEDIA)]),
    Parameter("max_dynamic_patch", refused=[Refusal(ALL, _MEDIA)]),
    Parameter("min_dynamic_patch", refused=[Refusal(ALL, _MEDIA)]),
    Parameter("use_audio_in_video", refused=[Refusal(ALL, _MEDIA)]),
    Parameter("return_hidden_states", refused=[Refusal(ALL, _HIDDEN)]),
    Parameter("return_routed_experts", refused=[Refusal(ALL, _HIDDEN)]),
    Parameter("return_prompt_token_ids", refused=[Refusal(ALL, _IDS)]),
    Parameter("return_input_ids_in_sglext", refused=[Refusal(ALL, _IDS)]),
    Parameter("return_output_ids_in_sglext", refused=[Refusal(ALL, _IDS)]),
    Parameter("return_meta_info",
              refused=[Refusal(ALL, "The engine's own information on a request is not shown on this server. Leave the parameter out.")]),
    Parameter("return_cached_tokens_details", refused=[Refusal(ALL, _COUNTS)]),
    Parameter("return_spec_tokens_details", refused=[Refusal(ALL, _COUNTS)]),
    # From llama.cpp.
    Parameter("grammar", refused=[Refusal(ALL, _GRAMMAR)]),
    Parameter("n_predict",
              refused=[
                  Refusal(ALL, "The limit of output tokens has another name here: max_output_tokens in Responses, max_tokens elsewhere.", harmless=(-1,)),
              ]),
)
"""Parameters of other servers that no API has. All generating APIs refuse them with a message that says what to send
instead, or report them as unknown if the value changes nothing. If a request has several, the error names the first one
in alphabetical order."""

EMBEDDING: Final = (
    Parameter("model", honoured="embeddings"),
    Parameter("input", honoured="embeddings"),
    Parameter("encoding_format", honoured="embeddings"),
    Parameter("dimensions", honoured="embeddings"),
    Parameter("user", honoured="embeddings"),
    Parameter("add_special_tokens", honoured="embeddings"),
    Parameter("priority", honoured="embeddings"),
    Parameter("messages", refused=[Refusal("embeddings", _AS_TEXT, harmless=_EMPTY)]),
    Parameter("add_generation_prompt", refused=[Refusal("embeddings", _AS_TEXT, harmless=(False, True))]),
    Parameter("continue_final_message", refused=[Refusal("embeddings", _AS_TEXT, harmless=(False,))]),
    Parameter("chat_template", refused=[Refusal("embeddings", _AS_TEXT, harmless=_EMPTY)]),
    Parameter("chat_template_kwargs", refused=[Refusal("embeddings", _AS_TEXT, harmless=_EMPTY)]),
    Parameter("mm_processor_kwargs",
              refused=[Refusal("embeddings", "Only text is embedded on this server. Leave mm_processor_kwargs out.", harmless=_EMPTY)]),
    Parameter("media_io_kwargs",
              refused=[Refusal("embeddings", "Only text is embedded on this server. Leave media_io_kwargs out.", harmless=_EMPTY)]),
    Parameter("truncation_side", refused=[Refusal("embeddings", "Inputs are not cut on this server. Send shorter ones.", harmless=_EMPTY)]),
    Parameter("padding",
              refused=[
                  Refusal("embeddings", "Inputs are not padded on this server. Leave padding out.", harmless=(False, "do_not_pad")),
              ]),
    Parameter("lora_path", refused=[Refusal("embeddings", "Adapters do not embed on this server. Leave lora_path out.", harmless=_EMPTY)]),
    Parameter("embed_override_token_id", refused=[Refusal("embeddings", _OVERRIDES, harmless=_EMPTY)]),
    Parameter("embed_overrides", refused=[Refusal("embeddings", _OVERRIDES, harmless=_EMPTY)]),
    Parameter("truncate_prompt_tokens",
              refused=[Refusal("embeddings", "Inputs are not cut on this server. Send shorter ones.", harmless=_EMPTY)]),
    Parameter("embed_dtype",
              refused=[Refusal("embeddings", "Vectors have 32-bit floats on this server. Leave embed_dtype out.", harmless=_EMPTY)]),
    Parameter("endianness",
              refused=[
                  Refusal("embeddings", "Vectors in base64 are little-endian on this server. Leave endianness out.", harmless=_EMPTY),
              ]),
    Parameter("use_activation",
              refused=[
                  Refusal("embeddings", "Vectors are as the model's own configuration has them. Leave use_activation out.", harmless=_EMPTY),
              ]),
    Parameter("normalize",
              refused=[
                  Refusal("embeddings", "Vectors are as the model's own configuration has them. Leave normalize out.", harmless=_EMPTY),
              ]),
)

SCORING: Final = (
    Parameter("model", honoured="rerank score"),
    Parameter("user", honoured="rerank score"),
    Parameter("priority", honoured="rerank score"),
    Parameter("truncate_prompt_tokens", honoured="rerank score"),
    Parameter("max_tokens_per_doc", honoured="rerank score"),
    Parameter("query", honoured="rerank"),
    Parameter("documents", honoured="rerank score"),
    Parameter("top_n", honoured="rerank"),
    Parameter("return_documents", honoured="rerank"),
    Parameter("queries", honoured="score"),
    Parameter("items", honoured="score"),
    Parameter("text_1", honoured="score"),
    Parameter("text_2", honoured="score"),
    Parameter("data_1", honoured="score"),
    Parameter("data_2", honoured="score"),
    Parameter("instruction",
              refused=[
                  Refusal("rerank score", "Instructions for scoring are not supported on this server. Leave instruction out.", harmless=_EMPTY),
              ]),
    Parameter("chat_template_kwargs",
              refused=[
                  Refusal("rerank score", "The model's template takes no arguments here. Leave chat_template_kwargs out.", harmless=_EMPTY),
              ]),
    Parameter("instruct",
              refused=[
                  Refusal("rerank score", "Instructions for scoring are not supported on this server. Leave instruct out.", harmless=_EMPTY),
              ]),
    Parameter("max_tokens_per_query",
              refused=[Refusal("rerank score", "Queries are not truncated on this server. Send a shorter one.", harmless=(0,))]),
    Parameter("max_chunks_per_doc",
              refused=[
                  Refusal("rerank score", "Documents are not cut in pieces on this server. Leave max_chunks_per_doc out.", harmless=(0,)),
              ]),
    Parameter("rank_fields",
              refused=[
                  Refusal("rerank score", "Documents are texts on this server. Send the fields to rank by as text.", harmless=_EMPTY),
              ]),
    Parameter("mm_processor_kwargs",
              refused=[Refusal("rerank score", "Only text is scored on this server. Leave mm_processor_kwargs out.", harmless=_EMPTY)]),
    Parameter("use_activation", refused=[Refusal("rerank score", _AS_CONFIGURED, harmless=_EMPTY)]),
    Parameter("activation", refused=[Refusal("rerank score", _AS_CONFIGURED, harmless=_EMPTY)]),
    Parameter("softmax", refused=[Refusal("rerank score", _AS_CONFIGURED, harmless=_EMPTY)]),
    Parameter("apply_softmax", refused=[Refusal("rerank score", _AS_CONFIGURED, harmless=(False,))]),
    Parameter("padding",
              refused=[
                  Refusal("rerank score", "Texts are not padded on this server. Leave padding out.", harmless=(False, "do_not_pad")),
              ]),
    Parameter("truncation_side",
              refused=[
                  Refusal("rerank score", "Texts keep their beginnings when they are truncated on this server. Leave truncation_side out.", harmless=("right",)),
              ]),
    Parameter("label_token_ids",
              refused=[
                  Refusal("rerank score", "Scores are of pairs, not of tokens, on this server. Leave label_token_ids out.", harmless=_EMPTY),
              ]),
    Parameter("item_first",
              refused=[Refusal("rerank score", "The query comes first on this server. Leave item_first out.", harmless=(False,))]),
    Parameter("return_pooled_hidden_states", refused=[Refusal("rerank score", _HIDDEN, harmless=(False,))]),
    Parameter("embed_override_token_id", refused=[Refusal("rerank score", _OVERRIDES, harmless=_EMPTY)]),
    Parameter("query_embed_overrides", refused=[Refusal("rerank score", _OVERRIDES, harmless=_EMPTY)]),
    Parameter("item_embed_overrides", refused=[Refusal("rerank score", _OVERRIDES, harmless=_EMPTY)]),
)
# fmt: on

RESPONSES: Final = ApiParameters("responses", GENERATING)
CHAT: Final = ApiParameters("chat", GENERATING)
COMPLETIONS: Final = ApiParameters("completions", GENERATING)
PLUGINS: Final = ApiParameters("plugins", GENERATING)
"""What the APIs of plugins do with the parameters that all generating APIs share. The gateway refuses these for the
plugins."""
EMBEDDINGS: Final = ApiParameters("embeddings", EMBEDDING)
RERANK: Final = ApiParameters("rerank", SCORING)
SCORE: Final = ApiParameters("score", SCORING)
NEEDS: Final[Mapping[str, Need]] = {
    row.name: row.needs for row in GENERATING if row.needs is not None
}
"""What parameters require of the engine, by parameter name."""
MEANINGS: Final[Mapping[str, str]] = {row.name: row.meaning for row in GENERATING if row.meaning}
"""Descriptions of the parameters of most requests, by name, in the order in which /openapi.json shows them."""

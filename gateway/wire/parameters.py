"""The parameters of self-hosted engines that all generating endpoints share.

Every field is honoured or refused by name on each API: `gateway.wire.parameter_table` says which.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from gateway.wire.common import JsonObject, Value
from gateway.wire.sampling import MAX_INT, Natural, SamplingParameters, TokenId


class StructuredOutputs(Value, frozen=True, kw_only=True):
    """The required form of the final text; exactly one field is set. This is vLLM's parameter; its older `guided_*`
    parameters are equivalent."""

    json: str | JsonObject | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None


class SharedParameters(SamplingParameters, kw_only=True, omit_defaults=True, dict=True):
    """Base of all generating requests: sampling, the form of the final text, the prompt, and the engine.

    Names and ranges are vLLM's, `data_parallel_rank` is SGLang's.
    """

    allowed_token_ids: Annotated[list[TokenId], Meta(max_length=65_536)] | None = None

    thinking_token_budget: Natural | None = None
    thinking_budget_tokens: Annotated[int, Meta(ge=-1, le=MAX_INT)] | None = None
    """llama.cpp's name; -1 means no limit."""

    structured_outputs: StructuredOutputs | None = None
    guided_json: str | JsonObject | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    # How the prompt is built.
    documents: Annotated[list[JsonObject], Meta(max_length=1024)] | None = None
    chat_template: str | None = None
    chat_template_kwargs: JsonObject | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    request_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    vllm_xargs: JsonObject | None = None
    data_parallel_rank: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    kv_transfer_params: JsonObject | None = None
    mm_processor_kwargs: JsonObject | None = None

    echo: bool | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    timings_per_token: bool | None = None
    """llama.cpp's name: the answer has `timings`, and vLLM's `metrics`."""
    include_reasoning: bool | None = None
    add_special_tokens: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    """Spaces are never added: special tokens are hidden, or, in Completions, shown without spaces."""
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=MAX_INT)] | None = None

    use_beam_search: bool | None = None
    best_of: Natural | None = None
    """The number of beams; None: the number of choices that are returned."""
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None

    # Defined so that they are rejected if they would change the answer.
    logits_processors: Any = None
    ec_transfer_params: JsonObject | None = None
    media_io_kwargs: JsonObject | None = None
    return_token_offsets: bool | None = None
    return_prompt_text: bool | None = None
    logprob_token_ids: list[int] | None = None
    truncation_side: str | None = None
    repetition_detection: JsonObject | None = None
    routed_experts_prompt_start: int | None = None
    watermarking: bool | None = None
    enable_response_messages: bool | None = None
    previous_input_messages: Any = None

    @property
    def structures(self) -> bool:
        """Whether one of the parameters that set the form of the final text is set."""
        return (
            self.structured_outputs is not None
            or self.guided_json is not None
            or self.guided_regex is not None
            or self.guided_choice is not None
            or self.guided_grammar is not None
        )

    @property
    def thinking_budget(self) -> int | None:
        """Maximum number of tokens of reasoning in one generation; None: no limit."""
        if self.thinking_token_budget is not None:
            return self.thinking_token_budget
        other = self.thinking_budget_tokens
        return None if other is None or other < 0 else other

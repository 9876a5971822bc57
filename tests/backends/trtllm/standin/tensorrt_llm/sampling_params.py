"""Parameters, with the real ones' names, defaults and refusals."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

MAX_TOP_LOGPROBS = 100


@dataclass(slots=True, kw_only=True)
class GuidedDecodingParams:
    json: Any = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool = False
    structural_tag: str | None = None

    def validate(self) -> None:
        guides = sum(bool(getattr(self, each.name)) for each in fields(self))
        if guides > 1:
            raise ValueError(f"Only one guide can be used for a request, but got {guides}.")


@dataclass(slots=True, kw_only=True)
class SamplingParams:
    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int = 32
    bad: str | list[str] | None = None
    bad_token_ids: list[int] | None = None
    bad_word_ids: list[list[int]] = field(default_factory=list, init=False)
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    embedding_bias: Any = None
    logits_processor: Any = None
    apply_batched_logits_processor: bool = False
    n: int = 1
    best_of: int | None = None
    use_beam_search: bool = False
    logprobs_mode: str = "raw"
    top_k: int | None = None
    top_p: float | None = None
    top_p_min: float | None = None
    top_p_reset_ids: int | None = None
    top_p_decay: float | None = None
    seed: int | None = None
    temperature: float | None = None
    min_tokens: int | None = None
    beam_search_diversity_rate: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    prompt_ignore_length: int | None = None
    length_penalty: float | None = None
    early_stopping: int | None = None
    no_repeat_ngram_size: int | None = None
    min_p: float | None = None
    beam_width_array: list[int] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprobs_simple_format: bool = False
    prompt_logprobs_simple_format: bool = False
    return_context_logits: bool = False
    return_generation_logits: bool = False
    exclude_input_from_output: bool = True
    return_encoder_output: bool = False
    return_perf_metrics: bool = False
    additional_model_outputs: list[str] | None = None
    lookahead_config: Any = None
    guided_decoding: GuidedDecodingParams | None = None
    thinking_token_budget: int | None = None
    ignore_eos: bool = False
    detokenize: bool = True
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True

    def __post_init__(self) -> None:
        for name, least, most in (("top_p", 0, 1), ("min_p", 0, 1), ("temperature", 0, None)):
            value = getattr(self, name)
            if value is not None and not (least <= value and (most is None or value <= most)):
                raise ValueError(f"require {least} <= {name}, got {name}={value}")
        if self.top_k is not None and self.top_k < 0:
            raise ValueError(f"require top_k >= 0, got top_k={self.top_k}")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None and value > MAX_TOP_LOGPROBS:
                raise ValueError(f"{name} must be less than or equal to {MAX_TOP_LOGPROBS}")
        if self.guided_decoding is not None:
            self.guided_decoding.validate()

    def set_up(self, tokenizer: Any, generation_config: Any) -> None:
        """As the real one's: an end that is given means that nothing is added."""
        if self.end_id is not None:
            assert self.bad is None, "bad is not processed by tokenizer"
            return
        self.end_id = tokenizer.eos_token_id
        words = [self.bad] if isinstance(self.bad, str) else self.bad or []
        self.bad_word_ids = [tokenizer.encode(word) for word in words]
        more = generation_config.eos_token_id
        stops = self.stop_token_ids or []
        stops += [each for each in more if each != self.end_id and each not in stops]
        self.stop_token_ids = stops or None

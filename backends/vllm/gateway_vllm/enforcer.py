"""Checks the constraints of requests with vLLM's own validators. Imports vLLM."""

from __future__ import annotations

import logging
from typing import Any

from vllm.exceptions import VLLMClientError  # type: ignore[import-not-found,unused-ignore]
from vllm.sampling_params import (  # type: ignore[import-not-found,unused-ignore]
    SamplingParams,
    StructuredOutputsParams,
)

from gateway.sdk import EngineRequest, InvalidRequest, Unsupported
from gateway.sdk.constraints import Constraint, JsonObject
from gateway.sdk.engines import (
    Enforcement,
    HfTokenizer,
    Translations,
    Trials,
    locate_error,
    structured_outputs,
)
from gateway.sdk.grammars import lark_to_ebnf, schema_to_ebnf, tokenizer_info
from gateway_vllm.config import VllmConfig
from gateway_vllm.errors import refused
from gateway_vllm.model_info import ending_tokens_of

logger = logging.getLogger("gateway.vllm")

# Effectively excludes a token; also the lower bound of vLLM's own server.
_RULED_OUT = -100.0


class Enforcer:
    """Translates constraints for one engine and validates them with vLLM."""

    def __init__(
        self, llm: Any, config: VllmConfig, tokenizer: HfTokenizer, *, compile_seconds: float = 10.0
    ) -> None:
        self._llm = llm
        # vLLM does not combine biases with speculative decoding.
        self._biases = llm.vllm_config.speculative_config is None
        self._by = by = Enforcement(
            backend=config.structured_outputs,
            max_json_whitespace=config.max_json_whitespace,
            special=tokenizer.special,
            ending=frozenset(ending_tokens_of(llm)),
            lark_to_ebnf=lark_to_ebnf,
            schema_to_ebnf=schema_to_ebnf,
        )
        self._translations = Translations(by)
        self.trials = Trials(
            by,
            self._translations,
            seconds=compile_seconds,
            tokenizer_info=_tokenizer_info(llm) if by.backend == "xgrammar" else None,
        )
        # vLLM imports its validators on first use. Trigger that now, not while streams run.
        self._enforceable(JsonObject())

    def constrain(self, arguments: dict[str, Any], request: EngineRequest) -> None:
        """Add the request's constraint to `arguments` of `SamplingParams`.

        Raises `InvalidRequest`, naming its source, if it cannot be enforced.
        """
        if request.constraint is None:
            return
        try:
            translated = self._translations.of(request.constraint)
        except Unsupported as error:
            locate_error(error, request, self._enforceable)
            raise
        except (VLLMClientError, ValueError) as error:
            raise self.refusal(error, request) from error
        if translated.arguments is None:
            return
        if request.sampling.ignore_eos:
            raise InvalidRequest(
                "ignore_eos cannot be combined with an enforced output, which ends where it is complete.",
                param="ignore_eos",
            )
        arguments["structured_outputs"] = StructuredOutputsParams(**translated.arguments)
        if translated.unwanted and self._biases:
            bias = dict.fromkeys(translated.unwanted, _RULED_OUT)
            arguments["logit_bias"] = {**bias, **arguments.get("logit_bias", {})}

    def verify(self, params: Any, request: EngineRequest) -> None:
        """Run vLLM's validation, which may modify `params`. Raises `InvalidRequest`."""
        translated = None
        if request.constraint is not None:
            translated = self._translations.of(request.constraint)
            if translated.verified:
                params.structured_outputs = None
        try:
            self._verify(params)
        except (VLLMClientError, ValueError) as error:
            raise self.refusal(error, request) from error
        if translated is not None:
            translated.verified = True

    def refusal(self, error: Exception, request: EngineRequest) -> InvalidRequest:
        """A 400 for an error of vLLM's validation."""
        refusal = refused(error)
        locate_error(refusal, request, self._enforceable)
        return refusal

    def _enforceable(self, node: Constraint) -> bool:
        try:
            enforced = structured_outputs(node, self._by)
            if enforced is not None:
                self._verify(SamplingParams(structured_outputs=StructuredOutputsParams(**enforced)))
        except (InvalidRequest, VLLMClientError, ValueError):
            return False
        return True

    def _verify(self, params: Any) -> None:
        llm = self._llm
        tokenizer = llm.get_tokenizer()
        params.verify(
            llm.model_config,
            llm.vllm_config.speculative_config,
            llm.vllm_config.structured_outputs_config,
            tokenizer,
        )
        if params.bad_words:
            params.update_from_tokenizer(tokenizer)

    def forget(self) -> None:
        """Drop the references to vLLM."""
        self._llm = None


def _tokenizer_info(llm: Any) -> str | None:
    """xgrammar's description of the tokenizer; None for tokenizers that vLLM implements itself."""
    try:
        return tokenizer_info(llm.get_tokenizer(), llm.model_config.get_vocab_size())
    except (
        Exception
    ):  # xgrammar raises various exceptions; grammars are then parsed but not compiled
        logger.warning(
            "xgrammar does not know this tokenizer: grammars are not compiled beforehand"
        )
        return None

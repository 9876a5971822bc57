"""Constraints of requests, checked by vLLM's own validators. Imports vLLM."""

from __future__ import annotations

from typing import Any

from vllm.exceptions import VLLMClientError  # type: ignore[import-not-found,unused-ignore]
from vllm.sampling_params import (  # type: ignore[import-not-found,unused-ignore]
    SamplingParams,
    StructuredOutputsParams,
)

from gateway.constraints import Constraint, JsonObject
from gateway.engines.blame import blame
from gateway.engines.grammars import lark_to_ebnf, schema_to_ebnf
from gateway.engines.tokenizer import HfTokenizer
from gateway.engines.translations import Translations
from gateway.engines.xgrammar import Enforcement, structured_outputs
from gateway.errors import InvalidRequest, Unsupported
from gateway.protocols import EngineRequest
from gateway_vllm.config import Config
from gateway_vllm.errors import refused
from gateway_vllm.model_info import ending_tokens

# Enough to rule a token out, and the most that vLLM's own server lets a client ask for.
_RULED_OUT = -100.0


class Enforcer:
    """Translates constraints for one engine, and has vLLM look at them."""

    def __init__(self, llm: Any, config: Config, tokenizer: HfTokenizer) -> None:
        self._llm = llm
        # vLLM takes no bias together with speculation.
        self._biases = llm.vllm_config.speculative_config is None
        self._by = by = Enforcement(
            backend=config.structured_outputs,
            max_json_whitespace=config.max_json_whitespace,
            special=tokenizer.special,
            ending=frozenset(ending_tokens(llm)),
            lark_to_ebnf=lark_to_ebnf,
            schema_to_ebnf=schema_to_ebnf,
        )
        self._translations = Translations(by)
        # vLLM imports its validators at the first use: now, and not while streams run.
        self._enforceable(JsonObject())

    def constrain(self, arguments: dict[str, Any], request: EngineRequest) -> None:
        """Put the request's constraint into `arguments`, those of `SamplingParams`.

        Raises `InvalidRequest` for one that cannot be enforced, naming where it comes from.
        """
        if request.constraint is None:
            return
        try:
            translated = self._translations.of(request.constraint)
        except Unsupported as error:
            blame(error, request, self._enforceable)
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
        """vLLM's own look at a request's parameters, which may be changed by it. Raises `InvalidRequest`."""
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
        """The 400 for an error of vLLM's validation."""
        refusal = refused(error)
        blame(refusal, request, self._enforceable)
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
        """Let go of vLLM."""
        self._llm = None

"""Converts constraints to TensorRT-LLM's guided decoding and validates them beforehand. Imports xgrammar."""

from __future__ import annotations

import json
from typing import Any

from gateway.sdk import Capability, EngineRequest, InvalidRequest, Unsupported
from gateway.sdk.constraints import Const, Constraint, FreeText, Sequence, Triggered
from gateway.sdk.engines import (
    Enforcement,
    HfTokenizer,
    Translations,
    Trials,
    locate_error,
    structured_outputs,
)
from gateway.sdk.grammars import lark_to_ebnf, schema_to_ebnf, verify
from gateway_trtllm.config import TrtllmConfig

_SINGLE: frozenset[Capability] = frozenset({"json_schema", "json_object", "regex", "lark", "gbnf"})
# Requires recent xgrammar features: special tokens as tokens, and repetitions.
_TREE = {
    "type": "sequence",
    "elements": [
        {"type": "token", "token": 0},
        {"type": "star", "content": {"type": "optional", "content": {"type": "token", "token": 0}}},
    ],
}


class ConstraintTranslator:
    """Translates constraints for one engine.

    TensorRT-LLM compiles constraints in its workers, where an invalid one fails the request after it has started.
    Therefore they are first validated with xgrammar, which TensorRT-LLM depends on.
    """

    def __init__(
        self,
        config: TrtllmConfig,
        tokenizer: HfTokenizer,
        ends: tuple[int, ...],
        *,
        compile_seconds: float = 10.0,
    ) -> None:
        self._by = Enforcement(
            max_json_whitespace=config.max_json_whitespace,
            special=tokenizer.special,
            ending=frozenset(ends),
            takes_lark=False,
            lark_to_ebnf=lark_to_ebnf,
            schema_to_ebnf=schema_to_ebnf,
        )
        self._translations = Translations(self._by)
        self.trials = Trials(self._by, self._translations, seconds=compile_seconds)
        self.capabilities = _SINGLE
        """Capabilities of the installed xgrammar."""
        if _reads(_TREE):
            self.capabilities |= {"structure"}
            if self._enforceable(Triggered("<a>", Sequence((Const("<a>"), FreeText("</a>"))))):
                self.capabilities |= {"triggered"}

    def constrain(self, arguments: dict[str, Any], request: EngineRequest) -> dict[str, Any] | None:
        """The arguments of `GuidedDecodingParams`; None if unconstrained. Adds the related arguments of
        `SamplingParams` to `arguments`.

        Raises `InvalidRequest`, naming its source, for a constraint that cannot be enforced.
        """
        assert request.constraint is not None
        try:
            translated = self._translations.of(request.constraint)
            if translated.arguments is not None and not translated.verified:
                verify(translated.arguments)
                translated.verified = True
        except Unsupported as error:
            locate_error(error, request, self._enforceable)
            raise
        except ValueError as error:
            refusal = Unsupported(f"The output cannot be enforced: {error}")
            locate_error(refusal, request, self._enforceable)
            raise refusal from error
        if translated.arguments is None:
            return None
        if request.sampling.ignore_eos:
            raise InvalidRequest(
                "ignore_eos cannot be combined with an enforced output, which ends where it is complete.",
                param="ignore_eos",
            )
        if translated.unwanted:
            arguments["bad_token_ids"] = translated.unwanted
        return translated.arguments

    def _enforceable(self, node: Constraint) -> bool:
        try:
            enforced = structured_outputs(node, self._by)
            if enforced is not None:
                verify(enforced)
        except (InvalidRequest, ValueError):
            return False
        return True


def _reads(form: dict[str, Any]) -> bool:
    try:
        verify({"structural_tag": json.dumps({"type": "structural_tag", "format": form})})
    except ValueError:
        return False
    return True

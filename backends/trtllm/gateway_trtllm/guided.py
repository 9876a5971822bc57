"""Constraints of requests as TensorRT-LLM's guided decoding, checked beforehand. Imports xgrammar."""

from __future__ import annotations

import json
from typing import Any

from gateway.constraints import Const, Constraint, FreeText, Sequence, Triggered
from gateway.engines.blame import blame
from gateway.engines.grammars import lark_to_ebnf, schema_to_ebnf, verify
from gateway.engines.tokenizer import HfTokenizer
from gateway.engines.translations import Translations
from gateway.engines.xgrammar import Enforcement, structured_outputs
from gateway.errors import InvalidRequest, Unsupported
from gateway.protocols import Capability, EngineRequest
from gateway_trtllm.config import Config

_SINGLE: frozenset[Capability] = frozenset({"json_schema", "json_object", "regex", "lark", "gbnf"})
# Needs what xgrammar learnt last: special tokens as tokens, and repetitions.
_TREE = {
    "type": "sequence",
    "elements": [
        {"type": "token", "token": 0},
        {"type": "star", "content": {"type": "optional", "content": {"type": "token", "token": 0}}},
    ],
}


class Guide:
    """Translates constraints for one engine.

    TensorRT-LLM compiles them in its workers, where a bad one fails the request after it has begun; xgrammar, which it
    comes with, is asked here first.
    """

    def __init__(self, config: Config, tokenizer: HfTokenizer, ends: tuple[int, ...]) -> None:
        self._by = Enforcement(
            max_json_whitespace=config.max_json_whitespace,
            special=tokenizer.special,
            ending=frozenset(ends),
            takes_lark=False,
            lark_to_ebnf=lark_to_ebnf,
            schema_to_ebnf=schema_to_ebnf,
        )
        self._translations = Translations(self._by)
        self.capabilities = _SINGLE
        """What the installed xgrammar can do."""
        if _reads(_TREE):
            self.capabilities |= {"structure"}
            if self._enforceable(Triggered("<a>", Sequence((Const("<a>"), FreeText("</a>"))))):
                self.capabilities |= {"triggered"}

    def constrain(self, arguments: dict[str, Any], request: EngineRequest) -> dict[str, Any] | None:
        """The arguments of `GuidedDecodingParams`; None: anything is allowed. Puts into `arguments`, those of
        `SamplingParams`, what goes with them.

        Raises `InvalidRequest` for a constraint that cannot be enforced, naming where it comes from.
        """
        assert request.constraint is not None
        try:
            translated = self._translations.of(request.constraint)
            if translated.arguments is not None and not translated.verified:
                verify(translated.arguments)
                translated.verified = True
        except Unsupported as error:
            blame(error, request, self._enforceable)
            raise
        except ValueError as error:
            refusal = Unsupported(f"The output cannot be enforced: {error}")
            blame(refusal, request, self._enforceable)
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

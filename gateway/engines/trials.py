"""Compiling a constraint for xgrammar in a helper process, before it is passed to an engine. Only the helper imports
xgrammar.

vLLM and TensorRT-LLM compile in threads of their workers, which cannot be interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from gateway.base.constraints import Constraint
from gateway.base.errors import InvalidRequest, Unsupported
from gateway.base.temporary_folders import TemporaryFolder
from gateway.engines.compiling import Compiler, compiled, decoded, encoded
from gateway.engines.small import is_small
from gateway.engines.translations import Translation, Translations
from gateway.engines.xgrammar import Enforcement, structured_outputs, unwanted_special_tokens
from gateway.plugins.protocols import EngineRequest

_MEMORY = 24 << 30
"""Address space limit of a helper in bytes. PyTorch, which xgrammar imports, reserves much and uses little."""


class Trials:
    """Translates and compiles constraints in a helper process. Stores successful results in `translations`."""

    def __init__(
        self,
        by: Enforcement,
        translations: Translations,
        *,
        seconds: float,
        tokenizer_info: str | None = None,
    ) -> None:
        """`tokenizer_info` is xgrammar's description of the tokenizer, as JSON. If None, grammars are parsed but not
        compiled for a vocabulary."""
        self._translations = translations
        self._settings = {
            "backend": by.backend,
            "max_json_whitespace": by.max_json_whitespace,
            "special": dict(by.special),
            "ending": sorted(by.ending),
            "takes_lark": by.takes_lark,
        }
        self._folder: TemporaryFolder | None = None
        self._file: Path | None = None
        if tokenizer_info is not None:
            self._folder = TemporaryFolder("litegate-tokenizer")
            self._file = self._folder.path / "tokenizer.json"
            self._file.write_text(tokenizer_info, encoding="utf-8")
        self.compiler = Compiler(
            try_constraint,
            seconds=seconds,
            memory=_MEMORY,
            preload=("gateway.engines.grammars", "gateway.engines.trials"),
        )

    async def prepare(self, request: EngineRequest) -> None:
        """Translate and compile the constraint of a request, and store the result in `translations`. Does nothing if
        the constraint is small enough to be translated directly. Can be cancelled, unlike the compilation in an
        engine's workers.

        Raises `InvalidRequest` if the constraint cannot be enforced, or takes too long.
        """
        constraint = request.constraint
        if constraint is None or is_small(constraint):
            return
        # Done even if there is a translation: the response time must not tell an owner which
        # schemas others have sent.
        path = None if self._file is None else str(self._file)
        data = encoded(constraint)
        try:
            arguments, unwanted = await self.compiler(data, self._settings, path, key=request.owner)
        except InvalidRequest as error:
            error.at = error.at or ("schema",)
            raise
        self._translations.put(constraint, Translation(arguments, unwanted, verified=True))

    async def close(self) -> None:
        """End the helper processes."""
        await self.compiler.close()
        self.forget()

    def forget(self) -> None:
        """Remove the file with the description of the tokenizer."""
        if self._folder is not None:
            self._folder.remove()


def try_constraint(constraint: bytes, settings: Mapping[str, Any], tokenizer: str | None) -> Any:
    """The engine's arguments for an `encoded` constraint, and the tokens to exclude. Runs in a helper process."""
    return compiled(lambda: _compile_trial(decoded(constraint), settings, tokenizer))


def _compile_trial(
    constraint: Constraint, settings: Mapping[str, Any], tokenizer: str | None
) -> Any:
    from gateway.engines.grammars import compile_for, lark_to_ebnf, schema_to_ebnf, verify

    by = Enforcement(
        backend=settings["backend"],
        max_json_whitespace=settings["max_json_whitespace"],
        special=settings["special"],
        ending=frozenset(settings["ending"]),
        takes_lark=settings["takes_lark"],
        lark_to_ebnf=lark_to_ebnf,
        schema_to_ebnf=schema_to_ebnf,
    )
    try:
        arguments = structured_outputs(constraint, by)
        if arguments is not None and by.backend == "xgrammar":
            if tokenizer is None:
                verify(arguments)
            else:
                compile_for(_vocabulary(tokenizer), arguments)
    except ValueError as error:
        raise Unsupported(f"The output cannot be enforced: {error}", param="schema") from error
    return msgspec.to_builtins((arguments, unwanted_special_tokens(constraint, by)))


@lru_cache(maxsize=4)
def _vocabulary(path: str) -> Any:
    from gateway.engines.grammars import read_tokenizer_info

    return read_tokenizer_info(Path(path).read_text(encoding="utf-8"))

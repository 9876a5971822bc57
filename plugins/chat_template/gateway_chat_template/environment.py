"""Chat templates: Jinja in a sandbox, with what Hugging Face templates expect of their surroundings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Any, ClassVar

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_PRODUCT = 1_000_000
"""The longest string or list that `*` may make, in elements; and the largest exponent is 64."""

RESERVED = frozenset(
    {
        "messages",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "bos_token",
        "eos_token",
        "strftime_now",
        "raise_exception",
        "chat_template",
        "tokenize",
        "range",
        "dict",
        "lipsum",
        "cycler",
        "joiner",
        "namespace",
    }
)
"""Variables that a request's `chat_template_kwargs` may not set."""


class TemplateRefusal(Exception):
    """The template called `raise_exception`: it cannot express this conversation."""


class TemplateTooLong(Exception):
    """The rendered text went over the limit."""


class _Generation(Extension):
    """`{% generation %}` marks what a model is trained on. It changes nothing in a prompt."""

    tags: ClassVar[set[str]] = {"generation"}  # type: ignore[misc]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, where arithmetic cannot make huge values either."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for sequence, count in ((left, right), (right, left)):
                if (
                    isinstance(sequence, str | list | tuple)
                    and isinstance(count, int)
                    and len(sequence) * count > MAX_PRODUCT
                ):
                    raise SecurityError("'*' makes too long a value")
        elif isinstance(right, int | float) and abs(right) > 64:
            raise SecurityError("'**' has too large an exponent")
        return super().call_binop(context, operator, left, right)


def _raise_exception(message: object) -> None:
    raise TemplateRefusal(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: Jinja's own filter escapes HTML, which no model was trained on."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _make_environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment


_ENVIRONMENT = _make_environment()


class Template:
    """A compiled chat template. Raises `jinja2.TemplateSyntaxError` for a malformed source."""

    def __init__(self, source: str) -> None:
        self.source = source
        tree = _ENVIRONMENT.parse(source)
        self.variables = frozenset(meta.find_undeclared_variables(tree))
        """The names that it reads from outside."""
        self.asks_for_clock = any(
            isinstance(test.node, nodes.Name) and test.node.name == "strftime_now"
            for test in tree.find_all(nodes.Test)
        )
        """Whether it does without `strftime_now` where there is none."""
        self._template = _ENVIRONMENT.from_string(tree)
        # They are copied for each prompt, and from Jinja's chain of mappings that is slow.
        self._template.globals = dict(self._template.globals)

    def render(self, variables: Mapping[str, Any], *, today: str | None = None, limit: int) -> str:
        """The text. Raises `TemplateRefusal`, `TemplateTooLong` (over `limit` characters), or whatever a template's
        own mistakes raise.

        `today` is an ISO date. Without one a template that asks whether there is a clock is told that there is none;
        one that does not ask is given an empty date.
        """
        values = dict(variables)
        if today is not None:
            values["strftime_now"] = date.fromisoformat(today).strftime
        elif not self.asks_for_clock:
            values["strftime_now"] = _no_date
        parts: list[str] = []
        length = 0
        for part in self._template.generate(values):
            length += len(part)
            if length > limit:
                raise TemplateTooLong
            parts.append(part)
        return "".join(parts)


def _no_date(pattern: str) -> str:
    return ""


SYNTAX_ERRORS = (jinja2.TemplateSyntaxError, jinja2.TemplateAssertionError)

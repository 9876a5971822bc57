"""Sandboxed Jinja for chat templates, with the globals and filters that Hugging Face templates expect."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import partial, wraps
from types import MethodType
from typing import Any, ClassVar

import jinja2
from jinja2 import meta, nodes, pass_eval_context
from jinja2.compiler import CodeGenerator, Frame, optimizeconst
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway_chat_template.marked_text import (
    AssistantText,
    KeptList,
    KeptObject,
    MarkedText,
    OutsideText,
    concat,
    is_templates,
    joined,
    kept_text,
    replaced,
)

_DICT_ATTRIBUTES = frozenset(dir(dict))
_OBJECTS = frozenset[type]((dict, KeptObject))
_KEPT = frozenset[type]((KeptObject, KeptList))
_LOOP_ATTRIBUTES = frozenset(
    {"index", "index0", "first", "last", "length", "revindex", "revindex0"}
)
"""What a loop says of its place: numbers and truth values."""
MAX_PRODUCT = 1_000_000
"""Maximum length of a string or list made by `*`, in elements. The largest exponent is 64."""

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


_SHOWN_AS: Mapping[str, str] = {
    "KeptObject": "dict",
    "JsonObject": "dict",
    "KeptList": "list",
    "OutsideText": "str",
    "AssistantText": "str",
    "MixedOriginText": "str",
    "MarkedText": "str",
}
"""Types of this package, and what they are to a template."""
_OWN_TYPES = re.compile(rf"\b(?:gateway_chat_template\.)?(?:\w+\.)*({'|'.join(_SHOWN_AS)})\b")


def told(message: str) -> str:
    """What an error of a template says, in terms of what templates are given."""
    return _OWN_TYPES.sub(lambda found: _SHOWN_AS[found[1]], message)


class TemplateRefusal(Exception):
    """The template called `raise_exception`: it rejects this conversation."""


class TemplateTooLong(Exception):
    """The rendered text exceeds the limit."""


class _Generation(Extension):
    """`{% generation %}` marks training targets. It does not affect a prompt."""

    tags: ClassVar[set[str]] = {"generation"}  # type: ignore[misc]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Generator(CodeGenerator):
    """Compiles `~` so that origin marks are kept, and without calls what most templates do for each message: to read its keys, and to
    write a text."""

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 (Jinja's name)
        self.write("environment.concat([environment.finalize(each) for each in (")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write(")])")

    @optimizeconst
    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802 (Jinja's name)
        if not isinstance(node.node, nodes.Name) or node.attr in _DICT_ATTRIBUTES:
            super().visit_Getattr(node, frame)
            return
        # `(x["key"] if type(x) is dict and "key" in x else environment.getattr(x, "key"))`
        self.write("(")
        self.visit(node.node, frame)
        self.write(f"[{node.attr!r}] if type(")
        self.visit(node.node, frame)
        self.write(f") is dict and {node.attr!r} in ")
        self.visit(node.node, frame)
        self.write(" else ")
        super().visit_Getattr(node, frame)
        self.write(")")

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if frame.eval_ctx.volatile or frame.eval_ctx.autoescape:
            super()._output_child_pre(node, frame, finalize)
        else:
            self.write(f"({finalize.src}")  # a text: `str` of it is not needed


def _checked(result: str, given: Iterable[Any]) -> str:
    """The result of a function that does not support marks, marked if any of `given` is from outside."""
    if type(result) in (OutsideText, AssistantText) or is_templates(given):
        return result
    return OutsideText(result)


def _text_of(value: Any) -> str:
    """The text of a value. A list or object is from outside if any part of it is."""
    if isinstance(value, str):
        return value
    text = str(value)
    return _checked(text, [value])


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox. It also bounds the results of arithmetic, and strings keep their marks."""

    intercepted_binops = frozenset({"*", "**", "%"})
    code_generator_class = _Generator
    concat = staticmethod(concat)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As in Jinja. Keys of objects, and what a template asks of its loop, are looked up at once: an attribute that an object
        does not have costs an exception, and the sandbox's checks of one that it has take as long."""
        if type(obj) in _OBJECTS and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if type(obj) is LoopContext and attribute in _LOOP_ATTRIBUTES:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (as Jinja has it: templates name arguments)
        """Call a function from a template. Results derived from text from outside are marked as from outside."""
        if type(__obj) is Macro:
            # As Jinja does it, which first finds out that it is one.
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return __obj(__context.eval_ctx, *args, **kwargs)
        if isinstance(__obj, LoopContext):
            return super().call(__context, __obj, *args, **kwargs)
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        if type(owner) is str and args:
            # The separator and the replaced text are the template's and keep their origin.
            if __obj.__name__ == "join":
                return joined(owner, args[0])
            if __obj.__name__ == "replace" and len(args) > 1:
                return replaced(owner, *args)
        result = super().call(__context, __obj, *args, **kwargs)
        if not isinstance(result, str) or isinstance(owner, dict):
            return result
        if isinstance(owner, MarkedText):
            # Methods of `MarkedText` keep the marks; those inherited from `str` do not.
            return result if isinstance(__obj, MethodType) else OutsideText(result)
        # Jinja adds the variables of a loop or block.
        named = [kwargs[name] for name in kwargs.keys() - {"_loop_vars", "_block_vars"}]
        return _checked(result, [owner] if type(owner) is bytes else [*args, *named])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for sequence, count in ((left, right), (right, left)):
                if (
                    isinstance(sequence, str | list | tuple)
                    and isinstance(count, int)
                    and len(sequence) * count > MAX_PRODUCT
                ):
                    raise SecurityError("'*' makes too long a value")
        elif operator == "**" and isinstance(right, int | float) and abs(right) > 64:
            raise SecurityError("'**' has too large an exponent")
        result = super().call_binop(context, operator, left, right)
        return _checked(result, [left, right]) if type(result) is str else result


def _raise_exception(message: object) -> None:
    raise TemplateRefusal(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """`tojson` as in transformers. Jinja's own filter escapes HTML, which models were not trained on."""
    write = partial(
        json.dumps,
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    if type(value) not in _KEPT:
        return write()
    # As text: the form may be anything, and 1 and 1.0 are the same key.
    return kept_text(value, repr((ensure_ascii, indent, separators, sort_keys)), write)


@pass_eval_context
def _joined(
    eval_ctx: EvalContext,
    value: Iterable[Any],
    d: str = "",
    attribute: str | int | None = None,
) -> str:
    if attribute is not None:
        value = map(make_attrgetter(eval_ctx.environment, attribute), value)
    return joined(_text_of(d), map(_text_of, value))


def _replace(s: Any, old: Any, new: Any, count: int | None = None) -> str:
    return replaced(_text_of(s), _text_of(old), _text_of(new), -1 if count is None else count)


def _trim(value: Any, chars: str | None = None) -> str:
    return _text_of(value).strip(chars)


def _upper(s: Any) -> str:
    return _text_of(s).upper()


def _lower(s: Any) -> str:
    return _text_of(s).lower()


_OWN_FILTERS: Mapping[str, Callable[..., Any]] = {
    "tojson": _tojson,
    "string": _text_of,
    "join": _joined,
    "replace": _replace,
    "trim": _trim,
    "upper": _upper,
    "lower": _lower,
}
_CHOOSING = frozenset(
    {"first", "last", "min", "max", "random", "attr", "default", "d", *_OWN_FILTERS} - {"tojson"}
)
"""Filters that return one of their arguments, or keep marks themselves."""


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter so that its text is from outside if any argument is."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(result, str):
            return _checked(result, [*args[first:], *kwargs.values()])
        return result

    return run


def _make_environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, loopcontrols],
        finalize=_text_of,
    )
    environment.filters.update(_OWN_FILTERS)
    for name, function in environment.filters.items():
        if name not in _CHOOSING:
            environment.filters[name] = _guarded(function)
    environment.globals["raise_exception"] = _raise_exception
    return environment


_ENVIRONMENT = _make_environment()


class Template:
    """A compiled chat template. Raises `jinja2.TemplateSyntaxError` for a malformed source."""

    def __init__(self, source: str) -> None:
        self.source = source
        tree = _ENVIRONMENT.parse(source)
        self.variables = frozenset(meta.find_undeclared_variables(tree))
        """Names of its undeclared variables."""
        self.asks_for_clock = any(
            isinstance(test.node, nodes.Name) and test.node.name == "strftime_now"
            for test in tree.find_all(nodes.Test)
        )
        """Whether it tests if `strftime_now` exists."""
        self._template = _ENVIRONMENT.from_string(tree)
        # Globals are copied for each prompt, which is slow for Jinja's chained mappings.
        self._template.globals = dict(self._template.globals)

    def render(self, variables: Mapping[str, Any], *, today: str | None = None, limit: int) -> str:
        """Render the text, with origin marks if `variables` contain `MarkedText` strings.

        Raises `TemplateRefusal`, `TemplateTooLong` (over `limit` characters), or any exception of the template itself.
        `today` is an ISO date. If it is None, a template that tests for a clock finds none, and one that does not test
        gets an empty date.
        """
        values = dict(variables)
        if today is not None:
            values["strftime_now"] = date.fromisoformat(today).strftime
        elif not self.asks_for_clock:
            values["strftime_now"] = _no_date
        parts: list[str] = []
        length = 0
        # Not `generate`, which only passes on each part, and finds the template's line for a traceback.
        for part in self._template.root_render_func(self._template.new_context(values)):
            length += len(part)
            if length > limit:
                raise TemplateTooLong
            parts.append(part)
        return concat(parts)


def _no_date(pattern: str) -> str:
    return ""


SYNTAX_ERRORS = (jinja2.TemplateSyntaxError, jinja2.TemplateAssertionError)

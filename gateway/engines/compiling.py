"""Compiling constraints of requests in helper processes, with a deadline and a cache.

Clients control how long a schema, pattern or grammar takes to compile, and native compilers cannot be interrupted.
Therefore a helper process compiles it, and is killed at the deadline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from gateway.base.caches import ComputedCache
from gateway.base.constraints import Const, Constraint, Grammar, JsonSchema, Regex
from gateway.base.errors import InvalidRequest, ParamPath, RateLimited, Unsupported
from gateway.base.process_pool import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperDied,
    PoolBusy,
    ProcessPool,
)
from gateway.base.shares import current_owner
from gateway.engines.xgrammar import nodes

_decoder = msgspec.msgpack.Decoder(Constraint)
MAX_BYTES = 16 << 20
_ENTRY_BYTES = 200
"""Memory in bytes of a cached result, without its content."""


class CompileFailure(Struct, frozen=True, array_like=True):
    """The result of a compiling function for an argument that cannot be compiled."""

    message: str
    param: ParamPath = ()
    unsupported: bool = False
    """Whether the argument is valid, but not supported by this engine."""
    code: str | None = None
    """The code of the error, if it differs from the code of this type of error."""


class Compiled(Struct, frozen=True, array_like=True):
    """The result of a compiling function."""

    result: Any = None
    refusal: CompileFailure | None = None


def compiled(make: Callable[[], Any]) -> Any:
    """Call `make`. Returns a `Compiled` with its result or its refusal, as plain values. For functions that run in a
    helper process."""
    try:
        return msgspec.to_builtins(Compiled(make()))
    except Unsupported as error:
        refusal = CompileFailure(error.message, error.at, True, error.code)
    except InvalidRequest as error:
        refusal = CompileFailure(error.message, error.at, False, error.code)
    except RecursionError:
        refusal = CompileFailure("It is nested too deeply.", ("schema",))
    return msgspec.to_builtins(Compiled(None, refusal))


def encoded(constraint: Constraint) -> bytes:
    """Encode a constraint as an argument of a compiling function, which decodes it with `decoded`.

    Raises `Unsupported` if it is too large: a constraint can be much larger than its request, because each parameter of
    a tool may repeat all definitions.
    """
    size = 0
    for node in nodes(constraint):
        try:
            size += _encoded_size(node)
        except OverflowError:
            raise Unsupported(
                "The schema has a whole number that does not fit into 64 bits. Use a smaller one, or leave it out.",
                param="schema",
            ) from None
        if size > MAX_BYTES:
            raise Unsupported(
                f"What is to be enforced has more than {MAX_BYTES} bytes once its parts are put together. Use fewer "
                "tools and definitions, or smaller ones.",
                param="schema",
            )
    return msgspec.msgpack.encode(constraint)


def decoded(data: bytes) -> Constraint:
    """Decode the result of `encoded`."""
    constraint: Constraint = _decoder.decode(data)
    return constraint


def _encoded_size(node: Constraint) -> int:
    match node:
        case JsonSchema(schema):
            return len(msgspec.msgpack.encode(schema))
        case Const(text) | Regex(text) | Grammar(_, text):
            return len(text)
        case _:
            return 20


class Compiler:
    """Calls one function in helper processes and caches its results. Bound to one event loop."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        seconds: float,
        memory: int = 2 << 30,
        processes: int = 2,
        cache_bytes: int = 32 << 20,
        preload: Sequence[str] = (),
    ) -> None:
        """`function` is a module-level function that takes and returns plain values and returns `compiled(...)`.

        `seconds` is its deadline, and `memory` the limit of a helper process in bytes. Results are cached up to
        `cache_bytes` in total.
        """
        self._function = function
        self._seconds = seconds
        self._pool = ProcessPool(
            processes=processes, memory=memory, max_waiting=256, preload=preload
        )
        self._results = ComputedCache[bytes, Compiled](cache_bytes, _size_of)
        self.calls = 0
        """Number of compilations; cache hits are not counted."""

    async def __call__(self, *arguments: Any, key: str | None = None) -> Any:
        """The result of the function for `arguments`. `key` is the owner, by default the owner of the current request.
        Owners do not wait for each other. They share no results, because the response time would tell what another
        owner has used.

        Raises `InvalidRequest` if the compilation is refused, or exceeds the time or memory limit.
        """
        owner = current_owner() if key is None else key
        digest = hashlib.sha256(msgspec.msgpack.encode([owner, arguments])).digest()
        done = await self._results.get(digest, partial(self._compile, arguments, owner))
        if done.refusal is not None:
            raise _error(done.refusal)
        return done.result

    async def close(self) -> None:
        """Kill the helper processes. Pending calls fail."""
        self._results.cancel()
        await self._pool.close()

    async def _compile(self, arguments: Sequence[Any], key: str) -> Compiled:
        self.calls += 1
        try:
            answer = await self._pool.run(
                self._function, *arguments, seconds=self._seconds, key=key
            )
        except PoolBusy:
            raise RateLimited(
                "Too many schemas, patterns and grammars wait to be compiled. Try again later."
            ) from None
        except HelperDeadlineExceeded:
            refusal = CompileFailure(
                f"It takes longer than {self._seconds:g} seconds to compile, the limit of this server "
                "(compile_seconds). Make it simpler: fewer alternatives, repetitions and references.",
                ("schema",),
            )
        except HelperDied:  # not cached, because the process may have ended for another reason
            raise InvalidRequest(
                "It takes too much memory to compile. Make it simpler: fewer alternatives, repetitions and references.",
                param="schema",
            ) from None
        except FunctionFailed as error:
            refusal = CompileFailure(f"It cannot be compiled ({error.name}).", ("schema",))
        else:
            return msgspec.convert(answer, Compiled)
        return Compiled(refusal=refusal)


def _size_of(compiled: Compiled) -> int:
    return len(msgspec.msgpack.encode(compiled)) + _ENTRY_BYTES


def _error(refusal: CompileFailure) -> InvalidRequest:
    kind = Unsupported if refusal.unsupported else InvalidRequest
    return kind(refusal.message, param=refusal.param, code=refusal.code)

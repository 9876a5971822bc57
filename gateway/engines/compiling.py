"""Compiling constraints of requests in helper processes, with a deadline and a cache.

Clients control how long a schema, pattern or grammar takes to compile, and native compilers cannot be interrupted.
Therefore a helper process compiles it, and is killed at the deadline.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.constraints import Const, Constraint, Grammar, JsonSchema, Regex
from gateway.engines.xgrammar import nodes
from gateway.errors import InvalidRequest, ParamPath, RateLimited, Unsupported
from gateway.process_pool import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperDied,
    PoolBusy,
    ProcessPool,
)

_decoder = msgspec.msgpack.Decoder(Constraint)
MOST_BYTES = 16 << 20
_REFUSALS = 1000
"""Maximum number of cached refusals."""


class CompileFailure(Struct, frozen=True, array_like=True):
    """The result of a compiling function for an argument that cannot be compiled."""

    message: str
    param: ParamPath = ()
    unsupported: bool = False
    """Whether the argument is valid, but not supported by this engine."""
    code: str | None = None
    """The error's code, if it is not that of its kind."""


class Compiled(Struct, frozen=True, array_like=True):
    """The result of a compiling function."""

    result: Any = None
    refusal: CompileFailure | None = None


def compiled(make: Callable[[], Any]) -> Any:
    """The result of `make`, or its refusal, as plain values. For functions that run in a helper process."""
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
        if size > MOST_BYTES:
            raise Unsupported(
                f"What is to be enforced has more than {MOST_BYTES} bytes once its parts are put together. Use fewer "
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


class _Running:
    """A running compilation, and the number of its waiters."""

    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.waiting = 0


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
        self._cache_bytes = cache_bytes
        self._cache: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self._cached = 0
        self._refused: OrderedDict[bytes, CompileFailure] = OrderedDict()
        self._running: dict[bytes, _Running] = {}
        self.calls = 0
        """Number of compilations; cache hits are not counted."""

    @property
    def process_ids(self) -> list[int]:
        """Of the helper processes."""
        return self._pool.process_ids

    async def __call__(self, *arguments: Any, key: str = "") -> Any:
        """The result for `arguments`. Calls with the same `key` (an owner) share a queue; other keys are not delayed by
        it.

        Raises `InvalidRequest` if the compilation is refused, or exceeds the time or memory limit.
        """
        digest = hashlib.sha256(msgspec.msgpack.encode(arguments)).digest()
        if digest in self._cache:
            self._cache.move_to_end(digest)
            return self._cache[digest][0]
        if digest in self._refused:
            raise _error(self._refused[digest])
        running = self._running.get(digest)
        if running is None:
            task = asyncio.create_task(self._compile(digest, arguments, key))
            running = self._running[digest] = _Running(task)
            task.add_done_callback(lambda done: self._ended(digest, done))
        # Several callers may wait for one compilation: it is stopped when the last one leaves.
        running.waiting += 1
        try:
            return await asyncio.shield(running.task)
        finally:
            running.waiting -= 1
            if running.waiting == 0 and not running.task.done():
                self._running.pop(digest, None)
                running.task.cancel()

    async def close(self) -> None:
        """Kill the helper processes. Pending calls fail."""
        for running in self._running.values():
            running.task.cancel()
        await self._pool.close()

    async def _compile(self, digest: bytes, arguments: Sequence[Any], key: str) -> Any:
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
                f"It takes longer than {self._seconds:g} seconds to compile, the bound of this server "
                "(compile_seconds). Make it simpler: fewer alternatives, repetitions and references.",
                ("schema",),
            )
        except HelperDied:  # not cached: the process may have ended for another reason
            raise InvalidRequest(
                "It takes too much memory to compile. Make it simpler: fewer alternatives, repetitions and references.",
                param="schema",
            ) from None
        except FunctionFailed as error:
            refusal = CompileFailure(f"It cannot be compiled ({error.name}).", ("schema",))
        else:
            done = msgspec.convert(answer, Compiled)
            if done.refusal is None:
                self._cache_result(digest, done.result)
                return done.result
            refusal = done.refusal
        self._refused[digest] = refusal
        if len(self._refused) > _REFUSALS:
            self._refused.popitem(last=False)
        raise _error(refusal)

    def _cache_result(self, digest: bytes, result: Any) -> None:
        size = len(msgspec.msgpack.encode(result)) + 200
        if size > self._cache_bytes:
            return
        self._cache[digest] = (result, size)
        self._cached += size
        while self._cached > self._cache_bytes:
            _, (_, old) = self._cache.popitem(last=False)
            self._cached -= old

    def _ended(self, digest: bytes, task: asyncio.Task[Any]) -> None:
        running = self._running.get(digest)
        if running is not None and running.task is task:
            del self._running[digest]
        if not task.cancelled():
            task.exception()  # mark as retrieved: it was raised to the remaining waiters


def _error(refusal: CompileFailure) -> InvalidRequest:
    kind = Unsupported if refusal.unsupported else InvalidRequest
    return kind(refusal.message, param=refusal.param, code=refusal.code)

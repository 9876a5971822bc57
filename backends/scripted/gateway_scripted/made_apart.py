"""Texts for constraints with patterns, made in a process that can be ended: whether a text matches a pattern may take any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from gateway.sdk import EngineUnavailable, Unsupported
from gateway.sdk.constraints import Constraint
from gateway.sdk.processes import FunctionFailed, HelperFailure, PoolBusy, ProcessPool
from gateway_scripted import instances
from gateway_scripted.instances import NoInstanceError

_SECONDS: Final = 2.0
_decode = msgspec.msgpack.Decoder(Constraint).decode


async def made(
    write: Callable[[Any], str], constraint: Constraint, pool: ProcessPool | None
) -> str:
    """`write(constraint)`, in a process of `pool` if there is one and a pattern is in the constraint. `write` is a function of
    `instances`. Raises its errors, `NoInstanceError` for what takes too long, and `EngineUnavailable`."""
    encoded = msgspec.msgpack.encode(constraint)
    if pool is None or b"pattern" not in encoded:
        return write(constraint)
    try:
        return await pool.run(written, write.__name__, encoded, seconds=_SECONDS)
    except FunctionFailed as failure:
        if failure.name == "Unsupported":
            raise Unsupported(failure.message) from None
        raise NoInstanceError(failure.message) from None
    except PoolBusy as problem:
        raise EngineUnavailable(str(problem)) from None
    except HelperFailure:
        raise NoInstanceError("no text is found for its pattern in time") from None


def written(name: str, encoded: bytes) -> str:
    """The text that the function `name` of `instances` writes for an encoded constraint. Runs in a helper process."""
    text: str = getattr(instances, name)(_decode(encoded))
    return text

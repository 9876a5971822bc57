"""Other versions of uvicorn, made from the source of the installed one."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from uvicorn.protocols.http import httptools_impl

Cycle = httptools_impl.RequestResponseCycle


def changed_cycle(old: str, new: str, *, base: str = "(Cycle)") -> Any:
    """`RequestResponseCycle` with `old` written as `new`; a subclass, so that only the difference is found."""
    source = inspect.getsource(Cycle)
    assert old in source
    source = source.replace(old, new).replace(":", f"{base}:", 1)
    names = {**vars(httptools_impl), "Cycle": Cycle}
    exec("from __future__ import annotations\n" + source, names)
    return names["RequestResponseCycle"]


OTHER_CYCLES = {
    "an attribute has another name": ("self.chunked_encoding", "self.is_chunked"),
    "the connection has another name": ("self.transport", "self.connection"),
    "chunks are written in other words": ('b"%x\\r\\n"', 'b"%X\\r\\n"'),
    "a body is more than one write": ("self.transport.write(b\"\".join(content))", "[self.transport.write(each) for each in content]"),
}  # fmt: skip


@pytest.fixture(params=(*OTHER_CYCLES, "another class"))
def other_uvicorn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have uvicorn answer with a class that the fast path does not know; what is different about it."""
    name: str = request.param
    cycle = changed_cycle(
        *OTHER_CYCLES.get(name, ("", "")), base="(Cycle)" if name in OTHER_CYCLES else ""
    )
    monkeypatch.setattr(httptools_impl, "RequestResponseCycle", cycle)
    return name

"""Parameter names of Embeddings."""

from __future__ import annotations

from gateway.errors import ParamPath


def request_path(path: ParamPath, *, several: bool) -> ParamPath:
    """The place in the request of `path`, which names an input by its index. `several`: the request has a list of
    inputs, not a single one."""
    return ("input",) if path[:1] == ("input",) and not several else path

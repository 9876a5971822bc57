"""Rejects the parameters that an API does not honour, as `gateway.wire.parameter_table` says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any, Final

from gateway.errors import Unsupported
from gateway.wire.api_parameters import ApiParameters, Refusal
from gateway.wire.parameter_table import (
    CHAT,
    COMPLETIONS,
    NEEDS,
    OTHER_SERVERS,
    PLUGINS,
    RESPONSES,
)
from gateway.wire.parameters import SharedParameters
from gateway.wire.sampling import SamplingParameters

_EXTENDED: Final = frozenset(SharedParameters.__struct_fields__) - frozenset(
    SamplingParameters.__struct_fields__
)
"""The parameters of self-hosted engines, but for those of sampling."""
_FORMATS: Final[Mapping[ApiParameters, frozenset[str]]] = {
    CHAT: frozenset({"response_format"}),
    COMPLETIONS: frozenset({"response_format"}),
}
"""For each API, the parameter that sets the format of the text and may be a structural tag."""
_VALUES: Final[Mapping[ApiParameters, Callable[[SharedParameters], tuple[object, ...]]]] = {
    api: attrgetter(*sorted(_EXTENDED | api.refusals.keys() | _FORMATS.get(api, frozenset())))
    for api in (RESPONSES, CHAT, COMPLETIONS, PLUGINS)
}
_OTHERS: Final[Mapping[str, Refusal]] = {row.name: row.refused[0] for row in OTHER_SERVERS}
_SAME_AS: Final[Mapping[str, tuple[str, ...]]] = {
    "n_predict": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
}
"""Names under which some clients (SillyTavern) send the same value too. It is then accepted."""


def refuse(request: SharedParameters, api: ApiParameters) -> bool:
    """Raise `Unsupported` for parameters that this API does not honour.

    Returns whether the request is extended: whether it has any parameter of self-hosted engines besides those of sampling, or
    a format. What is about these parameters alone is skipped for other requests, which most are.
    """
    values = _VALUES[api](request)
    if values.count(None) == len(values):
        return False
    for name, refusal in api.refusals.items():
        value = getattr(request, name)
        if value is None or value in refusal.harmless:
            continue
        if refusal.unless_beams and request.use_beam_search:
            continue
        if name == "best_of" and value <= (getattr(request, "n", None) or 1):
            continue
        raise refusal.error(name)
    return True


def check_needs(
    request: SharedParameters,
    names: Collection[str],
    capabilities: frozenset[Any],
    permitted: Collection[str] = (),
) -> None:
    """Raise `Unsupported` for the first of the parameters `names` that needs what is neither among the engine's `capabilities` nor,
    where it needs a permission, `permitted`."""
    for name in names:
        need = NEEDS[name]
        value = getattr(request, name, None)
        if value is None or value in need.harmless:
            continue
        if capabilities.isdisjoint(need.capabilities) or (
            need.permission and name not in permitted
        ):
            raise Unsupported(need.message, param=name)


def unknown_names(raw: Mapping[str, Any], known: Collection[str]) -> list[str]:
    """The names in the body `raw` that are not in `known`, sorted. Raises `Unsupported` for parameters of other servers that would
    change the answer if ignored."""
    names = sorted(raw.keys() - known)
    for name in names:
        refusal = _OTHERS.get(name)
        if refusal is None or not refusal.refuses(raw[name]):
            continue
        if any(other in known and raw.get(other) == raw[name] for other in _SAME_AS.get(name, ())):
            continue
        raise refusal.error(name)
    return names

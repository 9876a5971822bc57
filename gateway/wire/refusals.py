"""Rejects the parameters that an API does not honour, according to `gateway.wire.parameter_table`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any, Final

from gateway.base.errors import Unsupported
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
"""The parameters of self-hosted engines, except for the sampling parameters."""
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
"""Parameters that some clients (SillyTavern) send in addition to one of the named ones, with the same value. They are
then accepted."""


def refuse(request: SharedParameters, api: ApiParameters) -> bool:
    """Raise `Unsupported` for a parameter that this API does not honour.

    Returns whether the request is extended: it has a parameter of self-hosted engines other than a sampling parameter,
    or a text format. Most requests are not, and skip the checks and settings that concern only such parameters.
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
    """Raise `Unsupported` for the first of the parameters `names` whose `Need` is not met. `capabilities` are the
    engine's; `permitted` are the parameters that the model's configuration allows."""
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
    """Return the names in the body `raw` that are not in `known`, sorted. Raises `Unsupported` for a parameter of
    another server that would change the answer if it were ignored."""
    names = sorted(raw.keys() - known)
    for name in names:
        refusal = _OTHERS.get(name)
        if refusal is None or not refusal.refuses(raw[name]):
            continue
        if any(other in known and raw.get(other) == raw[name] for other in _SAME_AS.get(name, ())):
            continue
        raise refusal.error(name)
    return names

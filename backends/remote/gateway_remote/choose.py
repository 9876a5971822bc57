"""Chooses the replica of a request. Pure: takes loads and matches, returns an index."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal, TypeAlias

Policy: TypeAlias = Literal["affinity", "power_of_two", "least_loaded", "random"]


def load_cap(loads: Sequence[int], *, bound: float, slack: int) -> int:
    """The load, including the new request, up to which a replica is chosen for its cache.

    It is `bound` times the mean load, as in consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam),
    and at least `slack`, so that a few requests need not spread out.
    """
    return max(slack, math.ceil(bound * (sum(loads) + 1) / len(loads)))


def choose(
    loads: Sequence[int],
    matches: Sequence[int],
    *,
    policy: Policy,
    worth: int,
    bound: float,
    slack: int,
    rng: random.Random,
) -> int:
    """The index of the chosen replica. `loads` must not be empty.

    `loads` are numbers of running requests. `matches` are numbers of prefix blocks that each replica has cached; only
    `affinity` uses them: the longest match of at least `worth` blocks wins while its replica is below `load_cap`.
    Otherwise the less loaded of two random replicas is chosen.
    """
    places = range(len(loads))
    if len(loads) == 1:
        return 0
    if policy == "random":
        return rng.choice(places)
    if policy == "least_loaded":
        least = min(loads)
        return rng.choice([place for place in places if loads[place] == least])
    if policy == "affinity" and any(matches):
        cap = load_cap(loads, bound=bound, slack=slack)
        near = [place for place in places if matches[place] >= worth and loads[place] < cap]
        if near:
            return max(near, key=lambda place: (matches[place], -loads[place]))
    first, second = rng.sample(places, 2)
    return second if loads[second] < loads[first] else first

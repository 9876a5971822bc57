"""Which of several replicas a request goes to. Pure: loads and matches in, an index out."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal, TypeAlias

Policy: TypeAlias = Literal["affinity", "power_of_two", "least_loaded", "random"]


def load_cap(loads: Sequence[int], *, bound: float, slack: int) -> int:
    """How many requests a replica may run, the new one included, while it is chosen for its cache alone.

    `bound` times the mean, as in consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam); never less
    than `slack`, so that a few requests need not spread out.
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
    """The index of the replica to use; there must be one at least.

    `loads` are running requests, `matches` shared blocks with what each replica has read (looked at by `affinity`
    alone: the longest of at least `worth` wins while its replica is under `load_cap`; without one, the lesser load of two
    random ones).
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

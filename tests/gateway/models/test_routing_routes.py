"""Routes: the order in which the models of a route are tried."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import RouteConfig
from gateway.http.answers import answered_by
from gateway.models.routing import Routes, Routing
from gateway.plugins.protocols import ModelLoad, RoutingRequest

pytestmark = pytest.mark.anyio

WEIGHTS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e6]), min_size=1, max_size=6).filter(any)


def asked(*names: str) -> RoutingRequest:
    loads = [
        ModelLoad(name=name, running=0, waiting=0, max_running=1, max_waiting=1) for name in names
    ]
    return RoutingRequest(api="chat", model="r", owner=None, size=1, models=loads)


@given(weights=WEIGHTS, seed=st.integers())
async def test_each_model_is_tried_once_and_those_without_weight_last(
    weights: list[float], seed: int
) -> None:
    names = [f"m{index}" for index in range(len(weights))]
    route = RouteConfig(models=names, weights=weights)
    order = await Routes({"r": route}, source=random.Random(seed)).candidates(asked(*names))
    assert order is not None
    assert sorted(order) == names
    zero = {name for name, weight in zip(names, weights, strict=True) if not weight}
    assert set(order[len(names) - len(zero) :]) == zero


async def test_weights_are_shares_of_the_requests() -> None:
    route = RouteConfig(models=["a", "b"], weights=[3, 1])
    routes = Routes({"r": route}, source=random.Random(1))
    first = Counter([(await routes.candidates(asked("a", "b")) or "?")[0] for _ in range(4000)])
    assert 2800 < first["a"] < 3200


async def test_without_fallback_only_the_first_open_model_is_tried() -> None:
    routes = Routes({"r": RouteConfig(models=["a", "b"], fallback=False)})
    assert await routes.candidates(asked("a", "b")) == ["a"]
    assert await routes.candidates(asked("b")) == ["b"]


async def test_a_name_without_a_route_is_left_alone() -> None:
    routing = Routing(Routes({"r": RouteConfig(models=["a"])}))
    assert routing.concerns("r")
    assert not routing.concerns("a")
    assert not routing.concerns(None)


@given(name=st.text(min_size=1))
def test_a_header_with_the_name_of_a_model_is_one_line_of_ascii(name: str) -> None:
    header, value = answered_by(name.encode("utf-8", "replace").decode())
    assert header == b"x-litegate-model"
    assert value.isascii()
    assert not {*b"\r\n\0"} & {*value}


def test_plain_names_are_shown_as_they_are() -> None:
    assert answered_by("Qwen/Qwen3-8B:Q4_K_M")[1] == b"Qwen/Qwen3-8B:Q4_K_M"

"""The caller of what the gateway does for a request by itself."""

from __future__ import annotations

from gateway.observe.request_context import RequestContext, as_the_gateway, current_context, within
from gateway.plugins.protocols import Principal, PrincipalLimits

ADA = Principal(name="ada", models=["m"], tools=[], limits=PrincipalLimits(requests_per_minute=1))


def test_what_the_gateway_does_for_a_line_of_a_batch_does_not_wait_behind_clients() -> None:
    """The line may hold a place meanwhile, with and without a key."""
    for principal in (None, ADA):
        with within(RequestContext("req_1", principal=principal, priority=100)), as_the_gateway():
            caller = current_context()
            assert caller is not None
            assert caller.priority == 0
            assert caller.owner == (None if principal is None else "ada")


def test_it_is_neither_restricted_nor_limited() -> None:
    with within(RequestContext("req_1", principal=ADA)), as_the_gateway():
        caller = current_context()
        assert caller is not None
        assert caller.principal == Principal(name="ada")


def test_a_request_without_a_key_keeps_its_caller() -> None:
    with as_the_gateway():
        assert current_context() is None
    anonymous = RequestContext("req_1")
    with within(anonymous):
        with as_the_gateway():
            assert current_context() is anonymous
        assert current_context() is anonymous

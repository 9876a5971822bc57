"""Requests that are sent later in the name of a key: its rights of then, not those of another key of the same name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.access.access import Authenticator, hash_key
from gateway.base.errors import PermissionDenied
from gateway.config import ApiKey
from gateway.plugins.protocols import Principal


def key(secret: str, **fields: object) -> ApiKey:
    return ApiKey(name="ada", sha256=hash_key(secret), **fields)  # type: ignore[arg-type]


def sent_by(authenticator: Authenticator, secret: str) -> Principal | None:
    return authenticator.principal("/", [(b"authorization", f"Bearer {secret}".encode())])


def test_a_key_is_not_taken_for_another_of_its_name() -> None:
    authenticator = Authenticator([key("all"), key("some", models=["small"])])
    some = sent_by(authenticator, "some")
    assert authenticator.delegate(some) == some
    assert some is not None
    assert some.models == ["small"]
    authenticator.use_keys("the configuration", [key("all")])
    with pytest.raises(PermissionDenied) as refused:
        authenticator.delegate(some)
    assert refused.value.code == "api_key_revoked"


def test_an_expired_key_sends_nothing() -> None:
    now = 0.0
    expires = datetime.fromtimestamp(10, UTC)
    authenticator = Authenticator([key("k", expires=expires)], clock=lambda: now)
    principal = sent_by(authenticator, "k")
    now = 11.0
    with pytest.raises(PermissionDenied):
        authenticator.delegate(principal)
    with pytest.raises(PermissionDenied):
        authenticator.owner("ada")


def test_limits_that_were_changed_since_hold() -> None:
    authenticator = Authenticator([key("k")])
    principal = sent_by(authenticator, "k")
    authenticator.use_keys("the configuration", [key("k", models=["small"])])
    now = authenticator.delegate(principal)
    assert now is not None
    assert now.models == ["small"]


def test_who_was_anonymous_needs_a_key_once_there_are_keys() -> None:
    assert Authenticator([]).delegate(None) is None
    with pytest.raises(PermissionDenied):
        Authenticator([key("k")]).delegate(None)


def test_a_name_whose_keys_differ_says_not_which_it_was() -> None:
    same = Authenticator([key("one"), key("two")]).owner("ada")
    assert same is not None
    assert same.name == "ada"
    with pytest.raises(PermissionDenied) as refused:
        Authenticator([key("all"), key("some", models=["small"])]).owner("ada")
    assert refused.value.code == "api_key_ambiguous"

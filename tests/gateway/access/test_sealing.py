from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.sealing import Sealer, open_items
from gateway.base.errors import ConfigurationError, InvalidRequest
from gateway.storage.shared_values import ProcessValues
from gateway.wire.items import Reasoning

KEYS = [Fernet.generate_key().decode() for _ in range(2)]


@given(st.text(), st.one_of(st.none(), st.text()))
def test_what_is_sealed_can_be_opened_by_any_replica(text: str, owner: str | None) -> None:
    text = text.encode("utf-8", "replace").decode()
    owner = owner and owner.encode("utf-8", "replace").decode()
    sealed = Sealer(KEYS[:1]).seal(text, owner, model="m")
    opened = Sealer(KEYS[::-1]).open(sealed, owner, "input", model="m")
    assert opened == text


@pytest.mark.parametrize(
    "damage",
    [lambda s: s[:-5] + "AAAA=", lambda s: "", lambda s: s[:40] + s[41:], lambda s: "AAAA" + s[4:]],
)
def test_tampering_is_told(damage: object) -> None:
    sealer = Sealer(KEYS)
    with pytest.raises(InvalidRequest) as raised:
        sealed = damage(sealer.seal("x", None, model="m"))  # type: ignore[operator]
        sealer.open(sealed, None, ("input", 3, "encrypted_content"), model="m")
    assert raised.value.param == "input[3].encrypted_content"
    assert raised.value.code == "invalid_encrypted_content"


def test_another_owner_cannot_have_it_opened() -> None:
    sealer = Sealer(KEYS)
    with pytest.raises(InvalidRequest):
        sealer.open(sealer.seal("x", "alice", model="m"), "bob", "input", model="m")


def test_a_retired_key_opens_nothing() -> None:
    with pytest.raises(InvalidRequest):
        Sealer(KEYS[1:]).open(Sealer(KEYS[:1]).seal("x", None, model="m"), None, "input", model="m")


def test_items_get_their_text_back_and_keep_what_they_have() -> None:
    sealer = Sealer(KEYS)
    bare = Reasoning(id="rs_1", encrypted_content=sealer.seal("hm", None, model="m"))
    (opened,) = open_items([bare], sealer, None, model="m")
    assert isinstance(opened, Reasoning)
    assert opened.content
    assert opened.content[0].text == "hm"


def test_a_key_that_is_none_is_a_configuration_mistake() -> None:
    with pytest.raises(ConfigurationError):
        Sealer(["short"])


@pytest.mark.anyio
async def test_without_keys_all_gateways_of_a_store_and_their_successors_have_its_key() -> None:
    values = ProcessValues()
    one, other = [await Sealer.create([], values, lifetime=0) for _ in range(2)]
    sealed = one.seal("x", "ada", model="m")
    assert other.open(sealed, "ada", "input", model="m") == "x"
    for alone in (await Sealer.create([], None, lifetime=0), await Sealer.create(KEYS, values, lifetime=0)):  # fmt: skip
        with pytest.raises(InvalidRequest):
            alone.open(sealed, "ada", "input", model="m")
    configured = await Sealer.create(KEYS[:1], values, lifetime=0)
    assert Sealer(KEYS).open(configured.seal("x", None, model="m"), None, "input", model="m") == "x"

"""The hub's token as files and editors leave it."""

from __future__ import annotations

import pytest

from gateway.base.errors import ConfigurationError
from gateway.models.hub.client import Hub

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")


@pytest.mark.parametrize("token", ["hf_x\n", "\ufeffhf_x", "hf_x\u00a0", " hf_x\r\n"])
def test_a_token_is_sent_without_what_surrounds_it(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    headers = {name.lower(): value for name, value in Hub.from_environment().headers.items()}
    assert headers["authorization"] == "Bearer hf_x"


def test_a_token_that_cannot_be_sent_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_é")
    with pytest.raises(ConfigurationError, match=r"HF_TOKEN.*U\+00E9") as caught:
        Hub.from_environment()
    assert "hf_" not in str(caught.value)

"""Parameters that do not fit together are refused by the name of the one to leave out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from string import ascii_letters, digits
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from gateway.answers.parameter_checks import (
    MAX_CHOICES,
    check_choices,
    check_engine_parameters,
    check_response_request,
)
from gateway.base.errors import GatewayError, InvalidRequest, Unsupported
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.loading import load_plugins
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.wire.completions import CompletionRequest
from gateway.wire.request import convert_response_request

PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]
MODEL = ModelConfig(engine="scripted", renderer="chat_template", parser="plain")


@pytest.fixture(scope="module")
def without_store() -> Iterator[Services]:
    config = Config(server=ServerConfig(store="none"), models={"m": MODEL})
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        plugins = load_plugins(extra=PLUGINS, installed=False)
        try:
            yield runner.run(open_services(config, plugins, stack))
        finally:
            runner.run(stack.aclose())


def refusal(check: Callable[..., object], *arguments: Any, **options: Any) -> GatewayError | None:
    try:
        check(*arguments, **options)
    except GatewayError as error:
        return error
    return None


@given(prompts=st.integers(1, 1100), each=st.integers(1, 1100))
@example(32, 32)
@example(32, 33)
@example(1, MAX_CHOICES)
@example(MAX_CHOICES + 1, 1)
def test_prompts_times_choices_are_limited(prompts: int, each: int) -> None:
    request = CompletionRequest(model="m", prompts=["x"] * prompts)
    error = refusal(check_choices, request, each, "n")
    assert (error is not None) is (prompts * each > MAX_CHOICES)
    assert error is None or (type(error), error.param) == (InvalidRequest, "n")


@given(request_id=st.text(min_size=1) | st.text("aZ09._:-", min_size=1, max_size=300))
@example("a" * 256)
@example("a" * 257)
@example("a\n")
def test_a_request_id_has_characters_that_every_engine_and_log_can_have(
    without_store: Services, request_id: str
) -> None:
    request = convert_response_request({"input": "x"})
    request.request_id = request_id
    error = refusal(check_engine_parameters, request, without_store.models["m"])
    legal = len(request_id) <= 256 and request_id.isascii()
    assert (error is None) is (legal and set(request_id) <= {*ascii_letters, *digits, *"._:-"})
    assert error is None or (type(error), error.param) == (InvalidRequest, "request_id")


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("background", True),
        ("conversation", "conv_1"),
        ("previous_response_id", "resp_1"),
        ("store", True),
    ],
)
def test_what_needs_a_store_is_refused_without_one(
    without_store: Services, name: str, value: Any, goes_on: bool
) -> None:
    """Except going on from a response whose items are known all the same."""
    request = convert_response_request({"input": "x", name: value})
    error = refusal(check_response_request, request, without_store, goes_on=goes_on)
    assert (error is None) is (goes_on and name == "previous_response_id")
    assert error is None or (type(error), error.param) == (Unsupported, name)

"""Which requests have parameters that only self-hosted engines know."""

from __future__ import annotations

from contextlib import suppress

import pytest

from gateway.errors import Unsupported
from gateway.loop.unsupported import Api, refuse
from gateway.wire.chat import ChatRequest
from gateway.wire.completions import CompletionRequest
from gateway.wire.parameters import SharedParameters
from gateway.wire.request import ResponseRequest
from gateway.wire.sampling import SamplingParameters

APIS: dict[Api, SharedParameters] = {
    "responses": ResponseRequest(model="m", temperature=1.0, stop="x", seed=3),
    "chat": ChatRequest(model="m", messages=[], temperature=1.0),
    "completions": CompletionRequest(model="m", top_k=3),
    "further": SharedParameters(cache_salt="s"),
}


@pytest.mark.parametrize("api", APIS)
def test_a_request_with_any_parameter_of_engines_is_extended(api: Api) -> None:
    request = APIS[api]
    assert not refuse(request, api)
    for name in {*SharedParameters.__struct_fields__} - {*SamplingParameters.__struct_fields__}:
        setattr(request, name, 2)
        with suppress(Unsupported):
            assert refuse(request, api), name
        setattr(request, name, None)

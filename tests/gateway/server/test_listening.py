"""Where a server listens, and what it says if it cannot."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.config import Config, ServerConfig
from gateway.errors import ConfigurationError
from gateway.server.listening import bind, listen


def test_of_two_servers_that_start_at_once_the_later_one_is_told_that_the_port_is_taken() -> None:
    config = Config(server=ServerConfig(port=0), models={})
    with bind(config) as first:
        port = first.getsockname()[1]
        with bind(replace(config, server=ServerConfig(port=port))) as second:
            listen(first, 16)
            with pytest.raises(ConfigurationError, match=rf"port {port}.*--port"):
                listen(second, 16)


def test_a_port_that_is_taken_is_said_before_models_are_opened() -> None:
    with bind(Config(server=ServerConfig(port=0), models={})) as first:
        listen(first, 16)
        port = first.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"port {port}"):
            bind(Config(server=ServerConfig(port=port), models={}))

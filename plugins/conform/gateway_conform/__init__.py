"""The command `gateway conform`, which checks whether a server, of any make, conforms to OpenAI's API."""

from __future__ import annotations

import argparse

from gateway.sdk import RegisterCommand, RunCommand, hookimpl


def make_conform(parser: argparse.ArgumentParser) -> RunCommand:
    """Add the arguments of `gateway conform`."""
    # Imported here because neither listing plugins nor serving needs it.
    from gateway_conform.command import add_arguments, conform

    add_arguments(parser)
    return conform


@hookimpl
def gateway_register_commands(register: RegisterCommand) -> None:
    register("conform", make_conform, summary="check a server against OpenAI's API")

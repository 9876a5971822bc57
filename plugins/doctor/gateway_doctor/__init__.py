"""The command `gateway doctor`, and the checks of engines, which `gateway_testing` also runs as tests."""

from __future__ import annotations

import argparse

from gateway.sdk import RegisterCommand, RunCommand, hookimpl


def make_doctor(parser: argparse.ArgumentParser) -> RunCommand:
    """Add the arguments of `gateway doctor`."""
    # Imported here because neither listing plugins nor serving needs it.
    from gateway_doctor.command import add_arguments, examine

    add_arguments(parser)
    return examine


@hookimpl
def gateway_register_commands(register: RegisterCommand) -> None:
    register("doctor", make_doctor, summary="check a configuration without serving it")

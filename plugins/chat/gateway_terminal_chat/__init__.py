"""The command `gateway chat`: a chat on the terminal with a server that has the Responses API."""

from __future__ import annotations

import argparse

from gateway.sdk import RegisterCommand, RunCommand, hookimpl


def make_chat(parser: argparse.ArgumentParser) -> RunCommand:
    """Add the arguments of `gateway chat`."""
    # Imported here because neither listing plugins nor serving needs it.
    from gateway_terminal_chat.command import add_arguments, chat

    add_arguments(parser)
    return chat


@hookimpl
def gateway_register_commands(register: RegisterCommand) -> None:
    register("chat", make_chat, summary="chat with a model of a running server")

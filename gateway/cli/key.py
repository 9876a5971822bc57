"""`gateway key`."""

from __future__ import annotations

import argparse
import re
import secrets

from cryptography.fernet import Fernet

from gateway.cli.common import Commands
from gateway.errors import ConfigurationError
from gateway.runtime.access import hash_key


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "key",
        help="make an API key, or a key for encrypted reasoning",
        description="Make an API key and print it, once, with the lines of gateway.toml that let it in.",
    )
    parser.add_argument("name", nargs="?", default="default", help="whose key it is")
    parser.add_argument(
        "--reasoning",
        action="store_true",
        help="make a key for server.reasoning_keys instead, which seals encrypted_content",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print a new key. Nothing is stored."""
    if arguments.reasoning:
        print(f'[server]\nreasoning_keys = ["{Fernet.generate_key().decode()}"]')
        return 0
    name: str = arguments.name
    if not re.fullmatch(r"[\w.@ -]+", name):
        raise ConfigurationError(
            f"{name!r} is no name for a key: letters, digits, spaces and . _ - @ make one."
        )
    key = f"sk-{secrets.token_urlsafe(32)}"
    print(f"The key, shown this once:\n\n    {key}\n\nIn gateway.toml:\n")
    print(f'[[server.api_keys]]\nname = "{name}"\nsha256 = "{hash_key(key)}"')
    return 0

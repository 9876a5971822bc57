"""`gateway key`."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from cryptography.fernet import Fernet

from gateway.access.access import hash_key
from gateway.access.stored_keys import (
    StoredKey,
    UnreadableKey,
    change_stored_keys,
    read_stored_keys,
)
from gateway.base.errors import ConfigurationError, StoreUnavailable
from gateway.commands.arguments import Commands, add_config_argument, configuration, table
from gateway.config import ApiKey, Config
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import ResponseStore
from gateway.startup.selection import resolve_store

EPILOG = """\
gateway key NAME                prints a new key, with the lines of gateway.toml that let it in; nothing is stored
gateway key add NAME ...        makes a key in the store of the configuration, and prints it
gateway key list                the keys in the store, with what they may use
gateway key set NAME|HASH ...   changes what the keys of that name may do, or the one whose SHA-256 begins so
gateway key revoke NAME|HASH    removes the keys of that name, or the one whose SHA-256 begins so

Keys in the store need stored_keys = true under [server]. Changes take effect on all running servers within a second.
"""
_LIMITS: Final = (
    "requests_per_minute",
    "tokens_per_minute",
    "tokens_per_day",
    "max_concurrent_requests",
)
_OPTIONS: Final = ("admin", "model", "tool", *_LIMITS, "priority", "weight", "expires")
_FIELDS: Final = {"model": "models", "tool": "tools"}
"""Options whose setting has a different name."""


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "key",
        help="make, list, change and revoke API keys, or make a key for encrypted reasoning",
        description="Make, list, change and revoke API keys.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", nargs="*", metavar="[add|list|set|revoke] NAME", help="whose key it is"
    )
    add_config_argument(parser)
    parser.add_argument(
        "--reasoning",
        action="store_true",
        help="make a key for server.reasoning_keys instead, which seals encrypted_content",
    )
    added = parser.add_argument_group("what a key may do, as in [[server.api_keys]]")
    added.add_argument("--admin", action="store_true", default=None)
    added.add_argument(
        "--model", action="append", metavar="NAME", help="repeatable; replaces those it had"
    )
    added.add_argument("--tool", action="append", metavar="NAME", help="likewise")
    for name in _LIMITS:
        added.add_argument(f"--{name.replace('_', '-')}", type=_positive, metavar="N")
    added.add_argument("--priority", type=int, metavar="N", help="lower is served earlier")
    added.add_argument("--weight", type=_weight, metavar="X", help="its share where requests wait")
    added.add_argument("--expires", type=_future, metavar="TIME", help="such as 2030-01-31, in UTC")
    added.add_argument(
        "--unset", action="append", metavar="OPTION", help="set: the default again, as in --unset tokens-per-day; repeatable",
    )  # fmt: skip
    parser.set_defaults(command=run)


def _positive(text: str) -> int:
    if not text.isdecimal() or len(text) > 15 or int(text) < 1:
        raise argparse.ArgumentTypeError("a whole number from 1 to 999999999999999")
    return int(text)


def _weight(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1000:
        raise argparse.ArgumentTypeError("a number above 0, up to 1000")
    return found


def _future(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError("a time as 2030-01-31 or 2030-01-31T12:00:00Z") from None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    if found <= datetime.now(UTC):
        raise argparse.ArgumentTypeError(f"{text} is past; the key would never be accepted")
    return found


def run(arguments: argparse.Namespace) -> int:
    """Make, list, change or revoke a key."""
    if arguments.unset and arguments.words[:1] != ["set"]:
        raise ConfigurationError("--unset is for gateway key set.")
    match arguments.words:
        case [_, *_] if arguments.reasoning:
            raise ConfigurationError("gateway key --reasoning takes no name.")
        case _ if arguments.reasoning:
            _refuse_options(arguments, "--reasoning")
            print(f'[server]\nreasoning_keys = ["{Fernet.generate_key().decode()}"]')
        case ["add", name]:
            _add(arguments, _checked(name))
        case ["list"]:
            _refuse_options(arguments, "list")
            _in_store(arguments, _list)
        case ["set", which]:
            changes = _changes(arguments)
            _in_store(arguments, lambda store: _set(store, which, changes))
        case ["revoke", which]:
            _refuse_options(arguments, "revoke")
            _in_store(arguments, lambda store: _revoke(store, which))
        case ["add" | "set" | "revoke"]:
            raise ConfigurationError(f"gateway key {arguments.words[0]} needs the name of a key.")
        case ["add" | "list" | "set" | "revoke" as action, *_]:
            known = "no name" if action == "list" else "one name; quote a name with spaces"
            raise ConfigurationError(f"gateway key {action} takes {known}.")
        case [] | [_]:
            _print_new(arguments, _checked((arguments.words or ["default"])[0]))
        case _:
            raise ConfigurationError(
                f"gateway key: {arguments.words[0]!r} is none of add, list, set and revoke; quote a name with spaces."
            )
    return 0


def _refuse_options(arguments: argparse.Namespace, action: str) -> None:
    """Refuse the options of new keys, which would have no effect."""
    for option in _OPTIONS:
        if getattr(arguments, option) is not None:
            raise ConfigurationError(
                f"gateway key {action} takes no --{option.replace('_', '-')}: it is for add and set."
            )


def _checked(name: str) -> str:
    if not re.fullmatch(r"[\w.@ -]+", name):
        raise ConfigurationError(
            f"{name!r} is not a valid name for a key: letters, digits, spaces and . _ - @ make one."
        )
    return name


def _new_key() -> str:
    return f"sk-{secrets.token_urlsafe(32)}"


def _print_new(arguments: argparse.Namespace, name: str) -> None:
    key = _new_key()
    made = msgspec.to_builtins(_made(arguments, name, key), builtin_types=(datetime,))
    print(f"The key, shown this once:\n\n    {key}\n\nIn gateway.toml:\n\n[[server.api_keys]]")
    for field in msgspec.structs.fields(ApiKey):
        value = made[field.name]
        if field.required or value != field.default:
            print(f"{field.name} = {_in_toml(value)}")


def _in_toml(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False)


def _made(arguments: argparse.Namespace, name: str, key: str) -> ApiKey:
    """Create a key with the permissions and limits that the command line sets."""
    made = ApiKey(
        name=name,
        sha256=hash_key(key),
        admin=bool(arguments.admin),
        models=arguments.model,
        tools=arguments.tool,
        priority=arguments.priority or 0,
        weight=arguments.weight or 1.0,
        expires=arguments.expires,
        **{limit: getattr(arguments, limit) for limit in _LIMITS},
    )
    return _valid(made)


def _valid(key: ApiKey) -> ApiKey:
    """Return `key`. Raises `ConfigurationError` if a server would not accept it."""
    try:
        return msgspec.json.decode(msgspec.json.encode(key), type=ApiKey)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"The key {key.name} cannot be so: {error}.") from None


def _add(arguments: argparse.Namespace, name: str) -> None:
    key = _new_key()
    made = _made(arguments, name, key)

    async def add(store: ResponseStore) -> None:
        await change_stored_keys(store, lambda keys: [*keys, made])

    _in_store(arguments, add)
    print(f"The key of {name}, shown this once:\n\n    {key}")


async def _list(store: ResponseStore) -> None:
    keys = await read_stored_keys(store)
    rows = [["name", "sha256", "admin", "models", "tools", "limits", "expires"]]
    for key in sorted(keys, key=lambda each: each.name):
        if isinstance(key, UnreadableKey):
            rows.append([key.name, key.sha256[:12], "refused: it has settings of another release"])
            continue
        expires = "never" if key.expires is None else key.expires.isoformat()
        admin = "yes" if key.admin else "no"
        rows.append(
            [key.name, key.sha256[:12], admin, _names(key.models), _names(key.tools), _limits(key), expires]
        )  # fmt: skip
    width = max(map(len, rows))
    print(table([[*row, *[""] * (width - len(row))] for row in rows]))


def _names(names: Sequence[str] | None) -> str:
    return "all" if names is None else ", ".join(names) or "none"


def _limits(key: ApiKey) -> str:
    limits = [f"{each} = {value}" for each in _LIMITS if (value := getattr(key, each))]
    if key.priority:
        limits.append(f"priority = {key.priority}")
    if key.weight != 1:
        limits.append(f"weight = {key.weight:g}")
    return ", ".join(limits) or "none"


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that the command line changes in existing keys. Raises `ConfigurationError` if there are none."""
    changes = {
        _FIELDS.get(option, option): value
        for option in _OPTIONS
        if (value := getattr(arguments, option)) is not None
    }
    defaults = {field.name: field.default for field in msgspec.structs.fields(ApiKey)}
    for option in arguments.unset or ():
        name = option.removeprefix("--").replace("-", "_")
        if name not in _OPTIONS:
            known = ", ".join(each.replace("_", "-") for each in _OPTIONS)
            raise ConfigurationError(
                f"--unset {option}: there is no such option; it is one of: {known}."
            )
        field = _FIELDS.get(name, name)
        if field in changes:
            raise ConfigurationError(
                f"gateway key set: --{option} is set and unset; keep one of them."
            )
        changes[field] = defaults[field]
    if not changes:
        raise ConfigurationError(
            "gateway key set changes nothing without an option, such as --tokens-per-day 1000000 or --unset tokens-per-day."
        )
    return changes


async def _set(store: ResponseStore, which: str, changes: Mapping[str, Any]) -> None:
    changed: list[ApiKey] = []

    def changed_keys(keys: list[StoredKey]) -> Sequence[StoredKey]:
        changed.clear()
        chosen = _chosen(keys, which)
        result: list[StoredKey] = []
        for key in keys:
            if key not in chosen:
                result.append(key)
            elif isinstance(key, UnreadableKey):
                raise ConfigurationError(
                    f"The key {key.name} has settings of another release: change it with the command of that release, or revoke it."
                )
            else:
                changed.append(_valid(msgspec.structs.replace(key, **changes)))
                result.append(changed[-1])
        return result

    await change_stored_keys(store, changed_keys)
    for key in changed:
        print(
            f"Changed: {key.name} ({key.sha256[:12]}): models {_names(key.models)}; tools {_names(key.tools)}; limits {_limits(key)}"
        )


def _chosen(keys: Sequence[StoredKey], which: str) -> list[StoredKey]:
    """The keys with the name `which`, or with a SHA-256 that begins with it. Raises `ConfigurationError` if there are
    none."""
    named = [key for key in keys if key.name == which]
    hashed = [key for key in keys if len(which) >= 8 and key.sha256.startswith(which.lower())]
    if not (named or hashed):
        raise ConfigurationError(f"The store has no key of the name or the hash {which!r}.")
    return named or hashed


async def _revoke(store: ResponseStore, which: str) -> None:
    revoked: list[StoredKey] = []

    def without(keys: list[StoredKey]) -> Sequence[StoredKey]:
        revoked[:] = _chosen(keys, which)
        return [key for key in keys if key not in revoked]

    await change_stored_keys(store, without)
    print(f"Revoked: {', '.join(f'{key.name} ({key.sha256[:12]})' for key in revoked)}")


def _in_store(
    arguments: argparse.Namespace, work: Callable[[ResponseStore], Coroutine[Any, Any, None]]
) -> None:
    """Call `work` with the configured store. Raises `ConfigurationError`."""
    config = configuration(arguments)
    if not config.server.stored_keys:
        raise ConfigurationError(
            f"{config.source}: keys in the store are not accepted; set stored_keys = true under [server]."
        )
    try:
        asyncio.run(_with_store(config, work))
    except StoreUnavailable as error:
        raise ConfigurationError(error.message) from error


async def _with_store(
    config: Config, work: Callable[[ResponseStore], Coroutine[Any, Any, None]]
) -> None:
    chosen = resolve_store(config, load_plugins(config.plugins))
    assert chosen is not None, "stored_keys was checked"
    offer, store_config = chosen
    async with offer.make(store_config) as store:
        if not store.shared:
            raise ConfigurationError(
                f"The store '{offer.name}' is a server's own memory, which this command cannot reach. Choose another store under "
                "[server], or use keys_file."
            )
        await work(store)

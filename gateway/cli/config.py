"""`gateway config`."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from gateway.base.errors import ConfigurationError
from gateway.commands.arguments import Commands, add_config_argument, configuration
from gateway.config import list_settings, model_name
from gateway.config.redaction import Redactor, secrets_of, shown_value
from gateway.config.tables import dotted
from gateway.plugins.loading import load_plugins
from gateway.startup.config_schema import config_schema
from gateway.startup.selection import check_configuration
from gateway.startup.settings import doubtful_names

SCHEMA = Path("gateway.schema.json")


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "config",
        help="write, check and show gateway.toml",
        description="Write, check and show the configuration, gateway.toml.",
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")

    init = actions.add_parser(
        "init",
        help="write a gateway.toml to start from",
        description="Write a gateway.toml that serves MODEL, with the most used settings as comments. Nothing is overwritten.",
    )
    init.add_argument("models", nargs="*", metavar="MODEL", help="as for `gateway serve`")
    init.add_argument(
        "--output",
        type=Path,
        default=Path("gateway.toml"),
        metavar="FILE",
        help="(default: gateway.toml)",
    )
    init.add_argument(
        "--schema", action="store_true", help=f"write {SCHEMA} beside it, for completion in editors"
    )
    init.set_defaults(command=write)

    check = actions.add_parser(
        "check",
        help="check the configuration, and open nothing",
        description="Check what the configuration itself and the files that it names say, without opening anything. `gateway doctor` also "
        "opens the store and looks for the port, programs and downloads; `gateway doctor --generate` opens the models.",
    )
    add_config_argument(check)
    check.set_defaults(command=check_config)

    show = actions.add_parser(
        "show",
        help="show the settings and where each comes from",
        description="Show the settings that differ from the defaults, and where each comes from. Keys, tokens and "
        "passwords are hidden.",
    )
    show.add_argument("--json", action="store_true", help="as JSON")
    add_config_argument(show)
    show.set_defaults(command=show_config)

    schema = actions.add_parser(
        "schema",
        help="print a JSON schema of gateway.toml",
        description="Print a JSON schema of gateway.toml, with the tables of the installed plugins.",
    )
    schema.set_defaults(command=print_schema)


def write(arguments: argparse.Namespace) -> int:
    """Write the file. Raises `ConfigurationError` if it exists or cannot be written."""
    text = _template(arguments.models, arguments.schema)
    files = [(arguments.output, text)]
    if arguments.schema:
        schema = json.dumps(config_schema(load_plugins(strict=False)), indent=2, ensure_ascii=False)
        files.append((arguments.output.parent / SCHEMA, f"{schema}\n"))
    for path, _ in files:
        if path.exists() and path.name != SCHEMA.name:
            raise ConfigurationError(f"{path} exists already; name another file with --output")
    try:
        for path, content in files:
            path.write_text(content, encoding="utf-8")
            print(f"wrote {path}")
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be written: {error.strerror}") from error
    print("`gateway config check` checks it, and `gateway serve` serves it.")
    return 0


def check_config(arguments: argparse.Namespace) -> int:
    """Check the configuration. Raises `ConfigurationError` for the first mistake."""
    config = configuration(arguments)
    chosen = check_configuration(config, load_plugins(config.plugins))
    print(f"{config.source}: no mistake was found.")
    for plan in chosen.models:
        print(f"  model {plan.name}: engine {plan.engine.name} ({plan.why})")
    for name, route in config.routes.items():
        print(f"  route {name}: {', '.join(route.models)}")
    print(f"  store: {chosen.store[0].name if chosen.store else 'none'}")
    for kind, offers in (("tools", chosen.tools), ("APIs", chosen.apis)):
        print(f"  {kind}: {', '.join(offer.name for offer, _ in offers) or 'none'}")
    if config.authenticators:
        print(f"  authenticators: {', '.join(config.authenticators)}")
    elif not config.server.needs_key:
        print("  API keys: none; anyone who can reach the server may use it")
    for owner, problem in doubtful_names(config):
        print(f"  look at {owner}: {problem}")
    print(
        "Nothing was opened: `gateway doctor` also looks for the store, the port, programs and downloads, and `gateway doctor --generate`\n"
        "opens the models."
    )
    return 0


def show_config(arguments: argparse.Namespace) -> int:
    """Print the settings. Raises `ConfigurationError` if the configuration is wrong."""
    config = configuration(arguments)
    redactor = Redactor(secrets_of(config, os.environ))
    rows = [
        (dotted(each.path), shown_value(each.path, each.value, redactor), each.source)
        for each in list_settings(arguments.config, os.environ)
    ]
    if arguments.json:
        print(
            json.dumps(
                [{"key": key, "value": value, "source": source} for key, value, source in rows],
                indent=2,
                ensure_ascii=False,
                default=str,
            )
        )
        return 0
    print(f"# {config.source}")
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False, default=str)}" for key, value, _ in rows
    ]
    width = min(max(map(len, lines), default=0), 60)
    for line, (_, _, source) in zip(lines, rows, strict=True):
        print(f"{line.ljust(width)}  # {source}")
    return 0


def print_schema(arguments: argparse.Namespace) -> int:
    """Print the schema."""
    del arguments
    schema = config_schema(load_plugins(strict=False))
    print(json.dumps(schema, indent=2, ensure_ascii=False))
    return 0


def _template(models: list[str], with_schema: bool) -> str:
    tables = [_model_table(model) for model in models] or [
        "[models.tiny]  # without a path: the engine's own toy model\n"
    ]
    start = f"#:schema ./{SCHEMA}\n" if with_schema else ""
    return start + _HEAD + "\n".join(tables) + _MODEL_COMMENTS + _REST


def _model_table(model: str) -> str:
    url, _, fragment = model.partition("#")
    if url.startswith(("http://", "https://")):
        name, path = fragment or model_name(url), url
    else:
        name, path = model_name(model), model
    engine = 'engine = "openai"\n' if fragment else ""
    return f"[models.{dotted((name,))}]\npath = {json.dumps(path, ensure_ascii=False)}\n{engine}"


_HEAD = """\
# Litegate's configuration. Each key is described in docs/configuration.md. What is commented out shows a default or an example.

[server]
# host = "127.0.0.1"
# port = 8000
# store = "sqlite"            # memory, sqlite, redis, postgres, none

# A key for each client: `gateway key NAME` makes one and prints its table.
# [[server.api_keys]]
# name = "alice"
# sha256 = "..."

"""
_MODEL_COMMENTS = """\
# aliases = ["gpt-4o-mini"]   # further names in requests
# max_running = 256           # concurrent requests; others wait
# max_waiting = 1024          # beyond it: 429

"""
_REST = """\
# Tools that the server runs.
# [tools.python]
# [tools.browser]
# provider = "searxng"
# searxng = { url = "http://127.0.0.1:8080" }
# [tools.mcp.servers.docs]
# url = "https://example.com/mcp"
"""

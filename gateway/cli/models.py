"""`gateway models`."""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

from gateway.base.errors import ConfigurationError
from gateway.cli.cache import show_cached
from gateway.commands.arguments import Commands, add_config_argument, configuration
from gateway.config import Config
from gateway.models.media import media_kinds, shown_capabilities
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.plugins.protocols import DescribedEngine
from gateway.process.logs import set_up_logging
from gateway.startup.model_opening import open_model
from gateway.startup.model_plan import ModelPlan, resolve_model


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "models",
        help="show each model's engine, renderer and parser, and why",
        description="Show what serves each model of the configuration, and why. Each model is opened, one at a time, "
        "because its own metadata decides what the configuration leaves open. With --cached, list the models of the hub that "
        "are on this machine instead.",
    )
    parser.add_argument(
        "--cached",
        action="store_true",
        help="list the downloaded models of the hub, and open nothing",
    )
    parser.add_argument(
        "--no-open", action="store_true", help="open nothing: show only what the configuration says"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_config_argument(parser)
    parser.set_defaults(command=show)


def show(arguments: argparse.Namespace) -> int:
    """List the models. Returns 1 if one of them cannot be served."""
    if arguments.cached:
        return show_cached(as_json=arguments.json)
    config = configuration(arguments)
    set_up_logging("warning")
    plugins = load_plugins(config.plugins)
    rows = asyncio.run(_rows(config, plugins, opening=not arguments.no_open))
    if arguments.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(map(_as_text, rows)))
    return 1 if any("error" in row for row in rows) else 0


async def _rows(config: Config, plugins: PluginSet, *, opening: bool) -> list[dict[str, Any]]:
    rows = []
    for name, model in config.models.items():
        row: dict[str, Any] = {"name": name, "aliases": model.aliases, "path": model.path}
        rows.append(row)
        try:
            plan = resolve_model(name, model, plugins)
            row |= {"engine": plan.engine.name, "why": f"engine {plan.engine.name} ({plan.why})"}
            row |= await _opened(plan) if opening else _configured(plan)
        except ConfigurationError as error:
            row["error"] = str(error)
    return rows


def _configured(plan: ModelPlan) -> dict[str, Any]:
    halves = {"reasoning": plan.config.reasoning, "tools": plan.config.tools}
    row: dict[str, Any] = {"renderer": plan.config.renderer, "parser": plan.config.parser}
    return row | {half: name for half, name in halves.items() if name is not None}


async def _opened(plan: ModelPlan) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        opened = await open_model(plan, stack)
        return {
            "renderer": opened.renderer_name,
            "parser": opened.output_format.name,
            "architecture": opened.info.architecture,
            "max_model_len": plan.config.max_model_len or opened.info.max_model_len,
            "capabilities": sorted(
                shown_capabilities(opened.engine, media_kinds(opened.engine, opened.renderer))
            ),
            "why": opened.why,
            "parts": (
                [dict(part) for part in opened.engine.describe()]
                if isinstance(opened.engine, DescribedEngine)
                else []
            ),
        }


def _as_text(row: dict[str, Any]) -> str:
    lines = [row["name"]]
    for key, value in row.items():
        if key != "name" and value not in (None, []):
            title = key.replace("_", " ")
            if isinstance(value, list) and isinstance(value[0], dict):
                lines.append(f"  {title}:")
                lines += ["    " + ", ".join(f"{k} {v}" for k, v in part.items()) for part in value]
            else:
                lines.append(f"  {title}: {', '.join(value) if isinstance(value, list) else value}")
    return "\n".join(lines)

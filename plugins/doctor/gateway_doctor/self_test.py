"""`gateway doctor --generate`: opens the models and checks the whole engine contract with real generations."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from typing import Literal, TypeAlias

from msgspec import Struct

from gateway.commands.arguments import configuration
from gateway.plugins.loading import load_plugins
from gateway.sdk import ConfigurationError, Engine, GatewayError
from gateway.startup.model_opening import engine_of
from gateway.startup.model_plan import ModelPlan, resolve_model

Result: TypeAlias = Literal["ok", "failed", "not offered"]

CHECK_SECONDS = 300.0
"""Time limit of one check in seconds. Large models may think for some time."""


class CheckLine(Struct, frozen=True):
    """The result of one check."""

    what: str
    result: Result
    detail: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.what:28} {self.result}{detail} ({self.seconds:.1f} s)"


def self_test(arguments: argparse.Namespace) -> int:
    """Test the requested models one after the other. Returns 1 if a check failed.

    `MODEL` and `--engine` work as in `gateway serve`; `--engine` by itself selects the configured models with that
    engine.
    """
    alone = arguments.model is not None
    config = configuration(
        arguments,
        models=[arguments.model] if alone else (),
        engine=arguments.engine if alone else None,
    )
    plugins = load_plugins(config.plugins)
    plans = [resolve_model(name, model, plugins) for name, model in config.models.items()]
    if arguments.engine is not None and not alone:
        chosen = [plan for plan in plans if plan.engine.name == arguments.engine]
        if not chosen:
            used = ", ".join(sorted({plan.engine.name for plan in plans})) or "none"
            raise ConfigurationError(
                f"no model of {config.source} has the engine '{arguments.engine}' (they have: {used}); name a MODEL"
            )
        plans = chosen
    failed = False
    for plan in plans:
        failed = asyncio.run(_test(plan)) or failed
    return 1 if failed else 0


async def _test(plan: ModelPlan) -> bool:
    """Test one model and print a line for each check. Returns whether one failed."""
    print(f"{plan.name}: engine {plan.engine.name} {plan.engine.version} ({plan.why})", flush=True)
    counts: dict[Result, int] = {"ok": 0, "failed": 0, "not offered": 0}
    begun = time.monotonic()
    try:
        async with engine_of(plan) as engine:
            print(CheckLine("opens", "ok", seconds=time.monotonic() - begun), flush=True)
            async for line in _lines(engine):
                print(line, flush=True)
                counts[line.result] += 1
    except Exception as error:  # plugins may raise anything; the other models are still tested
        print(CheckLine("opens and closes", "failed", _words(error), time.monotonic() - begun))
        counts["failed"] += 1
    summary = ", ".join(f"{number} {result}" for result, number in counts.items())
    print(f"{plan.name}: {summary}\n", flush=True)
    return counts["failed"] > 0


async def _lines(engine: Engine) -> AsyncIterator[CheckLine]:
    # Imported here because the running gateway does not need the checks.
    from gateway_doctor.checks.engine_checks import CHECKS, GuaranteeViolated, NotClaimed, Probe

    probe = Probe(engine)
    for check in CHECKS:
        begun = time.monotonic()
        result: Result = "ok"
        detail = ""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await check.run(probe)
        except NotClaimed as error:
            result, detail = "not offered", str(error)
        except GuaranteeViolated as error:
            result, detail = "failed", str(error)
        except TimeoutError:
            result, detail = "failed", f"not over within its time, at most {CHECK_SECONDS:.0f} s"
        except Exception as error:  # engines may raise anything; the other checks continue
            result, detail = "failed", _words(error)
        yield CheckLine(check.what, result, detail, time.monotonic() - begun)


def _words(error: Exception) -> str:
    message = error.message if isinstance(error, GatewayError) else str(error)
    kind = "" if isinstance(error, ConfigurationError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(message.split())}"

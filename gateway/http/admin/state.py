"""/v1/gateway/config, /keys and /models: settings, use of API keys, and states of models, for administrators."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from litestar import get
from litestar.types import ASGIApp

from gateway.config import Config
from gateway.config.redaction import Redactor, is_variable, secrets_of, shown_value
from gateway.config.tables import dotted
from gateway.http.admin.all_workers import all_activity
from gateway.http.answers import json_answer
from gateway.http.state import HttpRequest, services_for_admin
from gateway.models.model_slot import ModelSlot
from gateway.plugins.protocols import MeasuredEngine, UsageCount
from gateway.wire.inventory import (
    KeyList,
    ListedKey,
    ListedModel,
    ListedSetting,
    ModelQueues,
    SettingList,
)

_DAY: Final = 86_400
_DAYS: Final = 30
_MAX_KEYS: Final = 1000
"""Maximum number of key names in one answer."""
_MAX_MEASURED: Final = 40
"""Maximum number of measurements of one engine in one answer."""
_LONGEST_FAILURE: Final = 10_000
"""Maximum number of characters of the reason why a model cannot be loaded."""
_SECTIONS: Final = ("server", "media", "documents")
"""Sections whose defaults are shown."""


@get("/v1/gateway/config")
async def list_config(request: HttpRequest) -> ASGIApp:
    """List the settings in use with the source of each, for administrators. Secrets are left out."""
    services = services_for_admin(request)
    # In a thread: redacting a large configuration takes longer than a token may be delayed.
    return json_answer(await asyncio.to_thread(listed_settings, services.config, os.environ))


def listed_settings(config: Config, environ: Mapping[str, str]) -> SettingList:
    """The settings of the file, in its order, followed by the defaults of the others."""
    redactor = Redactor(secrets_of(config, environ))
    data = [
        ListedSetting(
            key=dotted(each.path),
            value=shown_value(each.path, msgspec.to_builtins(each.value), redactor),
            source=each.source,
            note=_note(each.path[-1], each.value, environ),
        )
        for each in config.settings
    ]
    known = {each.path[:2] for each in config.settings}
    data += (
        ListedSetting(key=dotted(path), value=shown_value(path, value, redactor), source="default")
        for path, value in _values(config)
        if path not in known
    )
    return SettingList(source=config.source, data=data)


def _values(config: Config) -> Iterator[tuple[tuple[str, str], Any]]:
    for section in _SECTIONS:
        for name, value in msgspec.to_builtins(getattr(config, section), str_keys=True).items():
            yield (section, name), value


def _note(key: str, value: Any, environ: Mapping[str, str]) -> str:
    if not (key.endswith("_env") and isinstance(value, str)):
        return ""
    if not is_variable(value):
        return "this is not the name of an environment variable"
    return f"{value} is set" if environ.get(value) else f"{value} is not set"


@get("/v1/gateway/keys")
async def list_keys(request: HttpRequest) -> ASGIApp:
    """List the API keys by name, with their limits and usage, for administrators. Contains neither keys nor their
    hashes."""
    services = services_for_admin(request)
    names = services.authenticator.listed()
    today = int(time.time() // _DAY)
    counts = await services.usage.read(today - _DAYS + 1, today)
    # In a thread: authenticators may have found any number of principals, and adding up takes longer than a token may
    # be delayed.
    sums, sums_today = await asyncio.to_thread(_both_sums, counts, names, today)
    activity = await all_activity(services)
    data = []
    for name, keys in list(names.items())[:_MAX_KEYS]:
        principal, limits = keys[0].principal, keys[0].principal.limits
        ends = min(each.expires for each in keys)
        data.append(
            ListedKey(
                name=name,
                sources=list(dict.fromkeys(each.source for each in keys)),
                keys=len(keys),
                admin=any(each.principal.admin for each in keys),
                models=None if principal.models is None else list(principal.models),
                tools=None if principal.tools is None else list(principal.tools),
                priority=principal.priority,
                weight=principal.weight,
                expires=None if math.isinf(ends) else ends,
                requests_per_minute=limits.requests_per_minute,
                tokens_per_minute=limits.tokens_per_minute,
                tokens_per_day=limits.tokens_per_day,
                max_concurrent_requests=limits.max_concurrent_requests,
                running=activity.running.get(name, 0),
                last_used=activity.last_used.get(name),
                requests_today=sums_today[name, "requests"],
                tokens_today=sums_today[name, "tokens"],
                requests_30_days=sums[name, "requests"],
                tokens_30_days=sums[name, "tokens"],
            )
        )
    return json_answer(
        KeyList(
            needs_key=services.authenticator.needs_key,
            total=len(names),
            data=data,
            silent=activity.silent,
        )
    )


_Sums = Counter[tuple[str, str]]
"""Numbers of requests and of tokens. A key of the mapping is the name of an API key with "requests" or "tokens"."""


def _both_sums(
    counts: Iterable[UsageCount], names: Collection[str], today: int
) -> tuple[_Sums, _Sums]:
    """The sums for these names: of all days, and of today."""
    sums, sums_today = _Sums(), _Sums()
    for count in counts:
        name = count.principal
        if name is None or name not in names:
            continue
        for each in (sums, sums_today) if count.bucket == today else (sums,):
            each[name, "requests"] += count.requests
            each[name, "tokens"] += count.input_tokens + count.output_tokens
    return sums, sums_today


@get("/v1/gateway/models")
async def list_model_queues(request: HttpRequest) -> ASGIApp:
    """List each model's state, limits, queue over the last hour, and memory metrics of its engine, for
    administrators."""
    services = services_for_admin(request)
    activity = await all_activity(services)
    queues = activity.queues
    failures = {
        slot.name: str(slot.failure)
        for slot in services.slots.slots.values()
        if slot.state == "failed" and slot.failure is not None
    }
    if failures:  # in a thread, as in `list_config`
        failures = await asyncio.to_thread(_redacted, failures, services.config)
    data = []
    for slot in services.slots.slots.values():
        config = slot.config
        running, waiting, minutes = queues.get(slot.name, (0, 0, []))
        data.append(
            ListedModel(
                id=slot.name,
                state=slot.state,
                engine=config.engine or (slot.served[0].info.engine if slot.served else None),
                running=running,
                waiting=waiting,
                max_running=config.max_running,
                max_waiting=config.max_waiting,
                load=config.load,
                idle_unload=config.idle_unload,
                failure=failures.get(slot.name),
                measured=_measured(slot),
                queue=minutes,
            )
        )
    return json_answer(ModelQueues(data=data, silent=activity.silent))


def _redacted(texts: Mapping[str, str], config: Config) -> dict[str, str]:
    redactor = Redactor(secrets_of(config, os.environ))
    return {name: redactor.clean(text)[:_LONGEST_FAILURE] for name, text in texts.items()}


def _measured(slot: ModelSlot) -> dict[str, float]:
    """The memory gauges of the model's engine, by name."""
    engine = slot.served[0].engine if slot.served else None
    if not isinstance(engine, MeasuredEngine):
        return {}
    found = {
        each.name: each.value
        for each in engine.metrics()
        if each.kind == "gauge"
        and any(word in each.name for word in ("memory", "cache", "bytes"))
        and math.isfinite(each.value)
    }
    return dict(list(found.items())[:_MAX_MEASURED])

"""llama.cpp's own metrics, as the gateway exposes them."""

from __future__ import annotations

import re

from gateway.sdk import MetricSample

_LINE = re.compile(
    r"# HELP (?P<described>\S+) (?P<help>.*)|# TYPE (?P<typed>\S+) (?P<kind>counter|gauge)|(?P<name>[\w:]+) (?P<value>\S+)"
)


def read_samples(text: str) -> list[MetricSample]:
    """The samples in `text`, which is Prometheus' text format without labels. Other lines are ignored."""
    helps: dict[str, str] = {}
    kinds: dict[str, str] = {}
    made: list[MetricSample] = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        if described := found["described"]:
            helps[described] = found["help"]
        elif typed := found["typed"]:
            kinds[typed] = found["kind"]
        elif (name := found["name"]) in kinds:
            try:
                value = float(found["value"])
            except ValueError:
                continue
            # llama.cpp also calls a maximum a counter. A real one has the suffix.
            counts = kinds[name] == "counter" and name.endswith("_total")
            made.append(
                MetricSample(
                    name=name.removesuffix("_total") if counts else name,
                    kind="counter" if counts else "gauge",
                    help=helps.get(name, ""),
                    value=value,
                )
            )
    return made

"""Metrics of plugins: their names, their bounds, and their end."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from gateway.base.errors import ConfigurationError
from gateway.startup.plugin_metrics import MAX_SERIES, MetricTable, PluginMetrics


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def table(registry: CollectorRegistry) -> MetricTable:
    return MetricTable(registry, several_processes=False)


def test_each_kind_is_shown_under_the_plugins_name(
    table: MetricTable, registry: CollectorRegistry
) -> None:
    metrics = PluginMetrics(table, "my-Tool")
    metrics.counter("calls", "Calls.", ["outcome"]).add(2, outcome="completed")
    metrics.gauge("size", "Size.", []).set(3)
    metrics.histogram("seconds", "Time.", [], [1, 2]).observe(1.5)
    value = registry.get_sample_value
    assert value("gateway_plugin_my_tool_calls_total", {"outcome": "completed"}) == 2
    assert value("gateway_plugin_my_tool_size") == 3
    assert value("gateway_plugin_my_tool_seconds_bucket", {"le": "2.0"}) == 1
    metrics.close()
    assert list(registry.collect()) == []


def test_a_metric_lasts_until_its_last_user_is_closed(
    table: MetricTable, registry: CollectorRegistry
) -> None:
    """As when a tool's configuration is changed: the new server is opened before the old one is closed."""
    old, new = PluginMetrics(table, "t"), PluginMetrics(table, "t")
    old.counter("calls", "Calls.", []).add()
    counter = new.counter("calls", "Calls.", [])
    old.close()
    counter.add()
    assert registry.get_sample_value("gateway_plugin_t_calls_total") == 2
    new.close()
    assert registry.get_sample_value("gateway_plugin_t_calls_total") is None


def test_values_of_labels_are_bounded(table: MetricTable, registry: CollectorRegistry) -> None:
    counter = PluginMetrics(table, "t").counter("calls", "Calls.", ["who"])
    for number in range(MAX_SERIES + 50):
        counter.add(who=f"{number}" + "x" * 10_000)
    series = [
        sample
        for family in registry.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    ]
    assert len(series) == MAX_SERIES
    assert max(len(sample.labels["who"]) for sample in series) == 100
    assert [each.value for each in series if each.labels["who"] == "other"] == [51]


@pytest.mark.parametrize("labels", [{}, {"other": "x"}, {"who": "x", "other": "x"}])
def test_other_labels_are_an_error(table: MetricTable, labels: dict[str, str]) -> None:
    counter = PluginMetrics(table, "t").counter("calls", "Calls.", ["who"])
    with pytest.raises(ValueError, match="the labels of this metric are: who"):
        counter.add(**labels)


@pytest.mark.parametrize(
    ("name", "labels", "told"),
    [
        ("Calls", [], "the name 'Calls'"),
        ("a" * 61, [], "at most 60"),
        ("calls", ["le"], "none of le"),
        ("calls", ["a", "a"], "each once"),
        ("calls", ["a", "b", "c", "d", "e"], "at most 4"),
        ("calls", ["a\n"], "small letters"),
        ("taken", [], "another metric gateway_plugin_t_taken"),
    ],
)
def test_a_metric_that_cannot_be_is_a_sentence(
    table: MetricTable, name: str, labels: list[str], told: str
) -> None:
    metrics = PluginMetrics(table, "t")
    metrics.gauge("taken", "Another.", ["x"])
    with pytest.raises(ConfigurationError, match=told):
        metrics.counter(name, "Calls.", labels)


@pytest.mark.parametrize("buckets", [(2, 1), (1, 1), tuple(range(31))])
def test_buckets_are_bounded_and_ascend(table: MetricTable, buckets: tuple[float, ...]) -> None:
    with pytest.raises(ConfigurationError, match="must ascend"):
        PluginMetrics(table, "t").histogram("seconds", "Time.", [], buckets)


def test_names_that_another_kind_of_metric_writes_are_taken(table: MetricTable) -> None:
    metrics = PluginMetrics(table, "t")
    metrics.counter("calls", "Calls.", [])
    with pytest.raises(ConfigurationError, match="cannot be made: Duplicated"):
        metrics.gauge("calls_total", "Calls.", [])


def test_the_number_of_metrics_is_bounded(table: MetricTable) -> None:
    metrics = PluginMetrics(table, "t")
    for number in range(100):
        metrics.gauge(f"m{number}", "One.", [])
    with pytest.raises(ConfigurationError, match="at most 100 metrics"):
        metrics.gauge("more", "One.", [])

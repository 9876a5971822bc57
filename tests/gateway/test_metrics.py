from __future__ import annotations

from msgspec import Struct

from gateway.metrics import Metrics
from gateway.runtime.admission import Admission


class Sample(Struct, frozen=True):
    name: str
    kind: str
    help: str
    labels: dict[str, str]
    value: float


class Measured:
    def __init__(self, value: float) -> None:
        self._value = value

    def metrics(self) -> list[Sample]:
        return [
            Sample("replica_up", "gauge", "Whether it answers.", {"replica": "a"}, self._value),
            Sample("replica_requests", "counter", "Requests.", {"replica": "a"}, 3),
        ]


def test_engines_of_several_models_share_their_families() -> None:
    metrics = Metrics()
    metrics.watch_engine("one", Measured(1))  # type: ignore[arg-type]
    metrics.watch_engine("two", Measured(0))  # type: ignore[arg-type]
    shown = metrics.exposition().decode()
    assert shown.count("# TYPE replica_up gauge") == 1
    assert 'replica_up{model="one",replica="a"} 1.0' in shown
    assert 'replica_up{model="two",replica="a"} 0.0' in shown
    assert 'replica_requests_total{model="two",replica="a"} 3.0' in shown


def test_running_and_waiting_are_asked_at_each_scrape() -> None:
    metrics = Metrics()
    admission = Admission("m", max_running=1, max_waiting=2)
    metrics.watch_model("m", admission)
    assert 'gateway_waiting_requests{model="m"} 0.0' in metrics.exposition().decode()
    place = admission.reserve()
    assert 'gateway_waiting_requests{model="m"} 1.0' in metrics.exposition().decode()
    place.cancel()
    place.cancel()
    assert 'gateway_waiting_requests{model="m"} 0.0' in metrics.exposition().decode()

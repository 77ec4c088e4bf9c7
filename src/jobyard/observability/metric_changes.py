"""Counters and histograms of several processes in one scrape: each process sends its changes, and one adds them up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

# Values of these types are meaningful as a sum over processes; gauges are not.
SUMMED = ("counter", "histogram")
CREATED = "_created"

SampleKey = tuple[str, tuple[tuple[str, str], ...]]


class SampleChange(msgspec.Struct, frozen=True, array_like=True):
    """The growth of one sample of a metric."""

    metric: str
    sample: str
    labels: dict[str, str]
    amount: float


def key_of(sample: Sample) -> SampleKey:
    return sample.name, tuple(sorted(sample.labels.items()))


class MetricChanges:
    """The changes of a registry since they were last taken."""

    def __init__(self, registry: Collector) -> None:
        self._registry = registry
        self._taken: dict[SampleKey, float] = {}

    def take(self) -> list[SampleChange]:
        """A new sample is reported even if it is 0: a histogram needs all of its buckets."""
        found = []
        for metric in self._registry.collect():
            for sample in metric.samples if metric.type in SUMMED else ():
                key = key_of(sample)
                taken = self._taken.get(key)
                if sample.value != taken and not sample.name.endswith(CREATED):
                    found.append(
                        SampleChange(metric.name, sample.name, dict(sample.labels), sample.value - (taken or 0.0))
                    )
                    self._taken[key] = sample.value
        return found


class SummedRegistry(Collector):
    """A registry whose counters and histograms include those of other processes.

    A change is added once, so a sum never decreases: not when a process ends, and not when another replaces it.
    """

    def __init__(self, registry: Collector, shown: Callable[[str, str], str]) -> None:
        """`shown` limits the values of a label: it takes the name of the label and a value."""
        self._registry = registry
        self._shown = shown
        self._added: dict[str, dict[SampleKey, float]] = {}

    def add(self, changes: Sequence[SampleChange]) -> None:
        for change in changes:
            labels = {name: self._shown(name, value) for name, value in change.labels.items()}
            added = self._added.setdefault(change.metric, {})
            key = (change.sample, tuple(sorted(labels.items())))
            added[key] = added.get(key, 0.0) + change.amount

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            added = self._added.get(metric.name)
            yield metric if added is None else _sum(metric, added)


def _sum(metric: Metric, added: Mapping[SampleKey, float]) -> Metric:
    total = Metric(metric.name, metric.documentation, metric.type, metric.unit)
    own = set()
    for sample in metric.samples:
        key = key_of(sample)
        own.add(key)
        total.samples.append(sample._replace(value=sample.value + added.get(key, 0.0)))
    for key, value in added.items():
        if key not in own:
            total.add_sample(key[0], dict(key[1]), value)
    return total

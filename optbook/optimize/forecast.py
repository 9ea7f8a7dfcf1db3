"""From a measured step and a link to the throughput of many nodes that train one model together.

The model is the field's usual one: a message of n bytes takes α + n/β, with the link's latency α and its
bandwidth β. The all-reduce formulas are those of Thakur, Rabenseifner and Gropp, "Optimization of Collective
Communication Operations in MPICH" (2005), and of Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms
for clusters of workstations" (2009); the time to add the numbers up is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from optbook import formatting as write
from optbook.benchmark.quantities import short
from optbook.errors import OptionError

Algorithm = Literal["ring", "tree"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
NODES = tuple(2**power for power in range(1, 11))
MOST_NODES = 2**20
HIDDEN = 0.02
"""Communication that adds less than this share to a step limits nothing."""
SOURCES = "Thakur et al. 2005, Patarasuk and Yuan 2009"


@dataclass(frozen=True)
class Link:
    """What joins two nodes: ``latency`` in seconds a message, ``bandwidth`` in bytes per second, each way.

    Raises:
        OptionError: a figure is out of range.
    """

    latency: float
    bandwidth: float
    source: str = "stated"

    def __post_init__(self) -> None:
        _in_range("latency", self.latency, 0.0, "seconds, such as 50e-6")
        _in_range("bandwidth", self.bandwidth, 1.0, "bytes per second, such as 125e6 for 1 Gbit/s")

    def __str__(self) -> str:
        rate = f"{write.number(8 * self.bandwidth / 1e6)} Mbit/s"
        return f"{rate} with {write.seconds(self.latency)} a message ({self.source})"


@dataclass(frozen=True)
class Bucket:
    """Gradients that travel together: ``ready`` seconds after the step's start, ``size`` in bytes."""

    ready: float
    size: float

    def __post_init__(self) -> None:
        _in_range("ready", self.ready, 0.0, "seconds after the step's start")
        _in_range("size", self.size, 0.0, "bytes")


@dataclass(frozen=True)
class Step:
    """One step on one node, without any communication.

    Attributes:
        seconds: forward, backward and the optimiser's work.
        buckets: the gradients, in the order in which they are ready.
        units: what one node's step amounts to, such as 64 samples.
        unit: what is counted, in the singular.
        source: where it comes from.
    """

    seconds: float
    buckets: tuple[Bucket, ...]
    units: float = 1.0
    unit: str = "step"
    source: str = "stated"

    def __post_init__(self) -> None:
        _in_range("seconds", self.seconds, 1e-9, "seconds a step")
        _in_range("units", self.units, 1e-9, "units a step")
        if not self.buckets:
            raise OptionError("buckets is empty: give at least one, or use Step.even(0.1, 0.06, 4e6)")
        for bucket in self.buckets:
            if bucket.ready > self.seconds:
                raise OptionError(
                    f"a bucket is ready after {bucket.ready:g} s of a step of {self.seconds:g} s: give less"
                )

    @classmethod
    def even(
        cls,
        seconds: float,
        backward: float,
        gradient_bytes: float,
        buckets: int = 1,
        after: float = 0.0,
        units: float = 1.0,
        unit: str = "step",
        source: str = "stated",
    ) -> Step:
        """A step whose gradients come in equal buckets, spread evenly over the backward pass.

        Args:
            seconds: of the whole step.
            backward: seconds of it in the backward pass.
            gradient_bytes: of all gradients.
            buckets: in how many parts they travel.
            after: seconds of it after the backward pass (the optimiser's).
            units: what one node's step amounts to.
            unit: what is counted.
            source: where the figures come from.
        """
        _whole("buckets is", buckets, 10_000)
        _in_range("backward", backward, 0.0, "seconds of the step")
        _in_range("after", after, 0.0, "seconds of the step")
        if backward + after > seconds:
            raise OptionError(
                f"backward and after are {backward + after:g} s, the step {seconds:g} s: give less"
            )
        start = seconds - after - backward
        parts = tuple(
            Bucket(start + backward * (i + 1) / buckets, gradient_bytes / buckets) for i in range(buckets)
        )
        return cls(seconds, parts, units, unit, source)

    @property
    def gradient_bytes(self) -> float:
        """Of all buckets."""
        return sum(bucket.size for bucket in self.buckets)


@dataclass(frozen=True)
class Point:
    """What is forecast for so many nodes.

    Attributes:
        nodes: how many.
        seconds: a step takes.
        throughput: units per second of all nodes.
        efficiency: throughput ÷ (nodes × that of one node).
        communication: seconds the all-reduces of a step take altogether.
        waiting: seconds of it that the backward pass does not hide.
        limit: what limits: the step itself, the link's bandwidth or its latency.
    """

    nodes: int
    seconds: float
    throughput: float
    efficiency: float
    communication: float
    waiting: float
    limit: Literal["the step itself", "bandwidth", "latency"]


@dataclass(frozen=True)
class Forecast:
    """The forecast for every number of nodes, by each algorithm; every node has the same share of work."""

    step: Step
    link: Link
    curves: tuple[tuple[Algorithm, tuple[Point, ...]], ...]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the figures rest on."""
        step = self.step
        return (
            f"a step of {write.seconds(step.seconds)} with {write.bytes_(step.gradient_bytes)} of gradients "
            f"in {len(step.buckets)} {'part' if len(step.buckets) == 1 else 'parts'} ({step.source})",
            f"a link of {self.link}, the same between all nodes, used by nobody else",
            "each node does a whole step of its own: with the nodes grows the batch",
            "all nodes are equally fast; adding gradients up costs nothing; data is there in time",
            f"formulas: {SOURCES}",
        )

    def next_limit(self, algorithm: Algorithm) -> str:
        """What limits, and from how many nodes on something else does, in one sentence."""
        points = dict(self.curves)[algorithm]
        told = [f"{algorithm}: {points[0].limit} limits at {points[0].nodes} nodes"]
        for before, point in pairwise(points):
            if point.limit != before.limit:
                told.append(f"{point.limit} from {point.nodes} on")
        if len(told) == 1:
            return f"{told[0]}, and still does at {points[-1].nodes}"
        return ", ".join(told)

    def __str__(self) -> str:
        from optbook.optimize.forecast_render import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from optbook.optimize.forecast_render import as_html

        return as_html(self)


def all_reduce_seconds(algorithm: Algorithm, nodes: int, size: float, link: Link) -> tuple[float, float]:
    """Seconds that one all-reduce takes, as the link's latency's share and its bandwidth's.

    ring: 2(p-1) messages one after the other, each of n/p bytes: 2(p-1)α + 2(p-1)/p · n/β (Patarasuk and
    Yuan 2009; no algorithm moves fewer bytes). tree: a reduction along a binomial tree and a broadcast back,
    each of ⌈log₂ p⌉ messages of n bytes: 2⌈log₂ p⌉(α + n/β) (Thakur et al. 2005).

    Args:
        algorithm: 'ring' or 'tree'.
        nodes: p, how many take part.
        size: n, in bytes.
        link: α and β.
    """
    if algorithm == "ring":
        messages = 2 * (nodes - 1)
        return messages * link.latency, messages / nodes * size / link.bandwidth
    messages = 2 * math.ceil(math.log2(nodes))
    return messages * link.latency, messages * size / link.bandwidth


def forecast(
    step: Step,
    link: Link,
    nodes: Sequence[int] = NODES,
    algorithms: Sequence[Algorithm] = ALGORITHMS,
) -> Forecast:
    """What so many nodes would reach together.

    A bucket's all-reduce begins once its gradients are ready and the one before it is through; the optimiser
    begins when all are. What is through before the last gradients are ready is hidden.

    Args:
        step: measured (`optbook.launch(…).step`) or stated.
        link: measured or stated.
        nodes: numbers of nodes, each from 1 on.
        algorithms: of 'ring' and 'tree'.

    Raises:
        OptionError: an argument can't be used.
    """
    for count in nodes:
        _whole("nodes holds", count, MOST_NODES)
    for name in algorithms:
        if name not in ALGORITHMS:
            raise OptionError(f"algorithms holds {short(name)}: take 'ring' or 'tree'")
    if not nodes or not algorithms:
        raise OptionError("nodes or algorithms is empty: leave it out, or give at least one")
    ordered = sorted(set(nodes))
    curves = tuple((name, tuple(_point(step, link, name, count) for count in ordered)) for name in algorithms)
    return Forecast(step, link, curves)


def _point(step: Step, link: Link, algorithm: Algorithm, nodes: int) -> Point:
    end = waiting_for_link = latency = bandwidth = 0.0
    for bucket in sorted(step.buckets, key=lambda bucket: bucket.ready):
        of_latency, of_bandwidth = all_reduce_seconds(algorithm, nodes, bucket.size, link)
        latency, bandwidth = latency + of_latency, bandwidth + of_bandwidth
        end = max(end, bucket.ready) + of_latency + of_bandwidth
        waiting_for_link = max(0.0, end - bucket.ready)
    seconds = step.seconds + waiting_for_link
    limit: Literal["the step itself", "bandwidth", "latency"] = "the step itself"
    if waiting_for_link > HIDDEN * step.seconds:
        limit = "latency" if latency > bandwidth else "bandwidth"
    return Point(
        nodes,
        seconds,
        nodes * step.units / seconds,
        step.seconds / seconds,
        latency + bandwidth,
        waiting_for_link,
        limit,
    )


def _in_range(name: str, value: object, least: float, example: str) -> None:
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not (least <= value and math.isfinite(value))
    ):
        raise OptionError(f"{name} is {short(value)}: give {example}")


def _whole(what: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise OptionError(f"{what} {short(value)}: give a whole number from 1 to {most}")

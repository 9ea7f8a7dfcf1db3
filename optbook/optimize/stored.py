"""Compare two recorded experiments by the times in the log: weaker than running both again."""

from __future__ import annotations

import difflib
import math
import statistics

import numpy as np

from optbook import formatting as write
from optbook.errors import OptionError
from optbook.experiments.log import session
from optbook.experiments.record import Experiment
from optbook.optimize.compare import SMALLEST, Comparison

RESAMPLES = 4000
FEWEST = 6
WEAKER = (
    "from stored times: the two were not run in turn, so whatever else changed between them on the machine "
    "counts as a difference"
)


def find(label: str) -> Experiment:
    """The latest experiment of that label that can be compared.

    Raises:
        OptionError: there is none, or none that went well.
    """
    log = session()
    experiment = log.latest(label, "ok")
    if experiment is not None:
        return experiment
    other = log.latest(label)
    if other is not None:
        raise OptionError(f"{label!r} {other.status}: {other.error or 'no times'}; measure it again")
    labels = log.frame()["label"].unique().tolist()
    near = difflib.get_close_matches(label, labels, 3, 0.5)
    hint = f"did you mean {', '.join(map(repr, near))}?" if near else "%optbook lists what there is"
    raise OptionError(f"no experiment {label!r}: {hint}")


def compare_stored(
    first: Experiment, second: Experiment, *, force: bool = False, seed: int = 0
) -> Comparison:
    """Ratio of the median times of two experiments, with a bootstrap interval.

    Raises:
        OptionError: they are from different machines (unless ``force``), count different things, or have
            too few times.
    """
    if first.machine != second.machine and not force:
        raise OptionError(
            f"{first.label!r} and {second.label!r} are from different machines: "
            "give --force to compare all the same"
        )
    if bool(first.steps) != bool(second.steps) or _work(first) != _work(second):
        raise OptionError(f"{first.label!r} and {second.label!r} count different things: measure both alike")
    for experiment in (first, second):
        if len(experiment.times) < FEWEST:
            raise OptionError(
                f"{experiment.label!r} has only {len(experiment.times)} times: measure it again, longer"
            )
    rng = np.random.default_rng(seed)
    medians = [
        np.median(rng.choice(np.asarray(e.times), (RESAMPLES, len(e.times))), axis=1) for e in (first, second)
    ]
    low, high = (float(q) for q in np.quantile(medians[0] / medians[1], (0.025, 0.975)))
    ratio = statistics.median(first.times) / statistics.median(second.times)
    different = not low <= 1 <= high and abs(math.log(ratio)) >= SMALLEST
    detectable = max((high - low) / 2, SMALLEST)
    nothing = f"no difference seen (one of {write.number(100 * detectable, 2)} % would have been)"
    return Comparison(
        labels=(first.label, second.label),
        verdict=("faster" if ratio > 1 else "slower") if different else nothing,
        ratio=ratio,
        low=low,
        high=high,
        detectable=detectable,
        pairs=min(len(first.times), len(second.times)),
        loops=1,
        looks=1,
        times=(first.times, second.times),
        warnings=(WEAKER, *_differences(first, second)),
    )


def _work(e: Experiment) -> float | None:
    """How much of its unit a run or step does."""
    return (
        None if e.throughput is None or e.seconds is None or e.steps else round(e.throughput * e.seconds, 6)
    )


def _differences(first: Experiment, second: Experiment) -> list[str]:
    found = []
    for what, a, b in (("flags", first.flags, second.flags), ("versions", first.versions, second.versions)):
        for name in sorted(a.keys() | b.keys()):
            if a.get(name) != b.get(name):
                found.append(
                    f"{what} differ: {name} was {a.get(name, 'not set')}, then {b.get(name, 'not set')}"
                )
    if first.machine != second.machine:
        found.append("they are from different machines")
    return found

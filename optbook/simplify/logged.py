"""A ceiling in the log: what each variant reached is an experiment of its own, marked with its stubs."""

from __future__ import annotations

import statistics as basic
from collections.abc import Mapping, Sequence

from optbook import settings as configuration
from optbook.benchmark import statistics
from optbook.experiments import log
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.record import Experiment
from optbook.simplify.bed import REAL, Variant
from optbook.simplify.result import Ceiling

SHORTEST = 1e-9
"""Seconds of what took no time that a clock could tell."""
_SAME = ("unit", "notebook", "participant", "session", "machine", "cores", "git_revision", "git_dirty",
         "modules_hash", "versions", "flags", "seed")  # fmt: skip


def logged(result: Ceiling, times: Mapping[Variant, Sequence[float]], real: Experiment) -> Ceiling:
    """Record the variants, and store the ceiling's text and table with the real experiment.

    Args:
        result: the ceiling.
        times: seconds per run or step of each variant.
        real: the measurement of the real system, recorded already.
    """
    names = [part.component for part in result.parts if not part.error]
    kept = {(name,) for name in names} | {tuple(names)}
    kept |= {tuple(other for other in names if other != name) for name in names}
    with_source = configuration.settings().store_source
    for variant, seconds in times.items():
        if variant != REAL and set(variant) in [set(each) for each in kept]:
            log.record(_experiment(variant, seconds, times[REAL], real))
    text = str(result) if with_source else ""
    log.record_profile(StoredProfile.of(real, "ceiling", text, result.to_frame()))
    return result


def _experiment(
    variant: Variant, seconds: Sequence[float], of_real: Sequence[float], real: Experiment
) -> Experiment:
    seconds = [max(each, SHORTEST) for each in seconds]
    found = statistics.median(seconds)
    rate = found.inverse((real.throughput or 0.0) * basic.median(of_real))
    units = {unit: value * basic.median(of_real) / found.value for unit, value in real.units.items()}
    return Experiment(
        label=f"{real.label} without {', '.join(variant)}",
        stubs=",".join(variant),
        throughput=rate.value,
        throughput_low=rate.low,
        throughput_high=rate.high,
        units=units,
        seconds=found.value,
        seconds_low=found.low,
        seconds_high=found.high,
        runs=len(seconds),
        times=tuple(seconds),
        warnings=("part of a ceiling: interleaved with the real system",),
        **{name: getattr(real, name) for name in _SAME},
    )

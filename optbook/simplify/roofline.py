"""At which throughput of the system a component itself would meet the machine's roofline."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optbook import formatting as write
from optbook.benchmark.compilation import eagerly
from optbook.benchmark.machine import peaks as machine
from optbook.simplify import autograd
from optbook.simplify.bed import Bed
from optbook.simplify.imitate import LATER
from optbook.simplify.patching import Real
from optbook.simplify.subjects import Subject

if TYPE_CHECKING:
    from optbook.benchmark.machine.peaks import Peaks

HOW = (
    "roofline: FLOPs and bytes of torch's operators, counted in a run of its own, each operator at this "
    "machine's measured peak of arithmetic or of memory, whichever takes longer; — where it can't be counted"
)
NO_PEAKS = "no roofline: this machine's peaks are not measured yet; optbook.peaks() does so once, in seconds"


@dataclass(frozen=True)
class Bounds:
    """By component: the throughput against the real system's; what was counted; and how, for all of them."""

    ratios: Mapping[str, float] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(eq=False)
class Counting:
    """A filling that calls the component for real and adds up what torch's operators do in it.

    Of an output with a graph the backward is run once more, and counted too.

    Attributes:
        calls: that were counted.
        flops, moved: of all of them; bytes of all operands and results.
        seconds: at the peaks; of those, ``forward`` without backwards.
        without_peak: data types and devices of which no peak is known.
    """

    peaks: Peaks | None
    calls: int = 0
    flops: int = 0
    moved: int = 0
    seconds: float = 0.0
    forward: float = 0.0
    without_peak: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """One for another process starts anew."""
        return Counting, (self.peaks,)

    def fill(self, real: Real) -> Callable[..., Any]:
        """See `patching.Filling`."""
        from optbook.benchmark.profiles.module_counts import Counts

        call = real.call

        def counted(*args: Any, **kwargs: Any) -> Any:
            counts = Counts(self.peaks, keeps=False)
            with counts.counting():
                result = call(*args, **kwargs)
                forward = len(counts.work)
                if autograd.is_on():
                    autograd.backward_once(args, kwargs, result)
            if isinstance(result, LATER):
                return result
            times = [work.arithmetic + work.memory for work in counts.work]
            with self._lock:
                self.calls += 1
                self.flops += sum(work.flops for work in counts.work)
                self.moved += sum(work.moved for work in counts.work)
                self.seconds += sum(times)
                self.forward += sum(times[:forward])
                self.without_peak |= counts.without_peak
            return result

        return counted if real.flavour == "function" else call


def bounds(bed: Bed, subjects: Sequence[Subject], real: float) -> Bounds:
    """Count the components' work in one run, and hold it against the machine's roofline.

    A part's bound is the real system's time ÷ its calls' time on the roofline (Williams et al., CACM 52,
    2009), operator by operator: fused operators, and data that stay in a cache, can beat it.

    Args:
        bed: where the workload is run.
        subjects: the components.
        real: seconds of a run or step of the real system.
    """
    if "torch" not in sys.modules or not subjects:
        return Bounds()
    peaks = machine.known()
    counting = {subject.name: Counting(peaks) for subject in subjects}
    with eagerly():
        problem = bed.works(tuple((subject.component, counting[subject.name]) for subject in subjects))
    if problem:
        return Bounds(note=f"no roofline: while FLOPs were counted, the workload raised {problem}")
    counted = [subject for subject in subjects if counting[subject.name].moved]
    if not counted:
        return Bounds()
    if peaks is None:
        return Bounds(note=NO_PEAKS)
    ratios, remarks = {}, {}
    waits = bed.clock.device() is not None  # calls return before the device is done: their time says nothing
    for subject in counted:
        count = counting[subject.name]
        flops = write.flops(count.flops / count.calls).removesuffix("/s")
        each = f"{flops} and {write.bytes_(count.moved / count.calls)} a call"
        remarks[subject.name] = f"roofline: {each}"
        if count.seconds > count.forward:
            remarks[subject.name] += ", backward included"
        if count.without_peak:
            remarks[subject.name] = (
                f"no roofline: no peak was measured for {', '.join(sorted(count.without_peak))}"
            )
        elif not waits and count.forward > subject.cost.seconds * count.calls:
            remarks[subject.name] = (
                f"no roofline: {each} can't be done faster than the machine's peaks allow: "
                "the data stayed in a cache"
            )
        else:
            ratios[subject.name] = real / (subject.calls * count.seconds / count.calls)
    return Bounds(ratios, remarks, HOW)

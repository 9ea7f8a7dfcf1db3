"""That two versions were checked for giving the same results, as the log keeps it: beside the profiles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from optbook.experiments.errors import LogError
from optbook.experiments.log import record_profile
from optbook.experiments.profiles import StoredProfile

KIND = "same results"


@dataclass(frozen=True)
class ResultCheck:
    """Whether `second` gave the results of `first`; ``sentence`` says how that was found."""

    first: str
    second: str
    holds: bool
    sentence: str


def record_check(check: ResultCheck) -> None:
    """Store a check."""
    import pandas as pd

    row = {
        "first": [check.first],
        "second": [check.second],
        "holds": [check.holds],
        "sentence": [check.sentence],
    }
    table = pd.DataFrame(row).to_json(orient="split")
    text = f"{check.second} against {check.first}: {check.sentence}"
    record_profile(StoredProfile("", check.second, KIND, datetime.now(UTC), text, table))


def result_checks(profiles: Iterable[StoredProfile]) -> list[ResultCheck]:
    """The checks among the stored profiles, oldest first; what can't be read is passed over."""
    found = []
    for profile in profiles:
        if profile.kind == KIND:
            try:
                row = profile.to_frame().to_dict("records")[0]
            except (LogError, IndexError):
                continue
            first, second, sentence = (row.get(name) for name in ("first", "second", "sentence"))
            if isinstance(first, str) and isinstance(second, str) and isinstance(sentence, str):
                found.append(ResultCheck(first, second, row.get("holds") is True, sentence))
    return found

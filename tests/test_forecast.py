"""The forecast: formulas by hand, overlap, limits, bad input, and how it is shown."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import Any

import pytest

from optbook.errors import OptionError
from optbook.optimize.forecast import Bucket, Forecast, Link, Step, all_reduce_seconds, forecast

LINK = Link(latency=1e-3, bandwidth=1e6)


def test_a_ring_sends_twice_the_share_of_the_others_and_a_tree_everything_at_each_level() -> None:
    assert all_reduce_seconds("ring", 4, 8e6, LINK) == pytest.approx((6e-3, 12.0))
    assert all_reduce_seconds("tree", 4, 8e6, LINK) == pytest.approx((4e-3, 32.0))
    assert all_reduce_seconds("tree", 5, 8e6, LINK) == pytest.approx((6e-3, 48.0))
    assert [all_reduce_seconds(name, 1, 8e6, LINK) for name in ("ring", "tree")] == [(0, 0)] * 2


def test_one_node_reaches_what_was_measured() -> None:
    step = Step.even(0.1, 0.05, 1e6, units=64, unit="sample")
    (point,) = dict(forecast(step, LINK, [1]).curves)["ring"]
    assert [point.throughput, point.efficiency, point.waiting] == pytest.approx([640, 1, 0])


def test_one_bucket_hides_nothing_and_many_hide_all_but_the_last() -> None:
    link = Link(0.0, 1e6)
    whole = forecast(Step.even(3.0, 2.0, 1e6), link, [2], ["ring"]).curves[0][1][0]
    parts = forecast(Step.even(3.0, 2.0, 1e6, buckets=4), link, [2], ["ring"]).curves[0][1][0]
    assert whole.waiting == pytest.approx(1.0)
    assert whole.efficiency == pytest.approx(0.75)
    assert parts.waiting == pytest.approx(0.25)
    assert parts.communication == whole.communication


def test_buckets_queue_behind_each_other() -> None:
    step = Step(10.0, (Bucket(1.0, 4e6), Bucket(2.0, 4e6)))
    (point,) = forecast(step, Link(0.0, 1e6), [2], ["ring"]).curves[0][1]
    assert point.waiting == pytest.approx(1.0 + 8.0 - 2.0)


def test_time_after_the_backward_pass_hides_nothing() -> None:
    early = forecast(Step.even(1.0, 0.5, 1e6, after=0.5), Link(0.0, 1e6), [2], ["ring"])
    assert early.curves[0][1][0].seconds == pytest.approx(2.0)


def test_efficiency_falls_with_the_nodes_and_the_limit_changes_from_bandwidth_to_latency() -> None:
    found = forecast(Step.even(1.0, 0.5, 1e5), LINK)
    for _, points in found.curves:
        assert [p.nodes for p in points] == [2**i for i in range(1, 11)]
        assert all(a.efficiency >= b.efficiency for a, b in pairwise(points))
        assert all(p.throughput == pytest.approx(p.nodes * p.efficiency) for p in points)
    assert found.next_limit("ring") == "ring: bandwidth limits at 2 nodes, latency from 128 on"


def test_a_step_that_hides_everything_is_what_limits() -> None:
    found = forecast(Step.even(1.0, 0.5, 1.0), Link(0.0, 1e9))
    assert found.next_limit("tree") == "tree: the step itself limits at 2 nodes, and still does at 1024"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Link(-1.0, 1e6), "latency is -1.0: give seconds"),
        (lambda: Link(0.0, 0.0), "bandwidth is 0.0: give bytes per second"),
        (lambda: Link(0.0, math.nan), "bandwidth is nan"),
        (lambda: Link(0.0, True), "bandwidth is True"),
        (lambda: Link("1", 1e6), "latency is '1'"),  # type: ignore[arg-type]
        (lambda: Step(0.0, (Bucket(0, 1),)), "seconds is 0.0"),
        (lambda: Step(1.0, ()), "buckets is empty"),
        (lambda: Step(1.0, (Bucket(2.0, 1),)), "ready after 2 s of a step of 1 s"),
        (lambda: Step.even(1.0, 0.9, 1e6, after=0.2), "backward and after are 1.1 s, the step 1 s"),
        (lambda: Step.even(1.0, 0.5, 1e6, buckets=0), "buckets is 0"),
        (lambda: Step.even(1.0, 0.5, -1.0), "size is -1.0: give bytes"),
        (lambda: forecast(Step.even(1.0, 0.5, 1e6), LINK, [0]), "nodes holds 0"),
        (lambda: forecast(Step.even(1.0, 0.5, 1e6), LINK, [2.0]), "nodes holds 2.0"),  # type: ignore[list-item]
        (lambda: forecast(Step.even(1.0, 0.5, 1e6), LINK, []), "nodes or algorithms is empty"),
        (lambda: forecast(Step.even(1.0, 0.5, 1e6), LINK, algorithms=["star"]), "take 'ring' or 'tree'"),  # type: ignore[list-item]
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(make: Any, said: str) -> None:
    with pytest.raises(OptionError) as raised:
        make()
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_it_is_shown_with_its_assumptions_and_escaped() -> None:
    step = dataclasses.replace(Step.even(1.0, 0.5, 1e6, units=8, unit="<b>hot dog</b>"), source="<i>me</i>")
    found: Forecast = forecast(step, Link(1e-4, 1e6, "<u>guess</u>"), [2, 3, 1024])
    text, html = str(found), found._repr_html_()
    for words in ("Thakur", "Patarasuk", "guess", "8.00 Mbit/s", "ring", "tree", "1024", "efficiency"):
        assert words in text
        assert words in html
    for raw in ("<b>hot dog", "<i>me", "<u>guess"):
        assert raw not in html
    assert html.count("<polyline") == 2
    assert "<script" not in html


def test_one_number_of_nodes_can_be_drawn() -> None:
    assert "nan" not in forecast(Step.even(1.0, 0.5, 1e6), LINK, [2])._repr_html_()

"""The progress plot."""

from __future__ import annotations

import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optbook.errors import OptionError
from optbook.experiments.record import Experiment
from optbook.repeat import plots
from tests.logs import frame_of, measured, story


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def markers(figure: Figure) -> dict[str, str]:
    """Kind → its marker, or the marker of its line."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    lines: list[Any] = [handle[0] if isinstance(handle, tuple) else handle for handle in handles]
    return {label: str(line.get_marker()) for line, label in zip(lines, labels, strict=True)}


def line_of(axes: Axes, label: str) -> Any:
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return line


def bars_of(axes: Axes) -> dict[str, Any]:
    """Label → (marker line, caps, bars)."""
    containers: list[Any] = list(axes.containers)
    return {container.get_label(): container.lines for container in containers}


def test_every_kind_has_a_marker_of_its_own_and_a_name() -> None:
    figure = plots.progress(frame_of(*story()))
    found = markers(figure)
    assert found["measured"] == "o"
    assert found["with stubs: not the real system"] == "D"
    assert found["void: not to be trusted"] == "s"
    assert found["failed"] == "x"
    assert set(legend(figure)) == set(found)
    assert len({style["marker"] for style in plots.STYLES.values()}) == len(plots.STYLES)


def test_what_does_not_count_is_hollow() -> None:
    axes = plots.progress(frame_of(*story())).axes[0]
    faces = {label: lines[0].get_markerfacecolor() for label, lines in bars_of(axes).items()}
    assert faces["measured"] != "none"
    assert faces["with stubs: not the real system"] == "none"
    assert faces["void: not to be trusted"] == "none"


def test_the_best_so_far_is_a_step_line_that_ignores_stubs() -> None:
    axes = plots.progress(frame_of(*story())).axes[0]
    line = line_of(axes, "best so far")
    assert list(line.get_ydata()) == [4, 4, 4, 8, 8, 8, 8, 16, 16]
    assert line.get_drawstyle() == "steps-post"


def test_the_intervals_are_drawn() -> None:
    axes = plots.progress(frame_of(measured("a", 4.0), measured("b", 8.0))).axes[0]
    segments = bars_of(axes)["measured"][2][0].get_segments()
    assert [tuple(segment[:, 1]) for segment in segments] == [
        pytest.approx((3.8, 4.2)),
        pytest.approx((7.6, 8.4)),
    ]


def test_failed_ones_are_at_the_bottom() -> None:
    axes = plots.progress(frame_of(*story())).axes[0]
    cross = line_of(axes, "failed")
    assert list(cross.get_xdata()) == [3]
    assert cross.get_transform() == axes.get_xaxis_transform()


@pytest.mark.parametrize(("values", "scale"), [((1, 9), "linear"), ((1, 11), "log")])
def test_the_scale_is_logarithmic_beyond_a_factor_of_ten(values: tuple[int, ...], scale: str) -> None:
    frame = frame_of(*(measured(str(value), float(value)) for value in values))
    assert plots.progress(frame).axes[0].get_yscale() == scale


def test_a_few_experiments_are_labelled_without_overlap() -> None:
    names = [f"a rather long label, number {number} of twelve" for number in range(12)]
    figure = plots.progress(frame_of(*(measured(name, 1.0 + n) for n, name in enumerate(names))))
    figure.draw_without_rendering()
    labels = figure.axes[0].get_xticklabels()
    assert len(labels) == 12
    assert labels[3].get_text().startswith("a rather long label")
    room = figure.axes[0].get_window_extent().width / 12
    height = plots.LABEL_SIZE * figure.dpi / 72
    assert room * 0.5 > height  # sloped by 30°, neighbours are half their distance apart


def test_many_experiments_are_numbered() -> None:
    axes = plots.progress(frame_of(*(measured("x", 1.0) for _ in range(13)))).axes[0]
    assert axes.get_xlabel() == "experiment"


def test_the_title_is_the_sentence() -> None:
    axes = plots.progress(frame_of(*story())).axes[0]
    assert axes.get_title(loc="left") == "8 experiments; best 16.0 batches/s, 4.0× the first"
    assert axes.get_ylabel() == "batches/s"


@pytest.mark.parametrize(
    "frame",
    [
        frame_of(),
        frame_of(Experiment(label="f", status="failed")),
        frame_of(measured("a", 1.0)),
        frame_of(Experiment(label="zero", unit="batch", throughput=0.0)),
        frame_of(Experiment(label="no interval", unit="batch", throughput=3.0)),
        frame_of(Experiment(label="x", throughput=3.0, throughput_low=5.0, throughput_high=1.0)),
    ],
)
def test_odd_logs_are_drawn(frame: object) -> None:
    figure = plots.progress(frame)  # type: ignore[arg-type]
    assert plots.as_svg(figure, "words").startswith("<svg ")


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(OptionError, match="tokens"):
        plots.progress(frame_of(*story()), "tokens")


def svg_of(*experiments: Experiment) -> str:
    return plots.as_svg(plots.progress(frame_of(*experiments)), 'what it "shows" <b>')


def test_the_svg_follows_the_page() -> None:
    svg = svg_of(*story())
    root = ET.fromstring(svg)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == 'what it "shows" <b>'
    assert "currentColor" in svg
    assert f"{plots.INK};" not in svg
    assert "<style" not in svg
    assert "<metadata" not in svg
    assert "var(--jp-ui-font-family" in svg
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "decode once" in words


@pytest.mark.parametrize(
    "label", ["<script>alert(1)</script>", "$x^$", "a & b", '"', "\x00\x1b[0m", "_hidden"]
)
def test_labels_are_text_whatever_they_hold(label: str) -> None:
    root = ET.fromstring(svg_of(measured(label, 1.0, stubs=label), measured("other", 2.0)))
    assert "other" in [element.text for element in root.iter()]
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert "script" not in tags


def test_a_label_that_looks_like_style_stays_as_it_is() -> None:
    svg = svg_of(measured(f"{plots.INK}; font-family: x", 1.0), measured("b", 2.0))
    assert f">{plots.INK}; font-family: x<" in svg


def test_letters_that_the_font_lacks_are_left_to_the_page() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg = svg_of(measured("汉字 🌭", 1.0), measured("b", 2.0))
    assert "汉字 🌭" in svg


def test_plotting_leaves_pyplot_alone() -> None:
    code = (
        "import sys\n"
        "from tests.logs import frame_of, story\n"
        "from optbook.repeat import plots\n"
        "plots.as_svg(plots.progress(frame_of(*story())), 'x')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

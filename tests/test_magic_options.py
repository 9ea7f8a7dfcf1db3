from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optbook.magics import comments_below_magic
from optbook.magics.options import words


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("  a  b ", ["a", "b"]),
        ("--metric acc=f(a, b) x", ["--metric", "acc=f(a, b)", "x"]),
        ("'one label' --runs 3", ["one label", "--runs", "3"]),
        ('n=d["a b"] c', ['n=d["a b"]', "c"]),
        ("it's fine", ["it's", "fine"]),
        ("(odd one", ["(odd", "one"]),
        ("odd) one", ["odd)", "one"]),
        ("f([1, 2], {'a': (3, 4)}) z", ["f([1, 2], {'a': (3, 4)})", "z"]),
        (r"'it\'s' x", ["it's", "x"]),
        ("''", [""]),
        ("a=' b", ["a='", "b"]),
    ],
)
def test_words(line: str, expected: list[str]) -> None:
    assert words(line) == expected


@given(st.text(alphabet="ab ()[]{}'\"\\=,-", max_size=30))
def test_words_never_fails_and_loses_no_letter(line: str) -> None:
    found = "".join(words(line))
    assert [c for c in found if c in "ab"] == [c for c in line if c in "ab"]


def test_comments_go_below_our_cell_magics_only() -> None:
    assert comments_below_magic(["# c\n", "\n", "%%bench x\n", "y\n"]) == [
        "%%bench x\n",
        "# c\n",
        "\n",
        "y\n",
    ]
    for untouched in (["# c\n", "%%time\n"], ["x = 1\n", "%%bench\n"], ["%%bench x\n", "y\n"], ["# c\n"]):
        assert comments_below_magic(list(untouched)) == untouched

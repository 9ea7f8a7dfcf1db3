"""The one ordered list of chapters, and the links between them.

``python -m optbook.workshop.chapters NOTEBOOKS`` writes the links anew after the list has changed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optbook.errors import OptionError

NAVIGATION_TAG = "navigation"


@dataclass(frozen=True)
class Chapter:
    """A notebook, by its name without ``.ipynb``, and its title."""

    name: str
    title: str


CHAPTERS = (
    Chapter("00_start_here", "Start here"),
    Chapter("01_benchmark", "Benchmark: know how fast you are"),
    Chapter("02_profile", "Profile: look inside"),
    Chapter("03_simplify", "Simplify: what would it bring?"),
    Chapter("04_computation", "Compute: do less, then do it faster"),
    Chapter("05_communication", "Communicate: nobody waits"),
    Chapter("06_memory", "Remember less: memory"),
)


def find_chapter(text: str) -> Chapter:
    """The chapter that is meant by its number (``3``, ``03``), name or file.

    Raises:
        OptionError: there is none; the message lists what there is.
    """
    stem = Path(text).name.removesuffix(".ipynb")
    for chapter in CHAPTERS:
        number = chapter.name.partition("_")[0]
        if stem in (chapter.name, number, number.removeprefix("0")):
            return chapter
    raise OptionError(f"no chapter {text!r}: there are {', '.join(chapter.name for chapter in CHAPTERS)}")


def navigation(name: str) -> str:
    """The line of links at the top and bottom of a chapter, in Markdown.

    Raises:
        KeyError: there is no such chapter.
    """
    names = [chapter.name for chapter in CHAPTERS]
    if name not in names:
        raise KeyError(f"no chapter {name!r}: there are {', '.join(names)}")
    i = names.index(name)
    links = []
    if i > 0:
        links.append(f"[← {CHAPTERS[i - 1].title}]({CHAPTERS[i - 1].name}.ipynb)")
    links.append(f"**{i + 1} of {len(CHAPTERS)}**")
    if i + 1 < len(CHAPTERS):
        links.append(f"[{CHAPTERS[i + 1].title} →]({CHAPTERS[i + 1].name}.ipynb)")
    return " · ".join(links)


def write_navigation(folder: Path) -> list[Path]:
    """Write the links into the cells tagged ``navigation`` and return the notebooks that changed."""
    changed = []
    for chapter in CHAPTERS:
        path = folder / f"{chapter.name}.ipynb"
        before = path.read_text(encoding="utf-8")
        notebook: dict[str, Any] = json.loads(before)
        for cell in notebook["cells"]:
            if NAVIGATION_TAG in cell["metadata"].get("tags", ()):
                cell["source"] = [navigation(chapter.name)]
        after = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


if __name__ == "__main__":
    for path in write_navigation(Path(sys.argv[1])):
        print(path)

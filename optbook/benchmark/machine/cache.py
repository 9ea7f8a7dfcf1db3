"""Small results kept on disk for the next session; losing them costs seconds, never a measurement."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

LARGEST_BYTES = 2**20


def folder() -> Path:
    """Where they are kept: the user's cache folder of this operating system."""
    from platformdirs import user_cache_path

    return user_cache_path("optbook", appauthor=False)


def path_of(kind: str, key: str, inside: Path | None = None) -> Path:
    """The file that keeps the ``kind`` of result that belongs to ``key``."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return (inside or folder()) / f"{kind}-{digest}.json"


def load(path: Path, key: str) -> dict[str, Any] | None:
    """What was kept under ``key``; None if nothing was, or if the file can't be read or is something else."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(kept, dict) or kept.get("key") != key or not isinstance(kept.get("value"), dict):
        return None
    value: dict[str, Any] = kept["value"]
    return value


def save(path: Path, key: str, value: dict[str, Any]) -> bool:
    """Keep ``value`` under ``key``, whole or not at all. False where the folder can't be written to."""
    text = json.dumps({"key": key, "value": value}, indent=1)
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        return False
    return True

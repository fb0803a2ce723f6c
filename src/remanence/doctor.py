"""What this machine has, as far as it matters for a run."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

EXTRAS = {"report": ("altair", "vl_convert"), "tables": ("duckdb",), "images": ("PIL",), "hub": ("datasets",)}


def findings() -> Iterator[str]:
    """Lines of `ok`, `note` or `missing`."""
    yield f"ok       Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    for package in ("torch", "numpy", "scikit-learn", "pydantic", "safetensors", "rich"):
        yield f"ok       {package} {importlib.metadata.version(package)}"
    yield f"ok       {len(_cores())} cores: that many worker processes"
    yield _memory()
    free = shutil.disk_usage(Path.cwd()).free
    yield f"{'ok  ' if free > 2**30 else 'note'}     {free / 2**30:.1f} GiB free where runs are written"
    if not sys.platform.startswith("linux"):
        yield "note     devices train one by one: worker processes need Linux"
    if platform.libc_ver()[0] != "glibc":
        yield "note     no glibc: freed memory is handed back, training is slower"
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        yield (
            f"missing  extra '{extra}': pip install 'remanence[{extra}]'" if missing else f"ok       extra '{extra}'"
        )


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return "note     the size of the memory is not known"
    return f"ok       {size / 2**30:.1f} GiB of memory"

"""Fixtures that every area uses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support.lives import Nursery

# A loaded machine is no failure; the same examples everywhere, so that a change is judged by what it changed.
settings.register_profile("etude", deadline=None, derandomize=True)
settings.load_profile("etude")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of data that is not part of the repository: $ETUDE_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("ETUDE_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data in {folder}: set ETUDE_DATA to the folder that holds enron/ and planning/")
    return folder


@pytest.fixture(scope="session")
def enron_dir(data_dir: Path) -> Path:
    folder = data_dir / "enron"
    if not folder.is_dir():
        pytest.skip(f"no Enron mail in {folder}")
    return folder


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, which only root can make."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    made = os.geteuid() == 0 and (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode == 0
    )
    if not made:
        pytest.skip("cannot mount a file system here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Starts Etude in processes of their own, which can be signalled and killed."""
    with Nursery() as nursery:
        yield nursery

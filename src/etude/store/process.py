"""Which process a run belongs to, and whether that process still lives. And what it was made of."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

# A run is told dead by its heartbeat only where its process cannot be looked at (another host or container).
HEARTBEAT_LIMIT_S = 120.0
_PACKAGES = ("etude-rft", "torch", "transformers", "peft", "numpy")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """place: the boot and the pid namespace in which `pid` means something; start: when it started, in clock ticks
    after that boot. Both None where the system has no /proc. So a pid that was used again is never taken for ours."""

    host: str
    pid: int
    place: str | None
    start: str | None

    @classmethod
    def current(cls) -> ProcessId:
        return cls(socket.gethostname(), os.getpid(), _place(), _start(os.getpid()))


def is_alive(process: ProcessId, heartbeat_age_s: float) -> bool:
    """Whether the process still runs. Looked at directly where it can be, else judged by its heartbeat's age."""
    here = _place()
    if here is not None and process.place == here:
        return process.start is not None and _start(process.pid) == process.start
    if here is None and process.host == socket.gethostname() and not _pid_exists(process.pid):
        return False
    return heartbeat_age_s <= HEARTBEAT_LIMIT_S


def package_versions() -> dict[str, str]:
    """Python and the installed packages that decide results; found without importing them."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def git_commit(folder: Path) -> str | None:
    """The commit checked out in `folder`, with "-dirty" where tracked files were changed; None where there is none."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):  # no git here, or a repository too large to ask
        return None
    return result.stdout.strip() or None


def _place() -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _start(pid: int) -> str | None:
    """When process `pid` started; None where there is none, or where it has ended and waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # "pid (name) state …": the name may hold spaces and parentheses. State is field 3, the start time field 22.
    after_name = stat.rpartition(")")[2].split()
    return None if after_name[0] in "ZX" else after_name[19]


def _pid_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

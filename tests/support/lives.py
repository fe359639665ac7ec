"""Trainings in processes of their own, which can be killed: forked from one that has imported everything, so that a
life costs no start of Python. The forking process runs nothing else, and has one thread."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TESTS = Path(__file__).resolve().parent.parent


class Nursery:
    """Starts lives until it is closed, which ends those that are left."""

    def __enter__(self) -> Self:
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.lives"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self._alive: dict[int, Path] = {}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for pid in list(self._alive):
            self.kill(pid)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def train(self, folder: Path, log: Path, **settings: Any) -> int:
        """A process that runs `support.training.train_drawers`; its id. log: where its output goes."""
        pid = int(self._ask("train", folder=str(folder), log=str(log), settings=settings))
        self._alive[pid] = log
        return pid

    def ended(self, pid: int) -> bool:
        """Whether it has ended by itself, as it should. Fails with its output where it should not have."""
        if pid not in self._alive:
            return True
        code = self._ask("ended", pid=pid)
        if code == "":
            return False
        log = self._alive.pop(pid)
        assert code == "0", f"a life ended with {code}:\n{log.read_text()}"
        return True

    def kill(self, pid: int) -> bool:
        """kill -9; whether it lived until then."""
        if self.ended(pid):
            return False
        os.kill(pid, signal.SIGKILL)
        del self._alive[pid]
        return self._ask("reap", pid=pid) == str(-signal.SIGKILL)

    def _ask(self, what: str, **arguments: Any) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer.endswith("\n"), "the nursery has died"
        return answer.strip()


def serve() -> None:
    """The other side: one JSON object a line, one line of answer each."""
    import etude.training.loop  # noqa: F401
    from support.training import train_drawers  # all that a life needs is imported here, once

    for line in sys.stdin:
        order = json.loads(line)
        if order["what"] == "train":
            pid = os.fork()
            if pid == 0:
                log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(log, 1)
                os.dup2(log, 2)
                train_drawers(Path(order["folder"]), **order["settings"])
                return
            answer: object = pid
        else:
            pid, status = os.waitpid(order["pid"], os.WNOHANG if order["what"] == "ended" else 0)
            answer = os.waitstatus_to_exitcode(status) if pid else ""
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()

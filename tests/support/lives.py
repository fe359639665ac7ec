"""Processes of Etude that can be watched, signalled and killed: forked from one that has imported everything, so that
a life costs no start of Python. The forking process runs nothing else, and has one thread."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

TESTS = Path(__file__).resolve().parent.parent
PATIENCE_S = 120.0


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, f"nothing happened for {PATIENCE_S:g} s"
        time.sleep(0.002)


@dataclass
class Life:
    """One process. log: what it wrote to its standard output and error."""

    nursery: Nursery
    pid: int
    log: Path
    code: int | None = None

    @property
    def output(self) -> str:
        return self.log.read_text()

    def ended(self) -> bool:
        if self.code is None:
            answer = self.nursery.ask("poll", pid=self.pid)
            self.code = int(answer) if answer else None
        return self.code is not None

    def wait(self) -> int:
        """Its exit code, once it has ended; minus the signal's number where that ended it."""
        wait(self.ended)
        assert self.code is not None
        return self.code

    def send(self, number: signal.Signals) -> None:
        assert not self.ended(), f"it had ended with {self.code} before it was signalled:\n{self.output}"
        os.kill(self.pid, number)

    def kill(self) -> bool:
        """kill -9; whether it lived until then. Fails with its output where it had ended in another way than well."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
        code = self.wait()
        assert code in (0, -signal.SIGKILL), f"it ended with {code}:\n{self.output}"
        return code != 0


@dataclass
class Nursery:
    """Starts lives until it is left, which ends those that go on."""

    lives: list[Life] = field(default_factory=list)

    def __enter__(self) -> Self:
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.lives"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for life in self.lives:
            if not life.ended():
                os.kill(life.pid, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)

    def train(self, folder: Path, **settings: Any) -> Life:
        """`support.training.train_drawers` in `folder`."""
        return self._start("train", folder, settings=settings)

    def command(self, folder: Path, *arguments: str) -> Life:
        """`etude ARGUMENTS` in `folder`."""
        return self._start("command", folder, arguments=arguments)

    def _start(self, what: str, folder: Path, **arguments: Any) -> Life:
        log = folder / f"output-{len(self.lives)}.txt"
        life = Life(self, int(self.ask(what, folder=str(folder), log=str(log), **arguments)), log)
        self.lives.append(life)
        return life

    def ask(self, what: str, **arguments: Any) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer.endswith("\n"), "the nursery has died"
        return answer.strip()


def serve() -> None:
    """The other side: one JSON object a line, one line of answer each."""
    for name in ("cli", "cli.display", "training.run", "training.loop", "training.warmstart"):
        importlib.import_module(f"etude.{name}")  # all that a life needs, once
    from support.training import train_drawers

    for line in sys.stdin:
        order = json.loads(line)
        answer: object
        if order["what"] == "poll":
            pid, status = os.waitpid(order["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else ""
        elif (answer := os.fork()) == 0:
            if order["what"] == "train":
                _live(order, partial(train_drawers, Path(order["folder"]), **order["settings"]))
            sys.argv = ["etude", *order["arguments"]]
            _live(order, importlib.import_module("etude.cli").main)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _live(order: dict[str, Any], work: Callable[[], object]) -> NoReturn:
    """Ends without what Python does at exit, which takes a second after a fork: every object is touched once more."""
    os.chdir(order["folder"])
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    code: object = 0
    try:
        work()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - shown as Python would show it
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)


if __name__ == "__main__":
    serve()

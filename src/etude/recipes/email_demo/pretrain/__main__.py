"""Command line: `python -m etude.recipes.email_demo.pretrain --out FOLDER`. Run it again to go on where it stopped."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etude.errors import EtudeError
from etude.recipes.email_demo.pretrain.settings import PretrainSettings
from etude.recipes.email_demo.pretrain.stages import Machine, pretrain

log = logging.getLogger("etude.pretrain")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 75 (EX_TEMPFAIL) stopped in time and to be run again, else an error's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of everything that is made")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that make traces")
    parser.add_argument("--compile", action="store_true", help="run the model through torch.compile")
    parser.add_argument("--stop-after", type=float, default=None, help="seconds after which to stop, to go on later")
    for field in dataclasses.fields(PretrainSettings):
        name, kind = f"--{field.name.replace('_', '-')}", type(field.default)
        takes: dict[str, Any] = {"type": float, "nargs": "+"} if kind is tuple else {"type": kind}
        parser.add_argument(name, default=field.default, help="a setting", **takes)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    names = [field.name for field in dataclasses.fields(PretrainSettings)]
    settings = PretrainSettings(**{name: getattr(given, name) for name in names} | {"skills": tuple(given.skills)})
    try:
        done = pretrain(settings, given.out, Machine(given.device, given.workers, given.compile, given.stop_after))
    except EtudeError as error:
        log.error("%s", error)
        return error.exit_code
    log.info("%s", f"the model is in {given.out / 'model'}" if done else "stopped in time: run the same command again")
    return 0 if done else os.EX_TEMPFAIL


if __name__ == "__main__":
    sys.exit(main())

"""`etude init`: a new environment, from a template that runs as it is."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from etude.errors import ConfigError, StorageError


def register(app: typer.Typer) -> None:
    app.command("init")(init_command)


def init_command(
    folder: Annotated[Path, typer.Argument(help="Folder to make, or an empty one.")],
) -> None:
    """Start a new environment from a commented template: tools, a grader, scenarios, a configuration.

    What it makes runs as it is, on a CPU and within a minute; then replace the tools and the grader with your own.

    Example:

      etude init my_agent && cd my_agent && etude train config.yaml training.steps=2
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already and not an empty folder: choose another name")
    console = Console()
    with resources.as_file(resources.files("etude") / "template") as template:
        files = sorted(file for file in template.iterdir() if file.is_file())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for file in files:
                shutil.copyfile(file, folder / file.name)
        except OSError as error:
            raise StorageError(f"cannot write {folder}: {error.strerror or error}") from error
    console.print(f"made [bold]{folder}[/bold]: {', '.join(file.name for file in files)}")
    console.print(
        f"next: [cyan]cd {folder} && etude train config.yaml training.steps=2[/cyan], then read README.md there"
    )

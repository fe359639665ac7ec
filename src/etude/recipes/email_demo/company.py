"""A generated company on disk: its mail as a database, its questions as scenarios. Built once, then found again."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from etude.environment.scenario import Scenario, load_scenarios
from etude.errors import StorageError
from etude.recipes.email_demo.corpus import generate, write_corpus
from etude.recipes.email_demo.names import Split
from etude.recipes.email_search.database import SCHEMA_VERSION, MailDatabase
from etude.recipes.email_search.importing import import_mail

_DATABASE = "mail.db"


@dataclass(frozen=True, slots=True)
class CompanySize:
    """inboxes of `mails_per_inbox` mails each, and `questions` spread over them."""

    inboxes: int
    mails_per_inbox: int
    questions: int


@dataclass(frozen=True, slots=True)
class Company:
    database: MailDatabase
    scenarios: tuple[Scenario, ...]


def open_company(folder: Path, split: Split, seed: int, size: CompanySize) -> Company:
    """The company that these arguments make, from a folder under `folder`, where it is built if it is not there yet.

    What is there appears as a whole or not at all, and is not taken if the generator has changed since.
    Raises ConfigError for sizes that cannot be had, StorageError where it cannot be written.
    """
    home = folder / f"{split}-{_fingerprint(split, seed, size)}"
    if not home.is_dir():
        try:
            _build(home, split, seed, size)
        except OSError as error:
            raise StorageError(f"{home} was not built: {error}") from error
    questions = load_scenarios(home / f"questions_{split}.jsonl", split)
    return Company(MailDatabase(home / _DATABASE), tuple(questions))


def _build(home: Path, split: Split, seed: int, size: CompanySize) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
    try:
        mails, _ = write_corpus(generate(split, seed, **asdict(size)), unfinished)
        import_mail([mails], unfinished / _DATABASE)
        mails.unlink()
        try:
            unfinished.rename(home)
        except OSError:
            if not home.is_dir():  # else somebody else has built the same meanwhile
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _fingerprint(split: str, seed: int, size: CompanySize) -> str:
    digest = hashlib.sha256(repr((split, seed, size, SCHEMA_VERSION)).encode())
    for file in _generator_files():
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _generator_files() -> Iterator[Traversable]:
    """The texts and modules that mails and questions come from."""
    package = files(__package__)
    for folder, suffix in ((package.joinpath("wording"), ".yaml"), (package, ".py")):
        yield from sorted((file for file in folder.iterdir() if file.name.endswith(suffix)), key=lambda file: file.name)

"""The mail and the questions of a fictional company, from a seed. The same arguments give the same bytes."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random

from etude.errors import ConfigError
from etude.recipes.email_demo.cast import Cast, Person
from etude.recipes.email_demo.drafts import Draft, Parties, Writer, workday
from etude.recipes.email_demo.inbox import Inbox
from etude.recipes.email_demo.names import SPLITS, Split, names_of
from etude.recipes.email_demo.noise import noise_fillings
from etude.recipes.email_demo.questions import Asker
from etude.recipes.email_demo.rows import MailRow, QuestionRow
from etude.recipes.email_demo.wording import Wording, load_wording

ANNOUNCE_SHARE = 0.015
UNSEEN_SHARE: Mapping[Split, float] = {"pretrain": 0.0, "train": 0.0, "validation": 1 / 3, "test": 1 / 3}
FEWEST_MAILS, MOST_INBOXES = 20, 30  # an importer drops mail to more than thirty people


@dataclass(frozen=True, slots=True)
class Corpus:
    """mails: by date, those of all inboxes. questions: about one inbox each (`inbox` is its address)."""

    split: Split
    mails: tuple[MailRow, ...]
    questions: tuple[QuestionRow, ...]


def generate(split: Split, seed: int, inboxes: int, mails_per_inbox: int, questions: int) -> Corpus:
    """One company's mail: `inboxes` inboxes of exactly `mails_per_inbox` mails, and questions spread over them.

    Splits share no name of a person, company, project, place or house; a third of the questions of "validation" and
    "test" is worded like none of "pretrain" and "train" (`wording`: "unseen"). Raises ConfigError for sizes that
    cannot be had.
    """
    _check(split, inboxes, mails_per_inbox, questions)
    wording = load_wording()
    rng = Random(f"{split} {seed}")
    company = rng.choice(names_of("company", split))
    start = datetime(
        rng.randint(2012, 2027), rng.randint(1, 12), 1, tzinfo=timezone(timedelta(hours=rng.randint(-8, 3)))
    )
    causes = list(wording.lists["cause"])
    casts = [
        Cast(split, company, mails_per_inbox, causes, Random(f"{split} {seed} people {number}"))
        for number in range(inboxes)
    ]
    shared = _announcements(wording, casts, start, mails_per_inbox, rng)
    own: list[list[Draft]] = []
    for number, cast in enumerate(casts):
        inbox = Inbox(wording, cast, start, mails_per_inbox, Random(f"{split} {seed} mails {number}"))
        own.append(inbox.drafts(mails_per_inbox - len(shared)))
    ids = _message_ids(len(shared) + sum(map(len, own)), rng)
    sent = [(next(ids), draft, casts[0].owner) for draft in shared]
    rows: list[QuestionRow] = []
    for number, (cast, drafts) in enumerate(zip(casts, own, strict=True)):
        named = {next(ids): draft for draft in drafts}
        sent += [(message_id, draft, cast.owner) for message_id, draft in named.items()]
        asker = Asker(wording, cast, named, UNSEEN_SHARE[split], Random(f"{split} {seed} questions {number}"))
        rows += asker.ask(questions // inboxes + (number < questions % inboxes))
    for number, row in enumerate(rows):
        row["id"] = f"{split}-{seed}-{number:05}"
    sent.sort(key=lambda item: (item[1].when, item[0]))
    return Corpus(split, tuple(_mail_row(*item) for item in sent), tuple(rows))


def write_corpus(corpus: Corpus, folder: Path) -> tuple[Path, Path]:
    """Write `mail.jsonl.xz` and `questions_SPLIT.jsonl` into the folder, which is made; returns both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    mails, questions = folder / "mail.jsonl.xz", folder / f"questions_{corpus.split}.jsonl"
    mails.write_bytes(lzma.compress(_lines(corpus.mails), preset=1))
    questions.write_bytes(_lines(corpus.questions))
    return mails, questions


def _lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _check(split: str, inboxes: int, mails_per_inbox: int, questions: int) -> None:
    if split not in SPLITS:
        raise ConfigError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
    if not 1 <= inboxes <= MOST_INBOXES:
        raise ConfigError(f"inboxes must be from 1 to {MOST_INBOXES}, not {inboxes}")
    if mails_per_inbox < FEWEST_MAILS:
        raise ConfigError(f"mails_per_inbox must be at least {FEWEST_MAILS}, not {mails_per_inbox}")
    if questions < 0:
        raise ConfigError(f"questions must not be negative: {questions}")


def _announcements(
    wording: Wording, casts: Sequence[Cast], start: datetime, mails_per_inbox: int, rng: Random
) -> list[Draft]:
    """Mails to everyone: they count in each inbox."""
    office = Person("Front", "Office", casts[0].domain)
    everyone = tuple(cast.owner for cast in casts)
    writer = Writer(wording, casts[0], rng)
    drafts: dict[tuple[str, str], Draft] = {}
    for _ in range(round(ANNOUNCE_SHARE * mails_per_inbox)):
        subject, body = rng.choice(wording.announce)
        text = body.write(rng, noise_fillings(rng))
        when = writer.at_work(workday(start + timedelta(days=rng.randrange(max(60, mails_per_inbox // 6)))))
        draft = Draft(when, Parties(office, everyone), subject.write(rng, {}), f"{text}\n\nThe front office")
        drafts.setdefault((draft.subject, draft.body), draft)
    return list(drafts.values())


def _message_ids(count: int, rng: Random) -> Iterator[str]:
    """Short ids that tell nothing of order: "m" and at least three digits, all of the same length."""
    least = 100
    while 9 * least < count:
        least *= 10
    return iter([f"m{number}" for number in rng.sample(range(least, 10 * least), count)])


def _mail_row(message_id: str, draft: Draft, owner: Person) -> MailRow:
    parties = draft.parties
    return {
        "message_id": message_id,
        "date": draft.when.isoformat(),
        "subject": draft.subject,
        "from": parties.sender.address,
        "to": [person.address for person in parties.to],
        "cc": [person.address for person in parties.cc],
        "bcc": [],
        "body": draft.body,
        "file_name": f"{owner.given}.{owner.surname}/{'sent' if parties.sender == owner else 'inbox'}".lower(),
    }

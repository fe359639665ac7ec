"""Whether questions and mails keep their promises, judged by their text alone."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from etude.recipes.email_demo.corpus import Corpus
from etude.recipes.email_demo.reading import Reader, Reading
from etude.recipes.email_demo.rows import MailRow, QuestionRow
from etude.recipes.email_demo.wording import load_wording


@dataclass(frozen=True, slots=True)
class Problem:
    """where: id of a question or mail, or a pair of splits."""

    where: str
    what: str


def holds(forms: Iterable[str], text: str) -> bool:
    """Whether one of the forms occurs in the text as whole words and numbers, as the question rows define it."""
    low = " ".join(text.lower().split())
    return any(
        re.search(rf"(?<![a-z0-9])(?<!\d[.,]){re.escape(form)}(?![a-z0-9])(?![.,]\d)", low) is not None
        for form in forms
    )


def verify(questions: Sequence[QuestionRow], mails: Sequence[MailRow]) -> list[Problem]:
    """All that is wrong with the questions of an inbox and its mails; an empty list if nothing is."""
    problems = [Problem(name, "id occurs twice") for name in _repeated(row["id"] for row in questions)]
    problems += [Problem(name, "message id occurs twice") for name in _repeated(mail["message_id"] for mail in mails)]
    contents = Counter((mail["subject"], mail["body"], mail["from"]) for mail in mails)
    problems += [Problem(subject, "two mails are the same") for (subject, _, _), n in contents.items() if n > 1]
    asked = Counter((row["inbox"], row["question"], row["query_date"]) for row in questions)
    problems += [Problem(question, "asked twice") for (_, question, _), n in asked.items() if n > 1]
    check = _Check(mails)
    for row in questions:
        problems += [Problem(row["id"], what) for what in check(row)]
    return problems


def verify_disjoint(corpora: Sequence[Corpus]) -> list[Problem]:
    """Words of mails and questions that two corpora of different splits share, though they are not everyday words."""
    problems = []
    names = [(corpus.split, invented_words(corpus)) for corpus in corpora]
    for number, (split, words) in enumerate(names):
        for other_split, other_words in names[:number]:
            if split != other_split:
                shared = sorted(words & other_words)
                problems += [Problem(f"{other_split} and {split}", f"share the name {word}") for word in shared]
    return problems


def invented_words(corpus: Corpus) -> set[str]:
    """The lower-case words of the corpus that are not in the texts of the wording: its names and codes of letters."""
    texts = [text for mail in corpus.mails for text in (mail["subject"], mail["body"], mail["from"])]
    texts += [text for row in corpus.questions for text in (row["question"], row["answer"])]
    return {word for text in texts for word in words(text) if len(word) > 3} - load_wording().vocabulary


def words(text: str) -> list[str]:
    """Lower-case words of letters only."""
    return re.findall(r"(?<![^\W_])[a-z]+(?![^\W_])", text.lower())


def _repeated(ids: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(ids).items() if count > 1]


class _Check:
    """Looks for what is wrong with one question."""

    def __init__(self, mails: Sequence[MailRow]) -> None:
        self._wording = load_wording()
        self._reader = Reader(self._wording)
        self._inboxes: dict[str, dict[str, list[MailRow]]] = defaultdict(lambda: defaultdict(list))
        for mail in sorted(mails, key=lambda mail: mail["date"]):
            held = dict.fromkeys(words(f"{mail['subject']} {mail['body']}"))
            for address in dict.fromkeys((mail["from"], *mail["to"], *mail["cc"], *mail["bcc"])):
                for word in held:
                    self._inboxes[address][word].append(mail)

    def __call__(self, row: QuestionRow) -> Iterator[str]:
        try:
            story, attribute, key, unseen = self._reader.question(row)
        except ValueError as error:
            yield str(error)
            return
        if unseen != (row["wording"] == "unseen"):
            yield f"its wording is not {row['wording']}"
        stated = [
            (mail, reading)
            for mail in self._visible(row, key)
            for reading in self._reader.facts(mail, story, key)
            if reading.attribute == attribute.name
        ]
        yield from _wrong_answer(row, stated) if row["answer"] else _not_unanswerable(row, stated)

    def _visible(self, row: QuestionRow, key: tuple[str, ...]) -> list[MailRow]:
        """Mails of the inbox until the query date that hold the names of the key."""
        inbox = self._inboxes[row["inbox"]]
        names = [word for word in words(" ".join(key)) if word not in self._wording.vocabulary]
        rarest = min((inbox[name] for name in names), key=len)
        return [mail for mail in rarest if mail["date"][:10] <= row["query_date"]]


def _not_unanswerable(row: QuestionRow, stated: Sequence[tuple[MailRow, Reading]]) -> Iterator[str]:
    for mail, reading in stated:
        yield f"has no answer, but {mail['message_id']} says {reading.written}"
    if row["must"] or row["message_ids"] or row["also_ids"] or row["aliases"]:
        yield "has no answer, but sources or forms of one"


def _wrong_answer(row: QuestionRow, stated: Sequence[tuple[MailRow, Reading]]) -> Iterator[str]:
    fresh = [reading for _, reading in stated if not reading.quoted]
    if not fresh:
        yield "no mail that is visible gives the answer"
        return
    if fresh[-1].value != row["answer"]:
        yield f"the last mail says {fresh[-1].value}, not {row['answer']}"
    changed = [n for n, (_, reading) in enumerate(stated) if not reading.quoted and reading.value != row["answer"]]
    lasting = stated[changed[-1] + 1 :] if changed else stated
    right = [mail for mail, reading in lasting if reading.value == row["answer"]]
    ids = [mail["message_id"] for mail in right]
    if [*row["message_ids"], *row["also_ids"]] != list(dict.fromkeys(ids)):
        yield f"its sources are {row['message_ids']} and {row['also_ids']}, but {ids} give the answer"
    if any(mail["date"][:10] >= row["query_date"] for mail in right[:1]):
        yield "it is asked before the day after its source"
    if not row["must"]:
        yield "nothing says which answers are right"
    texts = {"its answer": row["answer"]} | {f"its alias {alias}": alias for alias in row["aliases"]}
    texts |= {mail["message_id"]: mail["body"] for mail in right}
    for name, text in texts.items():
        if not all(holds(forms, text) for forms in row["must"]):
            yield f"{name} holds none of the accepted forms"

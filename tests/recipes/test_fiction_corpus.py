"""Generated corpora keep their promises, whatever the seed and the size."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.errors import ConfigError
from etude.grading.answer import check_answer
from etude.recipes.email_demo.corpus import Corpus, generate, write_corpus
from etude.recipes.email_demo.names import SPLITS, Split
from etude.recipes.email_demo.verify import verify, verify_disjoint
from etude.recipes.email_search.importing import import_mail


def mails_of(corpus: Corpus, inbox: str) -> int:
    return sum(inbox in (mail["from"], *mail["to"], *mail["cc"], *mail["bcc"]) for mail in corpus.mails)


@pytest.fixture(scope="module")
def large() -> Corpus:
    return generate("validation", 7, inboxes=2, mails_per_inbox=900, questions=400)


@settings(max_examples=20, deadline=None)
@given(
    split=st.sampled_from(SPLITS),
    seed=st.integers(0, 2**63),
    inboxes=st.integers(1, 3),
    mails=st.integers(20, 160),
    share=st.floats(0, 0.3),
)
def test_nothing_is_wrong_with_any_corpus(split: Split, seed: int, inboxes: int, mails: int, share: float) -> None:
    questions = int(share * mails * inboxes)
    corpus = generate(split, seed, inboxes, mails, questions)
    assert verify(corpus.questions, corpus.mails) == []
    assert len(corpus.questions) == questions
    for inbox in {row["inbox"] for row in corpus.questions}:
        assert mails_of(corpus, inbox) == mails
    assert len({mail["file_name"].split("/")[0] for mail in corpus.mails}) == inboxes


def test_nothing_is_wrong_with_a_large_corpus(large: Corpus) -> None:
    assert verify(large.questions, large.mails) == []


def test_one_question_in_ten_has_no_answer(large: Corpus) -> None:
    without = [row for row in large.questions if not row["answer"]]
    assert len(without) == 40
    assert len({row["kind"] for row in without}) > 15


def test_all_kinds_of_questions_come_up_alike_often(large: Corpus) -> None:
    counts = Counter(row["kind"] for row in large.questions)
    assert len(counts) == 45
    assert max(counts.values()) <= 20


def test_many_answers_replaced_an_earlier_one(large: Corpus) -> None:
    """Otherwise the first mail would do, and there were nothing to learn of the last one."""
    dates = {mail["message_id"]: mail["date"] for mail in large.mails}
    asked_later = [row for row in large.questions if row["answer"] and row["also_ids"]]
    assert len(asked_later) > 60
    assert all(dates[row["message_ids"][0]] < dates[also] for row in asked_later for also in row["also_ids"])


def test_a_third_of_the_wordings_is_unseen_only_where_nothing_is_trained() -> None:
    for split in SPLITS:
        corpus = generate(split, 3, inboxes=1, mails_per_inbox=600, questions=300)
        unseen = sum(row["wording"] == "unseen" for row in corpus.questions)
        assert (70 <= unseen <= 130) if split in ("validation", "test") else unseen == 0


def test_splits_share_no_names() -> None:
    corpora = [generate(split, seed, 1, 300, 40) for split in SPLITS for seed in (1, 2)]
    assert verify_disjoint(corpora) == []


def test_mails_are_short(large: Corpus) -> None:
    lengths = sorted(len(mail["body"].split()) for mail in large.mails)
    assert lengths[len(lengths) // 10] >= 12
    assert lengths[len(lengths) * 9 // 10] <= 60
    assert lengths[-1] <= 150


def test_every_gold_answer_and_alias_passes_the_answer_check(large: Corpus) -> None:
    for row in large.questions:
        for answer in (row["answer"] or "I don't know", *row["aliases"]):
            assert check_answer(row, answer).correct, (row, answer)


def test_answers_that_were_replaced_are_wrong(large: Corpus) -> None:
    """A fact asked about before and after it changed: the earlier answer is wrong for the later question."""
    by_question: dict[str, list[tuple[str, int]]] = {}
    for number, row in enumerate(large.questions):
        if row["answer"]:
            by_question.setdefault(f"{row['inbox']} {row['question']}", []).append((row["answer"], number))
    pairs = [
        (answer, number)
        for asked in by_question.values()
        for answer, _ in asked
        for other, number in asked
        if other != answer
    ]
    assert pairs
    for answer, number in pairs:
        assert not check_answer(large.questions[number], answer).correct


def test_the_importer_takes_every_mail(tmp_path: Path, large: Corpus) -> None:
    mails, questions = write_corpus(large, tmp_path)
    report = import_mail([mails], tmp_path / "mail.db")
    assert (report.mails, dict(report.dropped)) == (len(large.mails), {})
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    assert rows == list(large.questions)
    assert questions.name == "questions_validation.jsonl"


def test_rows_have_the_fields_of_the_real_data(enron_dir: Path, large: Corpus) -> None:
    with lzma.open(enron_dir / "arte28_inboxes.jsonl.xz", "rt", encoding="utf-8") as file:
        real_mail = json.loads(file.readline())
    with (enron_dir / "questions_test.jsonl").open(encoding="utf-8") as file:
        real_question = json.loads(file.readline())
    assert large.mails[0].keys() == real_mail.keys()
    assert large.questions[0].keys() - real_question.keys() == {"wording", "kind"}
    assert not real_question.keys() - large.questions[0].keys()


def test_the_same_seed_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from etude.recipes.email_demo.corpus import generate, write_corpus; "
        "write_corpus(generate('test', 11, 2, 120, 30), Path(sys.argv[1]))"
    )
    digests = set()
    for hash_seed in ("0", "1"):
        folder = tmp_path / hash_seed
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", script, str(folder)], check=True, env=environment)
        files = sorted(folder.iterdir())
        assert [file.name for file in files] == ["mail.jsonl.xz", "questions_test.jsonl"]
        digests.add(tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in files))
    assert len(digests) == 1


def test_another_seed_is_another_company() -> None:
    first, second = (generate("train", seed, 1, 60, 10) for seed in (1, 2))
    assert first.questions[0]["inbox"].split("@")[1] != second.questions[0]["inbox"].split("@")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dev", 1, 1, 100, 10), "unknown split 'dev'"),
        (("train", 1, 0, 100, 10), "inboxes must be from 1 to 30"),
        (("train", 1, 31, 100, 10), "inboxes must be from 1 to 30"),
        (("train", 1, 1, 5, 1), "at least 20"),
        (("train", 1, 1, 100, -1), "must not be negative"),
        (("train", 1, 1, 20, 3000), "ask for fewer questions"),
    ],
)
def test_sizes_that_cannot_be_had_are_refused(arguments: tuple[Split, int, int, int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generate(*arguments)

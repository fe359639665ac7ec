"""Scenario files: JSONL that loads whole, or is refused with file, line and reason."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.environment.scenario import Scenario, load_scenarios
from etude.errors import DataError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mail.jsonl"


def test_a_row_is_a_scenario_that_reads_like_the_row(file: Path) -> None:
    file.write_text('{"id": "a", "split": "test", "question": "Who?", "n": 1}\n')
    (scenario,) = load_scenarios(file)
    assert (scenario.id, scenario.split, scenario["question"], scenario["n"]) == ("a", "test", "Who?", 1)
    assert dict(scenario) == {"id": "a", "split": "test", "question": "Who?", "n": 1}


def test_ids_default_to_file_and_line_and_blank_lines_are_skipped(file: Path) -> None:
    file.write_text('{"q": 1}\n\n  \r\n{"q": 2, "id": 17}\r\n{"q": 3}')
    assert [(each.id, each.split, each["q"]) for each in load_scenarios(file, "train")] == [
        ("mail-1", "train", 1),
        ("17", "train", 2),
        ("mail-5", "train", 3),
    ]


def test_a_byte_order_mark_and_every_line_separator_inside_a_text_are_accepted(file: Path) -> None:
    text = "a\u2028b\u0085c\x0bd"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps({"q": text}, ensure_ascii=False).encode())
    (scenario,) = load_scenarios(str(file), "train")
    assert scenario["q"] == text


@settings(max_examples=50, deadline=None)
@given(st.lists(st.dictionaries(TEXT.filter(lambda key: key not in ("id", "split")), VALUE, max_size=4), min_size=1))
def test_what_was_written_is_what_is_loaded(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        file.write_text("".join(json.dumps(row, ensure_ascii=len(row) % 2 == 0) + "\n" for row in rows), "utf-8")
        loaded = load_scenarios(file, "validation")
    assert [json.dumps(dict(each)) for each in loaded] == [json.dumps(row) for row in rows]
    assert [each.id for each in loaded] == [f"rows-{line}" for line in range(1, len(rows) + 1)]


@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        (b'{"q": 1}\n{"q": 1', ":2: ", "not JSON: Expecting ',' delimiter (column 8)"),
        (b"{'q': 1}", ":1: ", "not JSON: Expecting property name"),
        (b'{"q": 1}\n\n[1, 2]\n', ":3: ", "not a JSON object but list"),
        (b'"text"', ":1: ", "not a JSON object but str"),
        (b'{"q": NaN}', ":1: ", "NaN is not a JSON number"),
        (b'{"q": [-Infinity]}', ":1: ", "-Infinity is not a JSON number"),
        (b'{"q": 1e999}', ":1: ", "the number 1e999 is too large"),
        (b'{"id": "a"}\n{"id": "b"}\n{"id": "a"}\n', ":3: ", "the id 'a' is already that of line 1"),
        (b'{"id": "mail-2"}\n{"q": 1}\n', ":2: ", "the id 'mail-2' is already that of line 1"),
        (b'{"id": 1}\n{"id": "1"}\n', ":2: ", "the id '1' is already that of line 1"),
        (b'{"id": ""}', ":1: ", "the id is ''"),
        (b'{"id": null}', ":1: ", "the id is None"),
        (b'{"id": true}', ":1: ", "the id is True"),
        (b'{"id": 1.5}', ":1: ", "the id is 1.5"),
        (b'{"split": "dev"}', ":1: ", "the split is 'dev'; it must be one of train, validation, test"),
        (b'{"split": "test"}', ":1: ", "the row says split 'test', but is used as 'train'"),
        (b'{"q": 1}\n{"q": "\xff"}', ":2: ", "not UTF-8 (byte 8 of the line)"),
        ('{"q": 1}'.encode("utf-16"), ":1: ", "not UTF-8 (byte 1 of the line)"),
        (b'{"q": "\\ud800"}', ":1: ", "half of a surrogate pair"),
        (b'{"q": ' + b"[" * 100_000 + b"}", ":1: ", "not JSON: "),
        (b"", ": ", "no scenario in it"),
        (b"\n \n", ": ", "no scenario in it"),
    ],
)
def test_a_bad_file_is_refused_with_place_and_reason(file: Path, content: bytes, place: str, reason: str) -> None:
    file.write_bytes(content)
    with pytest.raises(DataError) as refused:
        load_scenarios(file, "train")
    assert str(refused.value).startswith(f"{file}{place}")
    assert reason in str(refused.value)


def test_a_row_without_a_split_needs_one_from_the_caller(file: Path) -> None:
    file.write_text('{"split": "train"}\n{"q": 1}\n')
    with pytest.raises(DataError, match=r"mail\.jsonl:2: no split; .*\(train, validation, test\)"):
        load_scenarios(file)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.jsonl: cannot be read: No such file"):
        load_scenarios(tmp_path / "missing.jsonl", "train")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        load_scenarios(tmp_path, "train")


def test_scenarios_are_frozen() -> None:
    scenario = Scenario("a", "train", {})
    with pytest.raises(AttributeError):
        scenario.id = "b"  # type: ignore[misc]


@pytest.mark.parametrize(("split", "count"), [("train", 1000), ("validation", 197), ("test", 237)])
def test_the_real_questions_load(enron_dir: Path, split: str, count: int) -> None:
    scenarios = load_scenarios(enron_dir / f"questions_{split}.jsonl", split)
    assert len(scenarios) == count
    assert all(each["question"] and each.split == split for each in scenarios)

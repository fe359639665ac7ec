"""The three tools, as the model meets them: what they find, what they hide, and who is blamed for what."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.environment.calls import ToolCall, ToolResult
from etude.environment.scenario import Scenario
from etude.environment.tools import ToolContext, run_calls
from etude.errors import ConfigError, StorageError
from etude.recipes.email_search.database import MailDatabase, match_expression
from etude.recipes.email_search.tools import mail_tools

ANN, BOB = "ann@example.com", "bob@example.com"


def call(database: MailDatabase, name: str, day: str = "2001-05-12", inbox: str = ANN, **arguments: Any) -> ToolResult:
    scenario = Scenario("s", "train", {"inbox": inbox, "query_date": day})
    tools = {tool.name: tool for tool in mail_tools(database)}
    context = ToolContext(scenario, "trace", {})
    calls = [ToolCall(name, arguments, "c")]
    return asyncio.run(run_calls(tools, calls, context, lambda text, most: (text, len(text), False)))[0]


def search(database: MailDatabase, *keywords: str, **arguments: Any) -> list[str]:
    result = call(database, "search_emails", keywords=list(keywords), **arguments)
    assert result.kind == "ok", result
    return [hit["message_id"] for hit in json.loads(result.output)]


def test_the_model_sees_three_tools_and_no_inbox(small: MailDatabase) -> None:
    tools = mail_tools(small)
    shown = {tool.name: list(tool.parameters["properties"]) for tool in tools}
    assert shown == {
        "search_emails": ["keywords", "from_addr", "to_addr", "sent_after", "sent_before", "max_results"],
        "read_email": ["message_id"],
        "return_final_answer": ["answer", "sources"],
    }
    assert [tool.final for tool in tools] == [False, False, True]
    assert all(
        tool.description and all(p["description"] for p in tool.parameters["properties"].values()) for tool in tools
    )


def test_all_keywords_must_match_in_any_of_their_forms(small: MailDatabase) -> None:
    """Fault 5: without a stemmer "meeting" misses "meetings"."""
    assert set(search(small, "meeting")) == {"<plan@x>", "<moved@x>"}
    assert search(small, "MEETINGS", "budget") == ["<moved@x>"]
    assert search(small, "meeting", "turbine") == []


def test_a_hit_is_an_id_and_a_snippet(small: MailDatabase) -> None:
    result = call(small, "search_emails", keywords=["room"])
    assert json.loads(result.output) == [{"message_id": "<plan@x>", "snippet": "We meet on Friday at 3 pm in room 12."}]


def test_the_better_match_comes_first_and_of_equals_the_newer(
    import_rows: Callable[[Sequence[dict[str, Any]]], MailDatabase], mail_row: Callable[..., dict[str, Any]]
) -> None:
    rows = [
        mail_row("<old>", "2001-01-01T00:00:00", "copy", "the turbine contract", sender=BOB),
        mail_row("<long>", "2001-03-01T00:00:00", "copy", "turbine " + "and many other words " * 20),
        mail_row("<new>", "2001-02-01T00:00:00", "copy", "the turbine contract", sender=ANN),
    ]
    database = import_rows(rows)
    assert search(database, "turbine") == ["<new>", "<old>", "<long>"]
    assert search(database, "turbine", max_results=1) == ["<new>"]


def test_addresses_filter_exactly(small: MailDatabase) -> None:
    assert search(small, "turbine", from_addr="BOB@example.com") == ["<cc@x>"]
    assert search(small, "turbine", from_addr=ANN) == []
    assert search(small, "turbine", to_addr="eve@example.com") == ["<cc@x>"]  # by bcc
    assert search(small, "meeting", to_addr=BOB) == []


def test_sent_after_is_inclusive_and_sent_before_exclusive(small: MailDatabase) -> None:
    assert set(search(small, "meeting", sent_after="2001-05-10")) == {"<plan@x>", "<moved@x>"}
    assert search(small, "meeting", sent_after="2001-05-11") == ["<moved@x>"]
    assert search(small, "meeting", sent_before="2001-05-12") == ["<plan@x>"]
    assert search(small, "meeting", sent_after="2001-05-12", sent_before="2001-05-10") == []


def test_the_query_date_is_visible_to_its_end_and_nothing_after(small: MailDatabase) -> None:
    """Fault 4: query_date not enforced. By the mail's own local date: <moved@x> was sent on 13 May in UTC."""
    assert "<moved@x>" in search(small, "meeting", day="2001-05-12")
    assert call(small, "read_email", day="2001-05-12", message_id="<moved@x>").kind == "ok"
    assert search(small, "meeting", day="2001-05-11") == ["<plan@x>"]
    assert call(small, "read_email", day="2001-05-11", message_id="<moved@x>").kind == "error"
    assert "<later@x>" in search(small, "meeting", day="2001-05-14")


def test_other_inboxes_are_closed(small: MailDatabase) -> None:
    assert search(small, "secret") == []
    hidden = call(small, "read_email", message_id="<eve@x>")
    unknown = call(small, "read_email", message_id="<nothing@x>")
    assert hidden.kind == unknown.kind == "error"
    assert hidden.output.replace("eve", "nothing") == unknown.output  # and does not tell that there is such a mail
    assert call(small, "read_email", message_id="<eve@x>", inbox=BOB).kind == "ok"


def test_a_mail_reads_as_text(small: MailDatabase) -> None:
    assert call(small, "read_email", message_id="<cc@x>").output == (
        "Date: 2001-05-11T11:00:00-07:00\nSubject: Turbines\nFrom: bob@example.com\nTo: bob@example.com\n"
        "Cc: ann@example.com\n\nTurbine prices"
    )


def test_the_final_answer_is_what_was_given(small: MailDatabase) -> None:
    result = call(small, "return_final_answer", answer="Friday", sources=["<plan@x>"])
    assert result.value == {"answer": "Friday", "sources": ["<plan@x>"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keywords": []}, "keywords"),
        ({"keywords": "meeting"}, "keywords"),
        ({"keywords": ["a"], "max_results": 11}, "max_results: 11 is greater than the maximum of 10"),
        ({"keywords": ["a"], "max_results": 0}, "max_results: 0 is less than the minimum of 1"),
        (
            {"keywords": ["a"], "sent_after": "May 12"},
            "sent_after: Value error, want a day as YYYY-MM-DD, for instance 2001-05-14",
        ),
        ({"keywords": ["a"], "sent_before": "2001-02-30"}, "sent_before: Value error, day is out of range for month"),
        ({"keywords": ["a"], "sent_before": "20010212"}, "sent_before: Value error, want a day as YYYY-MM-DD"),
        ({"keywords": ["a"], "sent_after": "2001-02-12T00:00:00"}, "sent_after: Value error, want a day as YYYY-MM-DD"),
        ({"keywords": ["a"], "sent_after": "986688000"}, "sent_after: Value error, want a day as YYYY-MM-DD"),
        ({"keywords": ["a"], "sent_after": ""}, "sent_after: Value error, want a day as YYYY-MM-DD"),
        ({"keywords": ["a"], "address": "eve@example.com"}, 'unknown "address"'),
    ],
)
def test_arguments_that_cannot_be_are_bad_arguments(
    small: MailDatabase, arguments: dict[str, Any], message: str
) -> None:
    result = call(small, "search_emails", **arguments)
    assert (result.kind, result.fault) == ("bad_arguments", None)
    assert result.output.startswith(f"Error: bad arguments for search_emails: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keywords": ["...", '"', "🫠", "*", "_"]}, "keywords must hold at least one word"),
        ({"keywords": ["a"], "from_addr": "Bob"}, "from_addr must be a whole e-mail address"),
        ({"keywords": ["a"], "to_addr": ""}, "to_addr must be a whole e-mail address"),
    ],
)
def test_what_makes_no_sense_is_told_to_the_model(small: MailDatabase, arguments: dict[str, Any], message: str) -> None:
    result = call(small, "search_emails", **arguments)
    assert (result.kind, result.fault) == ("error", None)
    assert result.output.startswith(f"Error: {message}")


@pytest.mark.parametrize(
    "keyword",
    [
        'we meet" OR "secret', "subject: planning", "-planning", "plan*", "^planning", "(planning", "NEAR(plan room)",
        "NOT", "AND", "OR", "{subject}: plan", "a\x00b", "O'Brien", "x" * 10_000, "the " * 5000, "%", "meeting;--",
    ],
)  # fmt: skip
def test_keywords_are_words_whatever_they_look_like(small: MailDatabase, keyword: str) -> None:
    """Fault 9: an exception of the search ends the episode."""
    assert call(small, "search_emails", keywords=[keyword]).kind in ("ok", "error")
    assert "<eve@x>" not in call(small, "search_emails", keywords=[keyword, "meeting"]).output


def test_operators_are_not_operators(small: MailDatabase) -> None:
    assert search(small, "meeting OR turbine") == []
    assert search(small, "planning", '"', "meeting") == ["<plan@x>"]  # what holds no word asks for nothing
    assert search(small, "we meet") == ["<plan@x>"]  # several words are a phrase
    assert search(small, "meet we") == []


def test_a_broken_database_is_a_fault_of_the_environment(small: MailDatabase) -> None:
    with sqlite3.connect(small.path) as connection:
        connection.execute("DROP TABLE recipients")
    result = call(small, "search_emails", keywords=["meeting"])
    assert result.kind == "fault"
    assert result.fault is not None
    assert (result.fault.where, result.fault.kind) == ("tool:search_emails", "exception")
    small.path.unlink()
    assert call(small, "read_email", message_id="<plan@x>").kind == "fault"


def test_a_locked_database_is_a_fault_of_the_environment(small: MailDatabase) -> None:
    database = MailDatabase(small.path, busy_timeout_s=0.0)
    with closing(sqlite3.connect(small.path, isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        result = call(database, "read_email", message_id="<plan@x>")
        with pytest.raises(StorageError, match="cannot be opened: database is locked"):
            MailDatabase(small.path, busy_timeout_s=0.0)
    assert result.kind == "fault"
    assert result.fault is not None
    assert "locked" in result.fault.message


def test_the_agent_cannot_write(small: MailDatabase) -> None:
    with small._connect() as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM emails")


def test_no_database_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"build it with `etude mail import FILE\.jsonl\.xz --db .*nothing\.db`"):
        MailDatabase(tmp_path / "nothing.db")


def test_a_database_of_another_version_is_refused(small: MailDatabase) -> None:
    with sqlite3.connect(small.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match=r"version 1 \(found 99\).*--force"):
        MailDatabase(small.path)


def test_parallel_calls_do_not_disturb_each_other(small: MailDatabase) -> None:
    tools = {tool.name: tool for tool in mail_tools(small)}
    context = ToolContext(Scenario("s", "train", {"inbox": ANN, "query_date": "2001-05-12"}), "trace", {})
    words = ["meeting", "turbine", "lunch", "budget"] * 8
    calls = [ToolCall("search_emails", {"keywords": [word]}, str(number)) for number, word in enumerate(words)]
    results = asyncio.run(run_calls(tools, calls, context, lambda text, most: (text, 0, False)))
    assert [result.value for result in results] == [results[number % 4].value for number in range(len(words))]
    assert [len(result.value) for result in results[:4]] == [2, 1, 1, 1]


@given(st.lists(st.text(max_size=12), max_size=5))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_keyword_breaks_the_search(small: MailDatabase, keywords: list[str]) -> None:
    small.search(keywords, inbox=ANN, visible_until="2001-05-12")
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5 (text)")
        expression = match_expression(keywords)
        if expression is not None:
            connection.execute("SELECT * FROM t WHERE t MATCH ?", (expression,)).fetchall()


@given(
    words=st.lists(st.sampled_from(["the", "gas", "meeting", "please", "enron", "2001", "contract"]), max_size=2),
    inbox=st.sampled_from(["louise.kitchen@enron.com", "sally.beck@enron.com", "kate.symes@enron.com"]),
    days=st.integers(min_value=0, max_value=1300),
)
@settings(max_examples=30, deadline=None)
def test_nothing_after_the_query_date_is_ever_shown(
    enron: MailDatabase, words: list[str], inbox: str, days: int
) -> None:
    last = (date(1999, 1, 1) + timedelta(days)).isoformat()
    seen = enron.search(words, inbox=inbox, visible_until=last)
    for hit in seen:
        mail = enron.read(hit.message_id, inbox=inbox, visible_until=last)
        assert mail is not None
        assert mail.date[:10] <= last
        assert inbox in (mail.sender, *mail.to, *mail.cc, *mail.bcc)
    everything = enron.search(words, inbox=inbox, visible_until=None, sent_after=last, limit=50)
    for hit in everything:
        mail = enron.read(hit.message_id, inbox=inbox, visible_until=last)
        assert mail is None or mail.date[:10] == last


def test_the_sources_of_every_question_are_visible(
    enron: MailDatabase, questions: dict[str, list[dict[str, Any]]]
) -> None:
    rows = [row for split in questions.values() for row in split]
    assert len(rows) == 1434
    for row in rows:
        for message_id in (*row["message_ids"], *row["also_ids"]):
            assert enron.read(message_id, inbox=row["inbox"], visible_until=row["query_date"]), (row["id"], message_id)

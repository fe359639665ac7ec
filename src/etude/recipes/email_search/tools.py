"""The three tools of the e-mail agent. Inbox and last visible day come from the scenario, never from the model."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Annotated, Any, TypedDict

from pydantic import AfterValidator, Field

from etude.environment.tools import Tool, ToolContext, ToolError, tool
from etude.recipes.email_search.database import MailDatabase, match_expression
from etude.recipes.email_search.mail import Mail

MOST_RESULTS = 10
SEARCH, READ, ANSWER = "search_emails", "read_email", "return_final_answer"


def _day(text: str) -> str:
    # fromisoformat alone takes other forms too (20010514, 2001-W20-1), which do not compare as text.
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        raise ValueError("want a day as YYYY-MM-DD, for instance 2001-05-14")
    return date.fromisoformat(text).isoformat()


Day = Annotated[str, AfterValidator(_day), Field(json_schema_extra={"format": "date"})]


def mail_tools(
    database: MailDatabase, *, search_tokens: int = 1000, read_tokens: int = 1500, timeout_s: float = 30.0
) -> tuple[Tool, Tool, Tool]:
    """search_emails, read_email and return_final_answer over one database.

    search_tokens, read_tokens: output budgets; what is longer is cut with a marker that the model sees. A failure of
    the database is a fault of the environment; a call that makes no sense is answered with an error text.
    """

    @tool(timeout_s=timeout_s, max_output_tokens=search_tokens)
    def search_emails(
        context: ToolContext,
        keywords: Annotated[list[str], Field(min_length=1)],
        from_addr: str | None = None,
        to_addr: str | None = None,
        sent_after: Day | None = None,
        sent_before: Day | None = None,
        max_results: Annotated[int, Field(ge=1, le=MOST_RESULTS)] = MOST_RESULTS,
    ) -> list[dict[str, str]]:
        """Search the user's inbox. Returns the best matches as a list of message ids with a snippet each.

        Args:
            keywords: Words that must all occur in the subject or body of the e-mail.
            from_addr: Only e-mails from this address.
            to_addr: Only e-mails to this address (to, cc or bcc).
            sent_after: Only e-mails sent on this day or later, as YYYY-MM-DD.
            sent_before: Only e-mails sent before this day, as YYYY-MM-DD.
            max_results: How many matches to return, 1 to 10.
        """
        if match_expression(keywords) is None:
            raise ToolError("keywords must hold at least one word or number to search for.")
        hits = database.search(
            keywords,
            **_view(context),
            from_addr=_checked_address("from_addr", from_addr),
            to_addr=_checked_address("to_addr", to_addr),
            sent_after=sent_after,
            sent_before=sent_before,
            limit=max_results,
        )
        return [{"message_id": hit.message_id, "snippet": hit.snippet} for hit in hits]

    @tool(timeout_s=timeout_s, max_output_tokens=read_tokens)
    def read_email(context: ToolContext, message_id: str) -> str:
        """Read one e-mail of the user's inbox: date, subject, from, to, cc and body.

        Args:
            message_id: The id of the e-mail, exactly as search_emails returned it.
        """
        mail = database.read(message_id, **_view(context))
        if mail is None:
            raise ToolError(
                f"there is no e-mail with message_id {message_id!r}. Use an id that search_emails returned."
            )
        return as_text(mail)

    @tool(timeout_s=timeout_s, final=True)
    def return_final_answer(answer: str, sources: list[str]) -> dict[str, Any]:
        """Give the final answer and end the task.

        Args:
            answer: A short and complete answer, or "I don't know" if the inbox does not hold it.
            sources: The message ids of the e-mails that the answer rests on, and no others; empty for "I don't know".
        """
        return {"answer": answer, "sources": sources}

    return search_emails, read_email, return_final_answer


def as_text(mail: Mail) -> str:
    """A mail as the model reads it. Plain text, because JSON would spend tokens on escaped line ends."""
    lines = [f"Date: {mail.date}", f"Subject: {mail.subject}", f"From: {mail.sender}", f"To: {', '.join(mail.to)}"]
    if mail.cc:
        lines.append(f"Cc: {', '.join(mail.cc)}")
    return "\n".join([*lines, "", mail.body])


def found_ids(output: str) -> list[str]:
    """The message ids in what search_emails told the model, best first; also where the output was cut."""
    return [json.loads(quoted) for quoted in re.findall(r'"message_id":\s*("(?:[^"\\]|\\.)*")', output)]


class _View(TypedDict):
    """What of the database this scenario may see."""

    inbox: str
    visible_until: str


def _view(context: ToolContext) -> _View:
    return {"inbox": context.scenario["inbox"], "visible_until": context.scenario["query_date"]}


def _checked_address(name: str, address: str | None) -> str | None:
    if address is not None and "@" not in address:
        raise ToolError(f"{name} must be a whole e-mail address, or be left out, not {address!r}.")
    return address

"""The three tools of `email_search` with fewer arguments and shorter results, for a model of a few million weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from etude.environment.tools import Tool, ToolContext, ToolError, tool
from etude.recipes.email_demo.views import COMPACT
from etude.recipes.email_search.database import MailDatabase, match_expression

# How many hits a search shows; and the longest results in tokens: about four hits, and nearly every mail.
RESULTS, SEARCH_TOKENS, READ_TOKENS = 4, 176, 144


def compact_tools(databases: Mapping[str, MailDatabase], *, timeout_s: float) -> tuple[Tool, Tool, Tool]:
    """search_emails, read_email and return_final_answer. databases: the mail of each split; a scenario's own split says
    which one is searched. timeout_s: for each call."""

    @tool(timeout_s=timeout_s, max_output_tokens=SEARCH_TOKENS)
    def search_emails(context: ToolContext, keywords: Annotated[list[str], Field(min_length=1)]) -> str:
        """Search the user's inbox. Returns the best matches, a line each: message id, day, and a snippet.

        Args:
            keywords: Words that must all occur in the subject or body of the e-mail.
        """
        if match_expression(keywords) is None:
            raise ToolError("keywords must hold at least one word or number to search for.")
        database = databases[context.scenario.split]
        return COMPACT.hits(
            database.search(keywords, **_view(context), limit=RESULTS, snippet_words=COMPACT.snippet_words)
        )

    @tool(timeout_s=timeout_s, max_output_tokens=READ_TOKENS)
    def read_email(context: ToolContext, message_id: str) -> str:
        """Read one e-mail of the user's inbox: day, sender, subject and text.

        Args:
            message_id: The id of the e-mail, as search_emails returned it.
        """
        mail = databases[context.scenario.split].read(message_id, **_view(context))
        if mail is None:
            raise ToolError(f"there is no e-mail {message_id}.")
        return COMPACT.mail(mail)

    @tool(timeout_s=timeout_s, final=True)
    def return_final_answer(answer: str, sources: list[str]) -> dict[str, Any]:
        """Give the final answer and end the task.

        Args:
            answer: A short answer, or "I don't know" if the inbox does not hold it.
            sources: The message ids of the e-mails that the answer rests on; empty for "I don't know".
        """
        return {"answer": answer, "sources": sources}

    return search_emails, read_email, return_final_answer


def _view(context: ToolContext) -> dict[str, str]:
    return {"inbox": context.scenario["inbox"], "visible_until": context.scenario["query_date"]}

"""Google docstrings become descriptions; what is for people stays with people."""

from etude.environment.docstrings import Docstring, parse_docstring


def test_description_is_everything_before_the_first_section_as_written() -> None:
    text = """Search the mail.

    The query may hold:
      - words
      - "a phrase"

    Args:
        query: what to look for.

    Returns:
        Ids: never shown to the model.
    """
    assert parse_docstring(text) == Docstring(
        'Search the mail.\n\nThe query may hold:\n  - words\n  - "a phrase"', {"query": "what to look for."}
    )


def test_a_parameter_may_carry_a_type_a_colon_and_further_lines() -> None:
    text = """Do.

    Args:
        when (str, optional): the day: as 2001-05-31,
            never as a time.
        limit (list[tuple[int, str]]):
            at most so many
        rest: a line that goes on
        without being indented
    """
    assert parse_docstring(text).parameters == {
        "when": "the day: as 2001-05-31, never as a time.",
        "limit": "at most so many",
        "rest": "a line that goes on without being indented",
    }


def test_sections_after_the_args_are_not_parameters() -> None:
    text = """Do.

    Args:
        a: one

    Raises:
        KeyError: if not.

    Note:
        b: two
    """
    assert parse_docstring(text) == Docstring("Do.", {"a": "one"})


def test_a_section_may_come_first_and_a_docstring_may_be_missing() -> None:
    assert parse_docstring("Args:\n    a: one") == Docstring("", {"a": "one"})
    assert parse_docstring(None) == Docstring("", {})
    assert parse_docstring("   ") == Docstring("", {})

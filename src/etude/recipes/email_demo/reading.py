"""Reading facts back from the text of mails and questions, knowing nothing of how they came about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from etude.recipes.email_demo.rows import MailRow, QuestionRow
from etude.recipes.email_demo.wording import LISTED, Attribute, Story, Wording

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_REPLIES = re.compile(r"^(?:(?:Re|Fwd): )+")


@dataclass(frozen=True, slots=True)
class Reading:
    """A fact as a mail states it. written: as it stands there; value: in its plainest form. quoted: in an older mail
    that this one quotes."""

    attribute: str
    written: str
    value: str
    quoted: bool


class Reader:
    """Understands exactly the sentences of the wording."""

    def __init__(self, wording: Wording) -> None:
        self._wording = wording
        self._known: dict[tuple[str, str], tuple[tuple[tuple[str, ...], Reading], ...]] = {}

    def question(self, row: QuestionRow) -> tuple[Story, Attribute, tuple[str, ...], bool]:
        """What a question asks for: story, attribute, key, and whether it is worded as no training question is.

        Raises ValueError if the question is not of the kind that the row says.
        """
        story, attribute = self._wording.attribute(row["kind"])
        for unseen, templates in ((False, attribute.asks), (True, attribute.unseen)):
            for template in templates:
                fillings = template.read(row["question"])
                if fillings is not None:
                    return story, attribute, self._key(story, fillings), unseen
        raise ValueError(f"no question of kind {row['kind']}: {row['question']}")

    def facts(self, mail: MailRow, story: Story, key: tuple[str, ...]) -> Iterator[Reading]:
        """All that the mail states of the story about that key."""
        name = (mail["message_id"], story.name)
        if name not in self._known:
            self._known[name] = tuple(self._read(mail, story))
        return (reading for about, reading in self._known[name] if about == key)

    def _read(self, mail: MailRow, story: Story) -> Iterator[tuple[tuple[str, ...], Reading]]:
        fresh, _, quoted = mail["body"].partition("\n> ")
        for text, is_quoted in ((fresh, False), (quoted, True)):
            about = self._subject_key(story, _REPLIES.sub("", mail["subject"]))
            for sentence in _SENTENCE_END.split(text):
                for template in (*story.says, *story.moves):
                    fillings = template.read(sentence)
                    if fillings is None:
                        continue
                    about = self._key(story, fillings) if story.names_key(template) else about
                    for attribute in sorted(story.states(template)):
                        written = fillings[attribute]
                        value = story.attributes[attribute].kind.read(written)
                        yield about, Reading(attribute, written, value, is_quoted)

    def _subject_key(self, story: Story, subject: str) -> tuple[str, ...]:
        for template in story.subjects:
            fillings = template.read(subject)
            if fillings is not None and story.names_key(template):
                return self._key(story, fillings)
        return ()

    def _key(self, story: Story, fillings: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(
            self._wording.listed_name(part, fillings[part]) if part in LISTED else fillings[part] for part in story.key
        )

"""What turns an answer into no answer: not knowing, denying, offering alternatives, guessing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from etude.grading.text import normalise, words
from etude.grading.vocabulary import APOLOGIES, COMMON

_N_T = r"(?:\s?not|n't|nt)"  # as in: do not, don't, dont
_ABLE = r"(?:(?:am|is|are|was|were) not able to|unable to|failed to)"
_FINDING = r"(?:find|found|located?|determined?|answer(?:ed)?|tell|say|see|identif(?:y|ied)|establish|confirm|verify)"
_SURE = (
    r"(?:sure|certain|clear|known|available|specified|mentioned|stated|found|given|provided|aware|enough information)"
)
_MORE = r"(?:\s+(?:really|actually|even|quite|entirely|fully|completely))?"
_NOTHING_ON = (
    r"(?:idea|clue|answers?|information|info|records?|mention|data|details?|results?|e-?mails?|mails?|evidence"
    r"|knowledge|such [\w-]+)"
)
_IGNORANCE = re.compile(
    "|".join(
        (
            rf"\b(?:do|does|did|would|could|can){_N_T}{_MORE}\s+(?:know|recall|remember)\b",
            rf"\b(?:do|does|did){_N_T}{_MORE}\s+have (?:the |any |an |enough )?{_NOTHING_ON}\b",
            rf"\b(?:(?:can|could|did){_N_T}|{_ABLE})\s+(?:be )?{_FINDING}\b",
            rf"\bnot{_MORE}\s+{_SURE}\b|\b(?:is|are|was|were){_N_T}{_MORE}\s+{_SURE}\b",
            rf"\b(?:no|insufficient|without any|lack of)\s+(?:relevant |matching |further )?{_NOTHING_ON}\b",
            r"\b(?:unsure|unknown|uncertain|undetermined|unclear|unspecified|dunno|idk|n/a|never found)\b",
            r"\bnothing (?:was )?found\b|\bfound nothing\b|\b(?:no one|nobody|who) knows\b",
        )
    )
)
_DENIAL = re.compile(
    r"\b(?:not|\w+n't|isnt|wasnt|arent|doesnt|didnt|dont|cant|cannot|never|neither|nor|none|no|without"
    r"|wrong(?:ly)?|incorrect(?:ly)?|false(?:ly)?|untrue|mistaken(?:ly)?|inaccurate|invalid|erroneous"
    r"|other than|except(?:ing)?|excluding|apart from|rather than|instead|contrary|opposite|far from|hardly|unlike"
    r"|anything but|anyone but|all but|nothing but|den(?:y|ied|ies)|doubt(?:ful)?)\b"
)
_ALTERNATIVES = re.compile(
    r"\b(?:or|either|alternatively|alternative|vs|versus|otherwise|else|one of|any of|among|amongst|if not|unless"
    r"|maybe|perhaps|possibly|probably|likely|presumably|supposedly|plausibly|conceivably|might|could be|could also"
    r"|could have been|may be|may have been|possibilit(?:y|ies)|guess(?:es|ing)?|assuming)\b|\?"
)
# Words that look like denials and are none: "no later than", "No. 4519".
_HARMLESS = re.compile(
    r"\b(?:no|not) (?:later|earlier|more|less|fewer) than\b|\bnot to exceed\b|\bnot until\b|\bnot only\b"
    r"|\bno\.\s?(?=[#(]?[a-z]{0,3}[-. ]?[0-9])|\bno\s(?=#?[0-9])"
)
_MAX_WORD = 40  # characters
_MAX_DECLINING = 1000  # characters: whoever writes more does more than decline
_LAST_WORD = re.compile(r"([\w'&$.-]+)\s*$")
_NEXT_WORD = re.compile(r"\s*([\w'&$-]+)")
_CUES = (("does not know", _IGNORANCE), ("denies", _DENIAL), ("offers alternatives", _ALTERNATIVES))


@dataclass(frozen=True, slots=True)
class Hedge:
    """effect: what it does, for a person. cue: the words that do it. context: cue with the word before and after."""

    effect: str
    cue: str
    context: str


def find_hedges(text: str) -> list[Hedge]:
    """Hedges in normalised lower-case `text`: "not" in "it is not march 4"."""
    text = _HARMLESS.sub(lambda match: " " * len(match.group()), text)
    return [Hedge(effect, match.group(), _context(match)) for effect, form in _CUES for match in form.finditer(text)]


def _context(match: re.Match[str]) -> str:
    before = _LAST_WORD.search(match.string[max(0, match.start() - _MAX_WORD) : match.start()])
    after = _NEXT_WORD.match(match.string, match.end())
    return " ".join((before.group(1) if before else "", match.group(), after.group(1) if after else "")).strip()


_ATTEMPT = re.compile(
    r"\b(?:but|maybe|perhaps|possibly|probably|likely|might|could be|guess|assume|however|although|though|i think"
    r"|i believe)\b"
)
_CLAUSE_END = re.compile(r"[.,;:!?()]+(?:\s|$)|\s-+\s")


def says_i_dont_know(text: str) -> bool:
    """Whether `text` declines to answer, and does nothing else: "I don't know", "I could not find any mail about it."

    Not so where an answer comes with it ("I don't know, maybe March 4", "March 4, but I'm not sure"): each clause must
    decline, or hold common words and no digits.
    """
    if len(text) > _MAX_DECLINING:
        return False
    clauses = [clause for clause in _CLAUSE_END.split(normalise(text).replace('"', "")) if clause.strip()]
    declined = False
    for clause in clauses:
        lowered = clause.lower()
        if _ATTEMPT.search(_IGNORANCE.sub(" ", lowered)):
            return False
        if _IGNORANCE.search(lowered):
            declined = True
        elif not (_says_nothing(clause) or (declined and _DENIAL.search(lowered))):
            return False
    return declined


def _says_nothing(clause: str) -> bool:
    return all(not word.has_digit and (word.key in COMMON or word.key in APOLOGIES) for word in words(clause))

"""What turns an answer into no answer: not knowing, denying, offering alternatives, guessing."""

from __future__ import annotations

import re

from etude.grading.text import normalise, words
from etude.grading.vocabulary import COMMON

_NOT = r"(?:not|n't|nt|never)"
_IGNORANCE = re.compile(
    r"\b(?:"
    r"(?:do|does|did|would|could|can)\s?(?:not|n't|nt)\s+(?:really\s+|actually\s+|even\s+)?(?:know|have (?:the |any |an )?(?:answer|information|idea|details)|recall|remember)"
    r"|(?:can\s?not|can't|cant|could\s?(?:not|n't|nt)|did\s?(?:not|n't|nt)|was (?:not|un)\s?able to|were (?:not|un)\s?able to|am (?:not|un)\s?able to|unable to|failed to)\s+"
    r"(?:be\s+)?(?:find|found|locate|located|determine|determined|answer|answered|tell|say|see|identify|identified|establish|confirm|verify)"
    r"|(?:am|'m|is|are|was|be|it's|i'm|im)\s+(?:not|un)\s?(?:really\s+|quite\s+|entirely\s+|fully\s+|100\s?%\s+)?(?:sure|certain|clear|known|available|specified|mentioned|stated|found|given|provided|aware)"
    r"|not\s+(?:sure|certain|clear|known|available|specified|mentioned|stated|found|given|provided|aware|enough information)"
    r"|(?:no|insufficient|without any|lack of)\s+(?:idea|clue|answer|information|info|record|mention|data|such (?:e-?mail|information|date|mail)|results?|e-?mails?|mails?|evidence|knowledge)"
    r"|unsure|unknown|uncertain|undetermined|unclear|unspecified|dunno|idk|n/a|nothing (?:was )?found|never found|don'?t know|dont know"
    r"|no one knows|nobody knows|who knows|beats me"
    r")\b"
)
_DENIAL = re.compile(
    rf"\b(?:{_NOT}|neither|nor|none|cannot|can't|cant|isn't|isnt|wasn't|wasnt|aren't|weren't|doesn't|didn't|won't|wouldn't"
    r"|no(?!\.)|without|wrong|incorrect|incorrectly|false|falsely|untrue|mistaken|mistakenly|inaccurate|invalid|erroneous"
    r"|other than|except|excepting|excluding|apart from|rather than|instead|contrary|opposite|far from|hardly"
    r"|unlike|anything but|anyone but|all but|nothing but|but not|deny|denied|denies|doubt|doubtful)\b|n't\b"
)
_ALTERNATIVES = re.compile(
    r"\b(?:or|either|alternatively|alternative|vs|versus|otherwise|else|one of|any of|among|amongst|maybe|perhaps|possibly"
    r"|probably|likely|presumably|supposedly|might|could be|could have been|may be|may have been"
    r"|possibilit(?:y|ies)|guess|guesses|guessing|if not|and/or|assuming|unless|could also|plausibly|conceivably)\b|\?"
)
# Words that look like denials and are none.
_HARMLESS = re.compile(
    r"\b(?:no|not) (?:later|earlier|more|less|fewer) than\b|\bnot to exceed\b|\bnot until\b|\bnot only\b"
    r"|\bno\.?\s?(?=[#(]?[a-z]{0,3}[-. ]?[0-9])|\bno\.(?=\s)"
)
_CUES = (("does not know", _IGNORANCE), ("denies", _DENIAL), ("offers alternatives", _ALTERNATIVES))


def find_hedges(text: str) -> list[tuple[str, str]]:
    """(what it does, cue) for every hedge in `text`: [("denies", "not")] for "It is not March 4"."""
    lowered = _HARMLESS.sub(" ", text.lower())
    return [(effect, match.group()) for effect, form in _CUES for match in form.finditer(lowered)]


_ATTEMPT = re.compile(
    r"\b(?:but|maybe|perhaps|possibly|probably|might|guess|however|although|though|could be|likely|i think|i believe|assume)\b"
)
_CLAUSE = re.compile(r"[.,;:!?()]+(?:\s|$)|\s-+\s")


def says_i_dont_know(text: str) -> bool:
    """Whether `text` declines to answer, and does nothing else: "I don't know", "I could not find any mail about it."

    Not so where an answer comes with it ("I don't know, maybe March 4", "March 4, but I'm not sure"): every clause
    before or after the one that declines must decline too or hold common words only, and no digits.
    """
    clauses = [clause.strip() for clause in _CLAUSE.split(normalise(text).replace('"', "")) if clause.strip()]
    declined = False
    for clause in clauses:
        lowered = clause.lower()
        if _IGNORANCE.search(lowered):
            if _ATTEMPT.search(_IGNORANCE.sub(" ", lowered)):
                return False
            declined = True
        elif _DENIAL.search(lowered) and declined:
            continue
        elif not _says_nothing(clause):
            return False
    return declined


def _says_nothing(clause: str) -> bool:
    if _ATTEMPT.search(clause.lower()):
        return False
    return all(
        word.key in COMMON or word.key in _APOLOGIES for word in words(clause) if not word.has_digit
    ) and not any(word.has_digit for word in words(clause))


_APOLOGIES = frozenset(
    "sorry unfortunately afraid apologies apologise apologize searched searching search looked looking tried available "
    "any all relevant".split()
)

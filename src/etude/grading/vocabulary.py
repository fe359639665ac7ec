"""Words that carry no answer: what sentences around an answer are made of. Everything else may be a candidate.

Only the check of names uses these lists, to tell "The attorney on the call was Bob Pease" from a list of people.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that tie what follows to what stands before: after one of them, a name is part of a description.
STRUCTURE = _words(
    """
    of at in on for from to by with about under over into through via within per near during after before since until
    till between as than because due regarding concerning against toward towards behind beside besides beyond using
    who whom whose which that where when while if whether so
    is are was were be been being am has have had having do does did will would shall should can could must may might
    said says say stated states wrote writes asked asks told tells called calls sent sends gave gives given set sets
    meeting scheduled located held based going gone made makes make handles handled works worked handling working
    """
)

DETERMINERS = _words(
    """
    the a an this that these those his her its their our your my mr mrs ms dr prof professor sen senator rep
    representative judge commissioner governor justice sir dear former also only just about around approximately
    roughly nearly almost some exactly both all each mid late early
    """
)

# A part of a sentence that ends in one of these says what somebody is, not who else it might be.
ROLES = _words(
    """
    officer director manager president chairman chair chief executive ceo cfo cio coo vp svp evp attorney lawyer counsel
    partner analyst assistant associate deputy secretary treasurer trader scheduler engineer administrator coordinator
    representative rep contact consultant head leader member staffer professor teacher expert specialist accountant
    controller commissioner senator governor judge chairperson supervisor agent broker team group department staff
    """
)

COMMON = (
    STRUCTURE
    | DETERMINERS
    | _words(
        """
        it he she they we you i him them us me there here and but not no yes then now well first second third last next
        answer answers question final response result correct right following information according e-mail email emails
        e-mails mail mails message messages note memo letter thread subject body inbox sender recipient date dated time
        day days week weeks month months year years person people name named names number amount total figure value
        price cost code room place location company firm one ones thing things item items
        am pm a.m p.m et est edt ct cst cdt mt mst mdt pt pst pdt gmt utc eastern central mountain pacific o'clock
        dollars dollar usd us cents percent million thousand billion each every day morning afternoon evening night noon
        midnight today tomorrow yesterday sure certainly indeed please thanks thank hello hi ok okay
        found find shows show see seems appears mentioned mentions noted notes confirmed confirms indicated indicates
        specified listed lists provided provides identified chosen picked decided agreed wanted wants planned plans
        expected expects suggested suggests recommended think thinks believe believes i'm it's that's i've he's she's
        there's what's who's here's more most other same new old up down out off back again still approx circa re fw
        attn inc corp corporation co llc ltd lp plc
        conference floor building hotel restaurant club section article paragraph clause page team unit exhibit deal
        ticket contract docket case permit meter phone fax extension passcode id event address deadline
        """
    )
)

# More of what somebody says who has no answer.
APOLOGIES = _words(
    "sorry unfortunately afraid apologies apologise apologize search searched searching look looked looking tried any "
    "available relevant"
)

CITIES = _words(
    """
    alabama alaska arizona arkansas california colorado connecticut delaware florida georgia hawaii idaho illinois
    indiana iowa kansas kentucky louisiana maine maryland massachusetts michigan minnesota mississippi missouri montana
    nebraska nevada ohio oklahoma oregon pennsylvania tennessee texas utah vermont virginia washington wisconsin wyoming
    al ak az ar ca co ct de fl ga hi id il ia ks ky la md ma mi mn ms mo mt ne nv nh nj nm ny nc nd oh ok or pa ri sc sd
    tn tx ut vt va wa wv wi wy dc d.c usa u.s canada alberta ontario quebec mexico england uk
    houston dallas austin portland chicago boston denver atlanta seattle phoenix miami calgary toronto london tokyo
    sacramento omaha detroit philadelphia york francisco angeles diego vegas antonio
    """
)
# What may follow the name of a place without naming another one: "The Warwick, 5701 Main Street, Houston, Texas".
PLACES = CITIES | _words(
    """
    new san los city las north south east west street st avenue ave road rd drive blvd boulevard floor suite building
    hotel downtown
    """
)

# Short forms that do not begin like the long one.
NICKNAMES = tuple(
    map(
        _words,
        (
            "robert bob bobby rob",
            "william bill billy will",
            "richard dick rick rich",
            "james jim jimmy",
            "john jack",
            "margaret peggy maggie meg",
            "elizabeth liz beth betty",
            "edward ed ted ned",
            "charles chuck",
            "henry hank harry",
            "anthony tony",
            "theodore ted",
            "terence terry terrence",
            "michael mike",
            "kathleen kathy katherine kate kathryn",
            "lawrence larry",
            "steven steve stephen",
            "deborah debbie debra",
            "geoffrey jeff jeffrey",
            "andrew andy drew",
            "gerald jerry gerry jerome",
            "eugene gene",
            "eleanor ellie nell",
            "monika monica",
            "philip phil phillip",
        ),
    )
)

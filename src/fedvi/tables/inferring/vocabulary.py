"""Words by which people name things in tables: classes, identifiers, codes, times to an event.

They only decide what is asked or said; nothing is guessed from a name alone that could not be seen in the schema.
"""

from __future__ import annotations

import re

NEGATIVES = frozenset(
    """0 -1 no false negative neg none absent control nein falsch negativ non não nao nej nie nee geen
    alive living survived censored benign healthy normal well stable without unexposed untreated placebo
    lebt lebend überlebt zensiert gutartig gesund unauffällig ohne""".split()
)
"""Words for the class that is no event, in lower case."""

POSITIVES = frozenset(
    """1 yes true positive pos present case event ja wahr positiv oui si sí sì sim tak
    dead died deceased malignant ill sick diseased abnormal relapse relapsed recurrence recurred failed failure
    with exposed treated verstorben gestorben tot bösartig krank auffällig mit""".split()
)
"""Words for the event, in lower case."""

LETTERS = {frozenset("yn"): "y", frozenset("jn"): "j", frozenset("tf"): "t"}
"""Single letters mean something in pairs only: the pair, and its event."""


def _any_of(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|[^a-z])(?:{'|'.join(words.split())})(?:$|[^a-z])", re.IGNORECASE)


IDENTIFIERS = _any_of(
    r"""id ids nr no num key uuid guid mrn lfd index idx row rownum record patient patients person persons subject
    participant client customer case proband \w*nummer \w*number \w*kennung pid ssn convict respondent"""
)
CODES = _any_of(
    r"""code codes icd icd\d+ atc ops drg cpt zip zipcode postcode postal plz fips isco sic naics
    \w*code \w*schlüssel"""
)
DURATIONS = _any_of(
    """time times duration days weeks week months years survival follow.?up futime tenure tte ttd os pfs dfs stop
    dauer zeit tage wochen monate überlebenszeit ueberlebenszeit nachbeobachtung verweildauer lifetime t"""
)
EVENTS = _any_of(
    """status event died dead death deceased arrest relapse recurrence recurred failure failed churn churned censor
    censors censored cens delta fustat e outcome cured tod tot verstorben gestorben ereignis rezidiv readmitted
    readmission"""
)


def is_identifier(name: str) -> bool:
    """Tell whether a column is named like an identifier.

    >>> [is_identifier(name) for name in ("Lfd. Nr.", "patientId", "Fallnummer", "width", "uric_acid", "note")]
    [True, True, True, False, False, False]
    """
    return IDENTIFIERS.search(name) is not None or re.search(r"[a-z]I[dD]\b", name) is not None


def is_code(name: str) -> bool:
    """Tell whether a column is named like a code."""
    return CODES.search(name) is not None


def is_duration(name: str) -> bool:
    """Tell whether a column is named like a time to an event."""
    return DURATIONS.search(name) is not None


def is_event(name: str) -> bool:
    """Tell whether a column is named like an event that may come."""
    return EVENTS.search(name) is not None


def event_of(values: tuple[str, str]) -> str:
    """Return which of two classes is the event by its name; nothing if names do not tell.

    >>> event_of(("ja", "nein")), event_of(("bösartig", "gutartig")), event_of(("F", "M")), event_of(("Y", "N"))
    ('ja', 'bösartig', '', 'Y')
    """
    lower = {value.lower(): value for value in values}
    letter = LETTERS.get(frozenset(lower))
    if letter is not None:
        return lower[letter]
    good, bad = ([value for word, value in lower.items() if word in words] for words in (POSITIVES, NEGATIVES))
    if len(bad) == 1 and (not good or good != bad):
        return next(value for value in values if value != bad[0])
    return good[0] if len(good) == 1 and not bad else ""

"""What the words of a table mean: numbers, limits of detection, dates, and nothing.

A word is read by itself: what it means does not depend on the row it is in, nor on any other row.

    12.5   12,5   1 234,5   1'234.50   1.234.567   -5   5-   (5)   12 %   $1,200.00     numbers
    45.123   1,234                        one separator and three digits behind it: `decimal` says what it is
    <0.6   > 90                           beyond a limit of detection: the limit, and on which side
    2024-01-31   31.01.2024   01/31/2024   31 Jan 2024                         dates: days since 2000-01-01
"""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections.abc import Callable

MISSING = frozenset(
    """? . - -- \N{EN DASH} \N{EM DASH} \N{MINUS SIGN} NA N/A n/a N.A. n.a. <NA> #N/A #NA NaN nan -NaN -nan NaT
    NULL Null null (null) k.A. 0000-00-00 #NV #DIV/0! #VALUE! #WERT! #REF! #BEZUG! #NAME? #NUM! #ZAHL! #NULL!""".split()
) | {"", "k. A.", "keine Angabe"}
"""Words for "nothing was measured". In text columns they are left as they are: a schema may list them as values."""

POINT, COMMA, OPEN = ".", ",", "?"
"""What separates decimals; OPEN: the word itself does not tell."""

BELOW, ABOVE = "<", ">"
"""Sides of a limit of detection."""

LONGEST_NUMBER = 64
"""Letters of a number with signs, units or separators, at most: longer ones would take long to look at."""

EPOCH = datetime.date(2000, 1, 1)
"""Dates count in days from here."""

ORDERS = ("dmy", "mdy")
"""What comes first in dates such as 03/04/2024."""

_SIGNS = str.maketrans(
    dict.fromkeys("\N{MINUS SIGN}\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{EN DASH}\N{FULLWIDTH HYPHEN-MINUS}", "-")
    | dict.fromkeys("\N{MIDDLE DOT}\N{ARABIC DECIMAL SEPARATOR}\N{FULLWIDTH FULL STOP}", ".")
    | dict.fromkeys("\N{ARABIC THOUSANDS SEPARATOR}\N{FULLWIDTH COMMA}", ",")
)
_BLANKS = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}\N{FIGURE SPACE}'\N{RIGHT SINGLE QUOTATION MARK}"
_MONEY = r"(?:[$£€¥¢₣₤₩₪₫₱₴₹₺₽]|EUR|USD|GBP|CHF|JPY|Fr\.|kr\.?|zł)"
_NUMBER = re.compile(
    rf"([-+]?)\s*{_MONEY}?\s*([-+]?)\s*([\d.,{_BLANKS}]*\d[.,]?)(e[-+]?\d+)?\s*(?:{_MONEY}|[%‰])?\s*(-?)",
    re.IGNORECASE,
)
_SIDES = {"<": BELOW, "≤": BELOW, "<=": BELOW, ">": ABOVE, "≥": ABOVE, ">=": ABOVE, "+": ABOVE}
_LIMIT = re.compile(r"(<=|>=|[<>≤≥])\s*(?=[\d.,])(.+)|(\d\d[\d.,]*)\s?[+]")
_ISO = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})")
_COMPACT = re.compile(r"((?:19|20)\d\d)(\d\d)(\d\d)")
_NUMERIC = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})")
SHORT_YEAR = re.compile(r"\d{1,2}([-/.])(?:\d{1,2}|[^\W\d_]{3,9})\1\d{2}( .*)?")
"""Dates of which nobody knows the century."""
_NAMED = re.compile(r"(\d{1,2})[-. ]*([^\W\d_]{3,9})\.?[-, ]*(\d{4})|([^\W\d_]{3,9})\.? +(\d{1,2}),? +(\d{4})")
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[AaPp][Mm])?(?: ?(?:Z|UTC|[-+]\d{2}:?\d{2}))?"
_WHOLE = re.compile(r"-?\d+\.0*")
_CLOCK, _BEHIND = re.compile(_TIME), re.compile(rf"(?:[T ]+{_TIME})?")
_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "mär": 3, "apr": 4, "may": 5, "mai": 5, "jun": 6, "jul": 7, "aug": 8}
_MONTHS |= {"sep": 9, "oct": 10, "okt": 10, "nov": 11, "dec": 12, "dez": 12, "mrz": 3, "fév": 2, "avr": 4, "aoû": 8}
_MONTHS |= {"déc": 12, "ene": 1, "abr": 4, "ago": 8, "dic": 12}


@functools.lru_cache(maxsize=65_536)
def _taken_apart(text: str) -> tuple[str, str, str, str]:
    """Return sign and digits before the last separator, digits behind it, the exponent, and what separates decimals.

    That is POINT, COMMA, or nothing if no separator tells; OPEN and the separator, if three digits leave it open.
    """
    if len(text) > LONGEST_NUMBER:
        raise ValueError(text)
    text = text.translate(_SIGNS).removeprefix("'")  # as spreadsheets mark text
    if text[:1] + text[-1:] == "()":
        text = text[1:-1] + "-"  # as accountants write losses
    found = _NUMBER.fullmatch(text)
    if found is None or sum(map(bool, found.group(1, 2, 5))) > 1:
        raise ValueError(text)
    sign, body, exponent = found[1] or found[2] or found[5], found[3], found[4] or ""
    marks = [mark for mark in body if mark in ".,"]
    decimal = marks[-1] if marks and marks.count(marks[-1]) == 1 else ""
    whole, _, fraction = body.rpartition(decimal) if decimal else (body, "", "")
    between = {mark for mark in whole if not mark.isdigit()}
    if between:
        (mark, *others) = between
        first, *groups = whole.split(mark)
        sizes = set(map(len, groups[:-1])) or {3}
        if others or not (
            1 <= len(first) <= 3 and sizes in ({3}, {2}) and len(groups[-1]) == 3 and whole[-1].isdigit()
        ):
            raise ValueError(text)
        whole = first + "".join(groups)
        told = {POINT: COMMA, COMMA: POINT}.get(mark, "")
        return sign + whole, fraction, exponent, decimal or told
    if decimal and len(fraction) == 3 and 1 <= len(whole) <= 3 and whole[0] != "0" and not exponent:
        return sign + whole, fraction, exponent, OPEN + decimal
    return sign + (whole or "0"), fraction, exponent, decimal


def parse_number(text: str, decimal: str = POINT) -> float:
    """Return the number that a text holds, NaN for a word of `MISSING`, or raise ValueError.

    decimal: what separates decimals in a word that leaves it open.

    >>> parse_number(" +1e3 "), parse_number("1.234,5"), parse_number("12,5 %"), parse_number("-$1,200.00")
    (1000.0, 1234.5, 12.5, -1200.0)
    >>> parse_number("45.123"), parse_number("45.123", decimal=","), parse_number("?")
    (45.123, 45123.0, nan)
    """
    text = text.strip()
    if text in MISSING:
        return math.nan
    if "_" not in text and not (decimal == COMMA and "." in text):  # which Python allows in numbers, and nobody else
        try:
            return float(text.replace(COMMA, POINT, 1) if decimal == COMMA else text)
        except ValueError:
            pass
    whole, fraction, exponent, told = _taken_apart(text)
    if told == OPEN + (COMMA if decimal == POINT else POINT):
        return float(whole + fraction)
    return float(f"{whole}.{fraction}{exponent}")


def takes(read: Callable[[str], object], text: str) -> bool:
    """Tell whether a text can be read: `read` raises ValueError for others."""
    try:
        read(text)
    except ValueError:
        return False
    return True


@functools.cache
def numbers_in(texts: tuple[str, ...], decimal: str = POINT) -> tuple[float, ...]:
    """Return those texts that are numbers."""
    return tuple(parse_number(text, decimal) for text in texts if takes(parse_number, text))


def decimal_of(text: str) -> str:
    """Return what a number says about decimals: POINT, COMMA, OPEN with the separator, or nothing.

    >>> [decimal_of(text) for text in ("12,5", "1.234.567", "0.123", "45.123", "1,234", "17")]
    [',', ',', '.', '?.', '?,', '']
    """
    try:
        return _taken_apart(text.strip())[3]
    except ValueError:
        return ""


def parse_limit(text: str, decimal: str = POINT) -> tuple[str, float]:
    """Return on which side of a limit of detection a value is, and the limit; or raise ValueError.

    >>> parse_limit("<0.6"), parse_limit("≥ 90"), parse_limit("90+")
    (('<', 0.6), ('>', 90.0), ('>', 90.0))
    """
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    return _SIDES[found[1] or "+"], parse_number(found[2] or found[3], decimal)


def side_of(text: str, decimal: str = POINT) -> str:
    """Return on which side of a limit of detection a value is; nothing, if it is none."""
    try:
        return parse_limit(text, decimal)[0]
    except ValueError:
        return ""


def number_or_limit(text: str, decimal: str) -> float:
    """Return the number that a text holds, or the limit of detection; raise ValueError for others."""
    try:
        return parse_number(text, decimal)
    except ValueError:
        return parse_limit(text, decimal)[1]


def parse_date(text: str, order: str = "dmy") -> float:
    """Return days since `EPOCH`, NaN for a word of `MISSING`, or raise ValueError. The time of the day is dropped.

    order: what comes first in dates such as 03/04/2024: one of `ORDERS`, or `OPEN` if nobody knows. With points
        between, it is the day.

    >>> parse_date("2000-02-01"), parse_date("01.02.2000", "mdy"), parse_date("02/01/2000 13:45", "mdy")
    (31.0, 31.0, 31.0)
    """
    text = text.strip()
    if text in MISSING:
        return math.nan
    for pattern in (_ISO, _NUMERIC, _NAMED, _COMPACT):
        found = pattern.match(text)
        if found and _BEHIND.fullmatch(text, found.end()):
            break
    else:
        raise ValueError(text)
    if pattern is _ISO:
        year, month, day = int(found[1]), int(found[3]), int(found[4])
    elif pattern is _COMPACT:
        year, month, day = int(found[1]), int(found[2]), int(found[3])
    elif pattern is _NUMERIC:
        first, second, year = int(found[1]), int(found[3]), int(found[4])
        if order == OPEN and found[2] != ".":
            raise ValueError(text)
        month_first = order == "mdy" and not (found[2] == "." and second <= 12)
        day, month = (second, first) if month_first else (first, second)
    else:
        month = _MONTHS.get((found[2] or found[4])[:3].lower(), 0)
        day, year = int(found[1] or found[5]), int(found[3] or found[6])
    return float((datetime.date(year, month, day) - EPOCH).days)


def order_of(text: str) -> str:
    """Return the order of day and month in a date: one of `ORDERS` if it tells, OPEN if it does not, else nothing.

    >>> order_of("03.04.2024"), order_of("01/31/2024"), order_of("03/04/2024"), order_of("2024-01-31")
    ('dmy', 'mdy', '?', '')
    """
    found = _NUMERIC.match(text.strip())
    if found is None:
        return ""
    first, second = int(found[1]), int(found[3])
    if first == second:
        return ""
    if second > 12:
        return "mdy"
    return "dmy" if first > 12 or found[2] == "." else OPEN


def is_time(text: str) -> bool:
    """Tell whether a text is a time of the day."""
    return _CLOCK.fullmatch(text.strip()) is not None


def spelled(number: object) -> str:
    """Return a number as a text that is read as that number, whatever separates decimals in other texts.

    >>> spelled(2.0), spelled(0.5), spelled(45.123)
    ('2', '0.5', '45.1230')
    """
    text = plain(str(number))
    return text + "0" * decimal_of(text).startswith(OPEN)


def plain(text: str) -> str:
    """Return one spelling for texts that mean the same whole number or truth value.

    >>> plain("1.0"), plain("-0.00"), plain("True"), plain("1.50"), plain("01")
    ('1', '0', 'true', '1.50', '01')
    """
    if "." in text and _WHOLE.fullmatch(text):
        text = text.partition(".")[0]
    if text == "-0":
        return "0"
    return text.lower() if len(text) in (4, 5) and text.lower() in ("true", "false") else text

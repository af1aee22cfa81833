"""Structured logs: an event with fields, as one JSON object a line or as a line of text for people.

    log = events("coordinator")
    log.warning("refused", site="north", code="out of sequence")

A field is a number or a text, never bytes. So a message's body or a key is not logged by mistake. Invitations and
tokens are cut out of all texts, and no text starts a line of its own.
"""

from __future__ import annotations

import json
import logging
import math
import re
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TextIO

Field = str | int | float | bool | None
LONGEST = 2000
"""Characters of a text."""

_SECRET = re.compile(r"(fedvi1_|token=|bearer )[\w.~+/=-]+", re.IGNORECASE)
_PLAIN = re.compile(r"[\w.:/+-]+", re.ASCII)


class Events:
    """Where one part of the program says what happens."""

    def __init__(self, part: str):
        self._log = logging.getLogger(f"fedvi.{part}")

    def debug(self, event: str, /, **fields: Field) -> None:
        """Log what happens all the time."""
        self._log.debug(event, extra={"fields": fields})

    def info(self, event: str, /, **fields: Field) -> None:
        """Log what happens now and then."""
        self._log.info(event, extra={"fields": fields})

    def warning(self, event: str, /, **fields: Field) -> None:
        """Log what somebody should look at."""
        self._log.warning(event, extra={"fields": fields})


events = Events


def setup(where: Path | TextIO, as_json: bool, debug: bool = False) -> logging.Handler:
    """Write events, and warnings of other packages, to a file or a stream; return the handler that does.

    A file is appended to, only its owner may read it, and it may be moved away (logrotate).
    """
    if isinstance(where, Path):
        where.touch(mode=0o600)
        handler: logging.Handler = WatchedFileHandler(where, encoding="utf-8")
    else:
        handler = logging.StreamHandler(where)
    handler.setFormatter(_Lines(as_json))
    logging.getLogger().addHandler(handler)
    logging.getLogger("fedvi").setLevel(logging.DEBUG if debug else logging.INFO)
    return handler


class _Lines(logging.Formatter):
    def __init__(self, as_json: bool):
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        own = {"time": time, "level": record.levelname.lower(), "part": record.name, "event": record.getMessage()}
        fields = own | getattr(record, "fields", {}) | own  # own names first, and nobody changes them
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)[-LONGEST:]
        fields = {name: _clean(value) for name, value in fields.items()}
        if self._as_json:
            return json.dumps(fields)
        level = "" if record.levelno == logging.INFO else f" {record.levelname}"
        said = (f" {name}={_quoted(value)}" for name, value in fields.items() if name not in own)
        return f"{time[:19]}{level} {json.dumps(fields['event'])[1:-1]}{''.join(said)}"


def _clean(value: object) -> Field:
    """Return what may be logged of a value."""
    if isinstance(value, str):
        return _SECRET.sub(r"\1...", value)[:LONGEST]
    if value is None or (isinstance(value, int | float) and math.isfinite(value)):
        return value
    return f"<{type(value).__name__}>"


def _quoted(value: Field) -> str:
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else json.dumps(value)

"""Structured logs: every line is an event, and none tells a secret."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import pytest

from fedvi import logs

log = logs.events("coordinator")


@pytest.fixture
def setup() -> Iterator[Callable[..., logging.Handler]]:
    """Set logs up, and undo it after the test."""
    made = []
    level = logging.getLogger("fedvi").level

    def setup(where: Path | TextIO, as_json: bool, debug: bool = False) -> logging.Handler:
        made.append(logs.setup(where, as_json, debug))
        return made[-1]

    yield setup
    for handler in made:
        logging.getLogger().removeHandler(handler)
        handler.close()
    logging.getLogger("fedvi").setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_object_in_a_line(setup: Callable[..., logging.Handler]) -> None:
    setup(stream := io.StringIO(), as_json=True)
    before = datetime.now(UTC)
    log.info("joined", site="north", rows=None, epsilon=0.5, over=False)
    log.warning("refused", site="south", code="out of sequence", reason="Expected 7,\ngot \u202e9.")
    joined, refused = lines(stream)
    assert abs((datetime.fromisoformat(joined.pop("time")) - before).total_seconds()) < 60
    assert joined == {
        "level": "info",
        "part": "fedvi.coordinator",
        "event": "joined",
        "site": "north",
        "rows": None,
        "epsilon": 0.5,
        "over": False,
    }
    assert (refused["level"], refused["reason"]) == ("warning", "Expected 7,\ngot \u202e9.")


def test_text_is_one_line_for_people(setup: Callable[..., logging.Handler]) -> None:
    setup(stream := io.StringIO(), as_json=False)
    log.info("joined", site="north", epsilon=0.5)
    log.warning("refused", code="out of sequence", reason="a\nforged line\x1b[31m\u202e")
    first, second = stream.getvalue().splitlines()
    assert first.partition(" ")[2] == "joined site=north epsilon=0.5"
    datetime.fromisoformat(first.partition(" ")[0])
    said = r'WARNING refused code="out of sequence" reason="a\nforged line\u001b[31m\u202e"'
    assert second.partition(" ")[2] == said


def test_debug_is_written_only_if_asked_for(setup: Callable[..., logging.Handler]) -> None:
    setup(quiet := io.StringIO(), as_json=True)
    log.debug("applied", site="north", version=1)
    assert quiet.getvalue() == ""
    setup(loud := io.StringIO(), as_json=True, debug=True)
    log.debug("applied", site="north", version=2)
    assert [line["version"] for line in lines(loud)] == [2]


@pytest.mark.parametrize("as_json", [True, False])
def test_neither_bytes_nor_invitations_nor_tokens_are_written(
    setup: Callable[..., logging.Handler], as_json: bool
) -> None:
    setup(stream := io.StringIO(), as_json=as_json)
    secret = "S3cr3t_-"
    log.info("page", address=f"http://127.0.0.1:1/?token={secret}", body=secret.encode())  # type: ignore[arg-type]
    log.info(f"invited fedvi1_{secret}", header=f"Authorization: Bearer {secret}", deep=[secret])  # type: ignore[arg-type]
    try:
        raise ValueError(f"bad fedvi1_{secret}")
    except ValueError:
        logging.getLogger("fedvi.coordinator").exception("failed")
    written = stream.getvalue()
    assert secret not in written
    assert "token=..." in written
    assert "<bytes>" in written
    assert "ValueError" in written
    assert len(written.splitlines()) == 3


def test_numbers_that_are_not_finite_leave_the_line_readable(setup: Callable[..., logging.Handler]) -> None:
    setup(stream := io.StringIO(), as_json=True)
    log.info("read", change=float("nan"), arrived=float("inf"), text="x" * 100_000)
    (line,) = lines(stream)
    assert (line["change"], line["arrived"], len(line["text"])) == ("<float>", "<float>", logs.LONGEST)


def test_fields_do_not_change_what_every_line_has(setup: Callable[..., logging.Handler]) -> None:
    setup(stream := io.StringIO(), as_json=True)
    log.info("joined", event="stopped", time="never", level="none", part="of nothing")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["part"]) == ("joined", "info", "fedvi.coordinator")
    assert line["time"] != "never"


def test_warnings_of_other_packages_have_the_same_form(setup: Callable[..., logging.Handler]) -> None:
    setup(stream := io.StringIO(), as_json=True)
    logging.getLogger("tornado.general").warning("SSL error on %d: %s", 7, "bad\nhandshake")
    logging.getLogger("tornado.general").info("nothing to see")
    assert [(line["part"], line["event"]) for line in lines(stream)] == [
        ("tornado.general", "SSL error on 7: bad\nhandshake")
    ]


def test_a_file_is_private_appended_to_and_may_be_moved_away(
    setup: Callable[..., logging.Handler], tmp_path: Path
) -> None:
    path = tmp_path / "coordinator.log"
    setup(path, as_json=True)
    log.info("joined", site="north")
    assert path.stat().st_mode & 0o777 == 0o600
    path.rename(tmp_path / "old.log")
    log.info("joined", site="south")
    assert [json.loads(each.read_text())["site"] for each in (tmp_path / "old.log", path)] == ["north", "south"]


def test_a_log_that_cannot_be_written_stops_nothing(
    setup: Callable[..., logging.Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(logging, "raiseExceptions", False)
    setup(Full(), as_json=True)
    log.warning("refused", site="north")

"""What a line of the log looks like, and that every action and field is in the table."""

import ast
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from palaver.gateway.logs import FIELDS, HumanFormat, JsonFormat, OutageFilter, configure_logs
from palaver.platforms.plugins import PLATFORMS
from tests.source import modules, nodes

ROOT = Path(__file__).parents[2]


def record(**fields: object) -> logging.LogRecord:
    made = logging.LogRecord("palaver.engine.turns.runner", logging.INFO, "", 0, "turn %s", ("began",), None)
    vars(made).update({"created": 0.0, "action": "turn.started", **fields})
    return made


def test_a_line_for_machines_is_one_object_with_stable_names() -> None:
    assert json.loads(JsonFormat().format(record(turn=7, refused=False, unknown="x"))) == {
        "at": "1970-01-01T00:00:00.000+00:00",
        "level": "info",
        "logger": "palaver.engine.turns.runner",
        "sentence": "turn began",
        "action": "turn.started",
        "turn": 7,
        "refused": False,
    }


def test_a_line_for_people_has_its_details_behind_the_sentence() -> None:
    assert HumanFormat(colours=False).format(record(turn=7)).endswith(" info     turn began action=turn.started turn=7")
    assert "turn began \x1b[2maction=turn.started turn=7\x1b[0m" in HumanFormat(colours=True).format(record(turn=7))


def test_libraries_are_heard_from_warnings_on_and_secrets_never() -> None:
    stream = io.StringIO()
    configure_logs("debug", "json", stream)
    configure_logs("debug", "json", stream)
    logging.getLogger("palaver.x").debug("ours")
    logging.getLogger("httpx").info("chatter")
    logging.getLogger("httpx").warning("POST https://user:%s@example.org failed", "hunter2hunter2")
    ours, theirs = map(json.loads, stream.getvalue().splitlines())
    assert ours["sentence"] == "ours"
    assert "hunter2" not in theirs["sentence"]


def test_a_line_that_cannot_be_written_is_not_quoted_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    configure_logs("info", "human", stream)
    stream.close()
    logging.getLogger("palaver.x").info("lost")
    assert capsys.readouterr().err == ""


def test_what_an_outage_repeats_is_logged_a_few_times_in_a_while() -> None:
    lines = OutageFilter()

    def shown(times: int, at: float, **fields: object) -> int:
        again = record(**fields)
        again.created = at
        return sum(lines.filter(again) for _ in range(times))

    assert shown(1000, 0.0, action="store.unavailable") == 10
    assert shown(1000, 59.0, action="store.unavailable") == 0
    assert shown(1000, 0.0, action="message.not_stored", account="a") == 10
    assert shown(1000, 0.0, action="message.not_stored", account="b") == 10
    assert shown(1000, 0.0, action="turn.failed") == 1000
    assert shown(1000, 61.0, action="store.unavailable") == 10


WIRE_ACTIONS = {"authentication_challenge", "http", "kill", "list", "remove"}
"""Of Mattermost and ntfy, whose payloads have a field of the same name, like those of Home Assistant; and of tools."""


def told_fields() -> Iterator[dict[str, ast.expr]]:
    """Every dict with an action in the code: what records carry."""
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.Dict):
                fields = {key.value: value for key, value in zip(node.keys, node.values, strict=True)
                          if isinstance(key, ast.Constant) and isinstance(key.value, str)}  # fmt: skip
                action = fields.get("action")
                is_wire = isinstance(action, ast.Constant) and action.value in WIRE_ACTIONS
                is_wire |= isinstance(action, ast.Call)
                if action is not None and not isinstance(action, ast.Dict) and not is_wire:
                    yield fields


def named_actions(action: ast.expr) -> Iterator[str]:
    """An action has one name, or one for each platform that skips what it cannot read."""
    if not isinstance(action, ast.JoinedStr):
        yield ast.literal_eval(action)
        return
    _, what = action.values
    folders = {each.name: each.adapter.split(".")[2] for each in PLATFORMS.values() if each.adapter}
    folders["relayed"] = "relayed"  # accounts of a connector, on any platform
    for name, folder in folders.items():
        sources = (path.read_text() for path in (ROOT / "src/palaver/platforms" / folder).glob("*.py"))
        if any("_or_skip(" in source for source in sources):
            yield f"{name}{ast.literal_eval(what)}"


def test_every_action_is_a_plain_word_of_the_table_in_the_docs() -> None:
    page = (ROOT / "docs/logs.md").read_text()
    table = page.partition("## What is logged")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    documented = {name for cell in cells for name in re.findall(r"`([a-z_.]+)`", cell)}
    actions = {action for fields in told_fields() for action in named_actions(fields["action"])}
    assert actions == documented


def test_every_field_of_a_record_is_one_that_is_shown() -> None:
    assert {name for fields in told_fields() for name in fields} == set(FIELDS)


def test_every_line_of_the_code_has_an_action() -> None:
    for path in (ROOT / "src/palaver").rglob("*.py"):
        for call in re.findall(
            r"\blog\.(?:info|debug|warning|error|exception)\([^\n]*(?:\n[^\n]+){0,6}", path.read_text()
        ):
            assert "action" in call or "extra=extra" in call or "extra=told" in call, (path, call)

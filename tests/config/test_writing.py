"""What is written into a user's file, and what of it stays."""

import stat
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from palaver.config.writer import has_value, line_of, remove_value, replace_file, replace_value, yaml_scalar
from palaver.model.errors import BadArgument

AGENT = {"name": "model", "model": "openai:gpt-5-mini", "key": "${KEY}"}
WRITTEN = 'agent:\n  name: model\n  model: "openai:gpt-5-mini"\n  key: "${KEY}"\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", WRITTEN),
        ("# mine\n", f"# mine\n{WRITTEN}"),
        ("busy: queue  # why", f"busy: queue  # why\n{WRITTEN}"),
        ("agent: {name: echo}\n# next\nbusy: queue\n", f"{WRITTEN}# next\nbusy: queue\n"),
        (
            "# a\n\nagent:\n  name: echo\n  # inside\n  streams: true\n\n# b\nbusy: queue\n",
            f"# a\n\n{WRITTEN}\n# b\nbusy: queue\n",
        ),
        ("busy: queue\nagent:\n  name: echo", f"busy: queue\n{WRITTEN}"),
        ("agent:\n  name: >\n    echo\n\nbusy: queue\n", f"{WRITTEN}busy: queue\n"),
        ("---\nbusy: queue\n", f"---\nbusy: queue\n{WRITTEN}"),
        ("busy: queue\r\n", "busy: queue\r\n" + WRITTEN.replace("\n", "\r\n")),
        ("  busy: queue\n", "  busy: queue\n" + "".join(f"  {line}\n" for line in WRITTEN.splitlines())),
        (
            "grants:\n- {platform: irc}\n- platform: sms\nagent: {name: echo}\n",
            "grants:\n- {platform: irc}\n- platform: sms\n" + WRITTEN,
        ),
    ],
)
def test_only_what_is_meant_changes(before: str, after: str) -> None:
    assert replace_value(before, ("agent",), AGENT) == after
    assert replace_value(after, ("agent",), AGENT) == after


def test_several_fields_find_their_places() -> None:
    before = "timezone: UTC\nbusy: queue\n"
    after = replace_value(replace_value(before, ("agent",), AGENT), ("timezone",), "Europe/Berlin")
    assert after == f"timezone: Europe/Berlin\nbusy: queue\n{WRITTEN}"
    assert all(has_value(after, (name,)) for name in ("timezone", "busy", "agent"))
    assert not has_value(after, ("reset",))


def test_a_comment_behind_a_value_stays_and_one_below_too() -> None:
    before = "timezone: UTC  # where we live\nreset:\n  mode: idle # often\n  # hours\n  at_hour: 4\n"
    after = replace_value(replace_value(before, ("timezone",), "Europe/Berlin"), ("reset", "mode"), "daily")
    assert after == before.replace("UTC", "Europe/Berlin").replace("idle", "daily")
    assert line_of(after, ("reset", "mode")) == 3
    assert line_of(after, ("reset", "idle_minutes")) is None


def test_lists_and_sections_are_written_where_they_belong_and_removed_without_a_trace() -> None:
    server = {"command": "notes", "args": ["serve", "a b"], "environment": {"TOKEN": "${TOKEN}"}}
    before = "# mine\nbusy: queue\n"
    after = replace_value(before, ("tools", "servers", "notes"), server)
    assert yaml.safe_load(after) == {"busy": "queue", "tools": {"servers": {"notes": server}}}
    both = replace_value(after, ("tools", "servers", "web"), {"url": "https://tools.example.org/mcp"})
    assert remove_value(both, ("tools", "servers", "web")) == after
    assert remove_value(after, ("tools", "servers", "notes")) == before
    assert remove_value(before, ("tools", "servers", "notes")) == before


def test_a_section_in_braces_on_the_way_becomes_lines() -> None:
    before = "agent: {name: echo, streams: true} # mine\ntools: {guest: off, servers: {a: {command: b, args: [c]}}}\n"
    after = replace_value(before, ("agent", "name"), "local")
    assert after.startswith("agent: # mine\n  name: local\n  streams: true\n")
    after = remove_value(after, ("tools", "servers", "a", "args"))
    assert yaml.safe_load(after)["tools"] == {"guest": False, "servers": {"a": {"command": "b"}}}
    assert line_of(before, ("tools", "servers", "a")) == 2


def test_prose_is_written_in_lines() -> None:
    text = "You are a gardener.\n\n- be kind\n  - very"
    after = replace_value("agent:\n  name: local\n# next\nbusy: queue\n", ("agent", "instructions"), text)
    assert "  instructions: |-\n    You are a gardener.\n\n    - be kind\n      - very\n# next\n" in after
    assert yaml.safe_load(after)["agent"]["instructions"] == text
    short = replace_value(after, ("agent", "instructions"), "Be brief.")
    assert short == 'agent:\n  name: local\n  instructions: "Be brief."\n# next\nbusy: queue\n'


@given(st.lists(st.text(st.characters(exclude_categories=("C", "Zl", "Zp"))), min_size=1))
def test_any_prose_is_read_as_it_was_meant(lines: list[str]) -> None:
    text = "\n".join(lines)
    read = yaml.safe_load(replace_value("", ("agent",), {"instructions": f"x{text}"}))
    assert read["agent"]["instructions"] == f"x{text}"


def test_what_is_written_in_braces_is_left_alone() -> None:
    with pytest.raises(BadArgument, match="in braces"):
        replace_value("{busy: queue}", ("agent",), AGENT)


@given(st.text())
def test_any_value_is_read_as_it_was_meant(value: str) -> None:
    if all(character.isprintable() for character in value):
        read = yaml.safe_load(replace_value("", ("agent",), {"name": value}))
        assert str(read["agent"]["name"]) == value or yaml_scalar(value) == value


def test_a_file_is_replaced_whole_and_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_text("a")
    real.chmod(0o640)
    link.symlink_to(real)
    replace_file(link, "b\n")
    assert link.is_symlink()
    assert real.read_text() == "b\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    replace_file(tmp_path / "new/key", "k", private=True)
    assert stat.S_IMODE((tmp_path / "new/key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["key", "link.yaml", "new", "real.yaml"]

"""Prometheus reads what the engine counts, on this machine only."""

import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import get_args
from urllib.request import urlopen

import pytest

from palaver import __version__
from palaver.engine.hooks import Count, Level, NoMeter, Step, count_usage
from palaver.gateway.metrics import open_meter
from palaver.gateway.prometheus import COUNTS, LEVELS, PrometheusMeter, serve_metrics
from palaver.model.access import AccessRole, Grant
from palaver.model.errors import BadArgument
from palaver.model.turn import Usage
from palaver.protocols.hooks import GatewayEvent
from palaver.testkit.faults import Faults, SendFault
from palaver.testkit.platform import FakePlatform
from tests.engine.gateway import MovableClock, running, until

ROOT = Path(__file__).parents[2]


def value(meter: PrometheusMeter, name: str, **labels: str) -> float:
    found = meter.registry.get_sample_value(f"palaver_{name}", labels)
    assert found is not None, name
    return found


async def test_a_conversation_is_counted(tmp_path: Path) -> None:
    meter = PrometheusMeter()
    async with running(tmp_path / "p.db", meter=meter, lease=_SHORT) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("hello")
        await chat.say(alice, "!fail")
        await chat.hears("went wrong")
        await chat.say(alice, "/help")
        await here.settled()
        await until(lambda: value(meter, "accounts") == 1)
    steps = {name: value(meter, "step_seconds_count", step=name) for name in get_args(Step)}
    assert steps == {"accept": 3, "begin": 3, "turn": 2, "agent": 2, "settle": 2, "send": 3, "tool": 0}
    assert value(meter, "turns_failed_total") == 1
    assert value(meter, "input_tokens_total") > 0
    assert value(meter, "output_tokens_total") > 0
    assert value(meter, "cost_micros_total") == value(meter, "unpriced_tokens_total") == 0
    assert value(meter, "build_info", version=__version__) == 1
    assert value(meter, "commands_total") == 1
    assert value(meter, "delivery_lag_seconds_count", platform="fake") == 3


async def test_what_waits_is_measured(tmp_path: Path) -> None:
    meter = PrometheusMeter()
    async with running(tmp_path / "p.db", meter=meter, concurrent_turns=1, lease=_SHORT) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        await here.world.dm(alice).say(alice, "!hang")
        await until(lambda: value(meter, "leases") == 1)
        await here.world.dm(bob).say(bob, "hello")
        await until(lambda: value(meter, "inbox_waiting") == 1)
        await until(lambda: value(meter, "inbox_oldest_seconds") > 0)
        assert value(meter, "lanes") == 1
        assert value(meter, "outbox_due") == 0


_SHORT = timedelta(seconds=0.3)


def test_tokens_and_cost_are_counted_in_all() -> None:
    meter = PrometheusMeter()
    for _ in range(2):
        count_usage(meter, Usage(input_tokens=7, output_tokens=5, cached_tokens=3, cost_micros=11, unpriced_tokens=2))
    for name, total in (("input", 14), ("output", 10), ("cached", 6), ("unpriced", 4)):
        assert f"palaver_{name}_tokens_total {total}.0".encode() in meter.exposed()
    assert b"palaver_cost_micros_total 22.0" in meter.exposed()


def test_everything_that_can_be_counted_is_there_from_the_start() -> None:
    assert set(COUNTS) == set(get_args(Count))
    assert set(LEVELS) == set(get_args(Level))
    meter = PrometheusMeter()
    assert all(value(meter, f"{name}_total") == 0 for name in COUNTS)
    assert all(value(meter, "step_failures_total", step=name) == 0 for name in get_args(Step))


def test_every_name_is_in_use_and_in_the_docs() -> None:
    engine = "\n".join(path.read_text() for path in (ROOT / "src/palaver/engine").rglob("*.py"))
    page = (ROOT / "docs/monitoring.md").read_text()
    for name in (*get_args(Count), *get_args(Level), *get_args(Step)):
        assert f'("{name}"' in engine, name
        assert f"`{name}`" in page, name


def test_a_step_that_raises_is_counted_as_failed() -> None:
    meter = PrometheusMeter()
    with pytest.raises(KeyError), meter.step("begin"):
        raise KeyError
    assert value(meter, "step_failures_total", step="begin") == 1
    assert value(meter, "step_seconds_count", step="begin") == 1


def test_it_is_served_on_this_machine_only_and_until_the_end() -> None:
    meter = PrometheusMeter()
    meter.count("reconnects", 3)
    with serve_metrics(meter, 0) as port:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert b"palaver_reconnects_total 3.0" in answer.read()
        with socket.socket() as other:
            other.settimeout(60)
            assert other.connect_ex(("127.0.0.2", port)) != 0
        with pytest.raises(BadArgument, match="cannot be served on port"), serve_metrics(meter, port):
            pass
    with socket.socket() as late:
        assert late.connect_ex(("127.0.0.1", port)) != 0


def test_without_a_port_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "palaver.gateway.prometheus", None)
    with open_meter(None) as meter:
        assert isinstance(meter, NoMeter)
    with pytest.raises(BadArgument, match="Metrics need prometheus-client"), open_meter(9464):
        pass


async def test_what_goes_wrong_is_counted(tmp_path: Path) -> None:
    async def fail(_: GatewayEvent) -> None:
        raise OSError

    meter, world = PrometheusMeter(), FakePlatform(faults=Faults(duplicate=1.0, busy_for=0.01))
    world.injector.script.extend([SendFault.BUSY, SendFault.LOST_AFTER, SendFault.REFUSED, SendFault.REFUSED])
    grants = (Grant(platform="fake", user_id="p1", role=AccessRole.MEMBER),)
    at_once = timedelta(0)
    async with running(
        tmp_path / "p.db", world, meter=meter, hooks=[fail], grants=grants, repeat_after=at_once
    ) as here:
        alice, bob = world.person("alice"), world.person("bob")
        await world.dm(alice).say(alice, "!busy 1 hello")
        await world.dm(bob).say(bob, "hello")
        await here.settled()
        await until(lambda: value(meter, "sends_dead_total") == 1)
        world.cut()
        await until(lambda: value(meter, "reconnects_total") == 1)
    for name in ("send_retries", "sends_unclear", "agent_retries", "messages_refused"):
        assert value(meter, f"{name}_total") == 1, name
    assert value(meter, "messages_repeated_total") >= 1
    assert value(meter, "hooks_failed_total") >= 2


async def test_what_changes_hands_is_counted(tmp_path: Path) -> None:
    """The first worker is frozen past its lease: the second takes over, the first finds out."""
    mine, theirs, clock = PrometheusMeter(), PrometheusMeter(), MovableClock()
    world = FakePlatform()
    async with running(tmp_path / "p.db", world, meter=mine, alone=False, lease=_SHORT, clock=clock) as here:
        alice = world.person("alice")
        await world.dm(alice).say(alice, "!hang")
        await until(lambda: value(mine, "leases") == 1)
        clock.later(hours=-1)
        async with running(tmp_path / "p.db", world, meter=theirs, worker="w2", alone=False, lease=_SHORT):
            await until(lambda: value(theirs, "turns_reclaimed_total") == 1)
            await until(lambda: value(mine, "turns_lost_total") == 1)
            await until(lambda: value(mine, "accounts_lost_total") == 1)
        assert not here.serving.done()

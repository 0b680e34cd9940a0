"""Explanations say what a running gateway does, over random configurations and messages."""

import random
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from palaver.agents.echo import EchoAgent
from palaver.config.model import Config
from palaver.engine.explain import Explanation
from palaver.engine.settings import Agents
from palaver.model.access import AccessRole, Effect, Grant, Verdict
from palaver.model.addressing import Addressing
from palaver.model.source import DM, GROUP, Source, Trust
from palaver.model.turn import Inbound
from palaver.store.conversations import chat_migration
from palaver.store.people import aliases, grants, links, people
from palaver.store.people.grants import GrantTable
from palaver.store.queue import inbox
from palaver.store.results import Opening
from palaver.testkit.adapter import FAKE
from palaver.testkit.platform import BOT, FakePlatform
from tests.engine.gateway import OPERATOR, Bench, MovableClock, running
from tests.engine.mouth import Mouth

CONFIGURATIONS, MESSAGES = 25, 8
USERS = ("alice", "bob", "carol")


def a_configuration(rng: random.Random, folder: Path, chats: list[str]) -> Config:
    """A configuration in which each section sets some of the settings of a chat."""

    def settings() -> dict[str, Any]:
        possible: dict[str, Any] = {
            "scope": {
                "dm": rng.choice(["per-chat", "per-person", "shared"]),
                "group": rng.choice(["per-user", "shared"]),
                "thread": rng.choice(["per-user", "shared"]),
            },
            "reset": {
                "mode": rng.choice(["never", "idle", "daily", "both"]),
                "idle_minutes": rng.choice(["30", "600"]),
            },
            "timezone": rng.choice(["UTC", "Asia/Tokyo"]),
            "attention": {
                "answers": rng.choice(["auto", "addressed", "everything"]),
                "wake_words": rng.choice([[], ["palaver"]]),
                "observes": rng.choice(["true", "false"]),
            },
            "pairing": rng.choice(["true", "false"]),
        }
        return {name: value for name, value in possible.items() if rng.random() < 0.4}

    def grant() -> dict[str, str]:
        user = {"user_id": rng.choice(USERS)} if rng.random() < 0.7 else {}
        effect = "block" if rng.random() < 0.1 else "allow"
        return {"platform": "fake", "role": rng.choice(["guest", "member", "owner"]), "effect": effect, **user}

    platform = {**settings(), "chats": {chat: settings() for chat in chats}}
    serves = [{"platform": "fake", "chat_id": rng.choice(chats)}, {"platform": "fake", "thread_id": "t1"}]
    return Config.model_validate(
        {
            "data_dir": str(folder),
            "store": str(folder / "p.db"),
            **settings(),
            "platforms": {"fake": platform},
            "kinds": {"group": settings()},
            "profiles": {"work": {**settings(), "serves": rng.sample(serves, rng.randint(0, 2))}},
            "grants": [grant() for _ in range(rng.randint(0, 5))],
        }
    )


async def change_the_store(rng: random.Random, here: Bench, clock: MovableClock, chats: list[str]) -> None:
    now, store = clock.now(), here.store
    match rng.randint(0, 5):
        case 0:
            effect = Effect.BLOCK if rng.random() < 0.1 else Effect.ALLOW
            role = rng.choice(list(AccessRole))
            stored = Grant(platform="fake", user_id=rng.choice(USERS), effect=effect, role=role)
            await store.transact(grants.add(stored, now, by="test", force=True))
        case 1:
            await store.transact(aliases.learn("fake", f"{rng.choice(USERS)}-phone", rng.choice(USERS), now))
        case 2:
            one, other = (f"fake:{user}" for user in rng.sample(USERS, 2))
            linked = await store.read(people.linked_people())
            if linked.get(one, one) != linked.get(other, other):
                for identity in (one, other):
                    await store.transact(people.person_of(identity, now))
                await store.transact(links.link(one, other, now, by="test"))
        case 3:
            await store.transact(chat_migration.move("fake", BOT, f"old-{rng.choice(chats)}", rng.choice(chats), now))
        case 4:
            table = await store.read(grants.load_table(GrantTable()))
            for number in rng.sample(sorted(table.grants), len(table.grants) // 2):
                await store.transact(grants.remove(number, now, by="test", force=True))
        case _:
            pass


def a_message(rng: random.Random, clock: MovableClock, chats: dict[str, str], number: int) -> tuple[Inbound, Trust]:
    kind = rng.choice([DM, GROUP])
    chat = rng.choice([chat for chat in sorted(chats) if chats[chat] == kind])
    user = rng.choice(USERS) + rng.choice(["", "", "-phone"])
    source = Source(
        platform="fake",
        account=BOT,
        chat_kind=kind,
        chat_id=rng.choice([chat, chat, f"old-{chat}"]) if kind == GROUP else chat,
        thread_id=rng.choice([None, "t1"]) if kind == GROUP else None,
        user_id=user,
        message_id=f"m{number}",
    )
    text = rng.choice(["hello", "Palaver, hello", "/status", "/queue later", "@palaver hi", "!status", "!hello"])
    inbound = Inbound(source=source, text=text, at=clock.now(), mentions_us=rng.random() < 0.4)
    return inbound, Trust(is_bot=rng.random() < 0.1, talk_only=rng.random() < 0.1)


async def test_what_is_explained_is_what_happens(tmp_path: Path) -> None:
    world, clock, numbers = FakePlatform(), MovableClock(), count(1)
    platform = replace(FAKE, has_mentions=True, keeps_slash=True)
    mouth = Mouth(world, clock, platform=platform)
    async with running(tmp_path / "p.db", world, clock=clock, adapters=[mouth]) as here:
        people_here = [world.person(name) for name in USERS]
        chats = {world.dm(person).id: DM for person in people_here} | {world.group("Dev", *people_here).id: GROUP}
        for seed in range(CONFIGURATIONS):
            rng = random.Random(seed)  # noqa: S311 - a seed that repeats
            here.engine.reload(a_configuration(rng, tmp_path, sorted(chats)).settings(), Agents(EchoAgent()))
            for _ in range(MESSAGES):
                await change_the_store(rng, here, clock, sorted(chats))
                clock.later(minutes=rng.choice([1, 45, 60 * 20]))
                inbound, trust = a_message(rng, clock, chats, next(numbers))
                explained = await here.engine.explain(inbound, trust)
                await here.engine.receive(inbound, trust)
                await here.settled()
                told = await compare(here, inbound, explained)
                assert told is None, f"configuration {seed}, message {inbound.source.message_id}: {told}"


async def compare(here: Bench, inbound: Inbound, explained: Explanation) -> str | None:
    """What differs between an explanation and what was stored."""
    rows = await here.rows(
        "SELECT i.state, i.key, i.no, i.reason, s.id, t.no FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"
        " LEFT JOIN sessions s ON s.no = t.session_no WHERE i.message_id = ?",
        inbound.source.message_id,
    )
    access = explained.admission.access
    if explained.decision.addressing is Addressing.IGNORED:
        return f"was stored: {rows}" if rows else None
    if access.verdict is Verdict.PAIR:
        told = tuple(rows[0])[:4:3]
        return None if told == ("refused", explained.reception) else f"{told}, not {explained.reception}"
    (state, key, number, reason, session, turn) = rows[0]
    if access.verdict is Verdict.REFUSE:
        told = (state, reason, key)
        return None if told == ("refused", access.reason, explained.key.key.text) else f"{told}, not {access.reason}"
    is_command = explained.decision.parsed.is_command
    if explained.decision.addressing is Addressing.ADDRESSED and is_command is not (turn is None):
        return f"was {'answered' if turn else 'run'}, not {explained.decision.parsed}"
    wanted = explained.admission.role
    received = await here.store.read(inbox.get_message(number, OPERATOR))
    role = received and received.role
    if (key, role) != (explained.conversation.text, wanted):
        return f"went to {key} as {role}, not to {explained.conversation.text} as {wanted}"
    return None if turn is None else await compare_session(here, explained, session, turn)


async def compare_session(here: Bench, explained: Explanation, session: str, turn: int) -> str | None:
    opening = explained.opening
    before = await here.rows(
        "SELECT o.from_session FROM operations o JOIN turns t ON t.session_no = o.session_no WHERE t.no = ?"
        " AND o.kind = 'reset' AND o.actor = 'reset policy'"
        " AND NOT EXISTS (SELECT 1 FROM turns e WHERE e.session_no = t.session_no AND e.no < t.no)",
        turn,
    )
    known = opening.session.id if opening.session else None
    happened = "reset" if before else "reused" if session == known else "created"
    said = "reused" if opening.opening is Opening.REOPENED else opening.opening.value
    is_same = happened == said and (not before or before[0][0] == known)
    return None if is_same else f"{happened} in {session}, not {opening}"

"""A whole gateway by e-mail: threads, commands, spoofed senders, loops, and what is kept of a quoted mail."""

from contextlib import AbstractAsyncContextManager
from email.message import EmailMessage
from pathlib import Path

from palaver.model.access import AccessRole, Grant
from palaver.model.key import ScopedSetting
from palaver.store.records import entries_of
from palaver.store.status.invariants import violations
from tests.engine.agents import Slow, noted
from tests.engine.gateway import Bench, running, until
from tests.platforms.email.fakes import text_of
from tests.platforms.email.post import ANN, BOB, PostOffice


def gateway(office: PostOffice, folder: Path, **changed: object) -> AbstractAsyncContextManager[Bench]:
    """Ann may speak there."""
    grants = (Grant(platform="email", role=AccessRole.MEMBER, user_id=ANN),)
    given = {"grants": grants, "acknowledges": False, **changed}
    return running(folder / "p.db", adapters=[office.adapter(unverified="stranger")], **given)  # pyright: ignore[reportArgumentType]


async def hears(office: PostOffice, text: str) -> EmailMessage:
    """The first mail that has this in it."""
    await until(lambda: any(text in text_of(mail) for mail in office.sent))
    return next(mail for mail in office.sent if text in text_of(mail))


async def test_a_thread_is_a_conversation_and_quoted_mail_is_kept_but_not_said_again(
    office: PostOffice, tmp_path: Path
) -> None:
    agent = Slow()
    agent.go.set()
    async with gateway(office, tmp_path, agent=agent) as here:
        first = office.compose("Green or black?", subject="Tea")
        await office.post(first)
        answer = await hears(office, "Green or black?")
        assert answer["Subject"] == "Re: Tea"
        assert answer["References"] == first["Message-ID"]
        reply = office.compose(
            "Black then.\n\nOn 1 May 2026, Helper wrote:\n> something old\n",
            subject="Re: Tea",
            headers={
                "In-Reply-To": answer["Message-ID"],
                "References": f"{answer['References']} {answer['Message-ID']}",
            },
        )
        await office.post(reply)
        again = await hears(office, "Black then.")
        assert again["References"] == f"{first['Message-ID']} {reply['Message-ID']}"
        await office.post(office.compose("Something else", subject="Milk"))
        assert (await hears(office, "Something else"))["Subject"] == "Re: Milk"
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 2
        told = next(text for text in map(noted, agent.requests) if "Black then." in text)
        assert "Black then.\n\nOn 1 May" not in told
        assert "in reply to you" in told
        assert await here.store.read(violations()) == []


async def test_a_long_quoted_history_is_in_the_record_whole_and_before_the_agent_in_part(
    office: PostOffice, tmp_path: Path
) -> None:
    agent = Slow()
    agent.go.set()
    history = "\n".join(f"line {number} of what was said before" for number in range(500))
    quoted = history.replace("\n", "\n> ")
    async with gateway(office, tmp_path, agent=agent) as here:
        await office.post(office.compose(f"What now?\n\nOn 1 May 2026, Bob wrote:\n> {quoted}\n"))
        await hears(office, "What now?")
        await here.settled()
        entries = entries_of(await here.rows("SELECT id, body FROM entries ORDER BY id"))
        (kept,) = [entry.quote for entry in entries if entry.quote]
        assert kept.text == f"On 1 May 2026, Bob wrote:\n{history}"
    (told,) = map(noted, agent.requests)
    assert "line 20 of" in told
    assert "line 40 of" not in told


async def test_a_redelivered_mail_and_an_automatic_one_get_no_answer(office: PostOffice, tmp_path: Path) -> None:
    async with gateway(office, tmp_path) as here:
        mail = office.compose("once")
        for _ in range(2):
            await office.post(mail)
        await office.post(office.compose("away", headers={"Auto-Submitted": "auto-replied"}))
        await office.post(office.compose("last"))
        await hears(office, "last")
        await here.settled()
    assert len(office.sent) == 2
    assert {mail["Auto-Submitted"] for mail in office.sent} == {"auto-replied"}


async def test_a_spoofed_sender_has_no_rights_and_does_not_enter_the_conversation(
    office: PostOffice, tmp_path: Path
) -> None:
    asked_for = ScopedSetting(default=True, platforms={"email": True})
    async with gateway(office, tmp_path, pairing=asked_for) as here:
        thread = office.compose("my secret is 42")
        await office.post(thread)
        await hears(office, "my secret is 42")
        office.results = "dmarc=fail header.from=example.org"
        asks = {"References": str(thread["Message-ID"])}
        await office.post(office.compose("/status", headers=asks))
        assert "idle" not in text_of(await hears(office, "I do not know you yet."))
        office.results = "dmarc=pass header.from=example.org"
        await office.post(office.compose("/status", headers=asks))
        await hears(office, "idle")
        await here.settled()
        rows = await here.rows("SELECT state, count(*) FROM inbox GROUP BY state ORDER BY state")
        assert dict(rows).get("refused") == 1  # pyright: ignore[reportArgumentType, reportCallIssue]


async def test_a_copy_among_several_is_not_answered_but_a_mail_to_us_is(office: PostOffice, tmp_path: Path) -> None:
    async with gateway(office, tmp_path) as here:
        await office.post(office.compose("just so you know", to=BOB, headers={"Cc": office.inbox.address}))
        await office.post(office.compose("what do you think?", to=f"{BOB}, {office.inbox.address}"))
        answer = await hears(office, "what do you think?")
        assert {address.addr_spec for address in answer["To"].addresses} == {ANN, BOB}
        await here.settled()
    assert len(office.sent) == 1

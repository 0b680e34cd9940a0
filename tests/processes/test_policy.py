"""Who can run which command, and what a person approves first: in the chat, durably, once."""

from datetime import timedelta
from pathlib import Path

from palaver.model.access import AccessRole, Grant
from palaver.model.command_policy import CommandPolicy, CommandRule
from palaver.model.tools import ALL_TOOLS, ApprovalMode, ToolRules
from tests.processes.workshop import use, workshop

EVERYTHING = ToolRules(roles=dict.fromkeys(AccessRole, ALL_TOOLS), allowed={"*": ApprovalMode.ALWAYS})


async def test_a_destructive_command_asks_in_the_chat_and_survives_a_restart(store_url: str, tmp_path: Path) -> None:
    target = tmp_path / "work/precious"
    async with workshop(store_url, tmp_path, tools=EVERYTHING) as shop:
        target.mkdir()
        await shop.chat.say(shop.alice, use("terminal", command="rm -rf precious; echo gone"))
        told = await shop.chat.hears("May I use terminal?")
        assert "command: rm -rf precious; echo gone" in told.text
        assert target.exists()
    async with workshop(store_url, tmp_path, again=shop, tools=EVERYTHING, worker="w2") as shop:
        assert target.exists()
        await shop.chat.say(shop.alice, "/approve")
        await shop.chat.hears(" s)\ngone")
        assert not target.exists()
        # What is typed into a running shell is judged like a command.
        await shop.starts("sh")
        target.mkdir()
        await shop.chat.say(shop.alice, use("process", action="submit", process="p2", data="rm -rf precious"))
        await shop.chat.hears("data: rm -rf precious")
        await shop.chat.say(shop.alice, "/deny")
        await shop.chat.hears("process: not allowed")
        assert target.exists()


async def test_a_command_that_the_rules_refuse_is_not_even_asked_about(tmp_path: Path) -> None:
    policy = CommandPolicy(
        rules=(
            CommandRule(pattern="touch *", mode=ApprovalMode.NEVER),
            CommandRule(pattern="echo *", mode=ApprovalMode.ALWAYS),
        ),
        default=ApprovalMode.ASK,
    )
    async with workshop(tmp_path / "p.db", tmp_path, policy=policy) as shop:
        for line in ("touch x", "echo y && touch x", 'echo "$(touch x)"'):
            assert "The rules of this gateway do not allow this command" in await shop.runs(line)
        assert await shop.runs("echo y") == "(exit code 0 after 0 s)\ny"
        assert await shop.does("list") == "There are no processes in this conversation."
        await shop.chat.say(shop.alice, use("terminal", command="pwd"))
        await shop.chat.hears("May I use terminal?")
        assert not (tmp_path / "work/x").exists()


async def test_processes_are_looked_at_and_killed_where_no_command_is_allowed(tmp_path: Path) -> None:
    rules = (CommandRule(pattern="cat", mode=ApprovalMode.ALWAYS),)
    policy = CommandPolicy(rules=rules, default=ApprovalMode.NEVER)
    async with workshop(tmp_path / "p.db", tmp_path, policy=policy) as shop:
        assert "do not allow" in await shop.runs("pwd")
        await shop.starts("cat")
        for action in ("poll", "log", "kill"):
            assert "do not allow" not in await shop.does(action, process="p1")
        for action in ("submit", "write"):
            assert "do not allow" in await shop.does(action, process="p1", data="x")
        assert "p1: " in await shop.does("list")


async def test_the_tools_of_a_job_work_in_its_directory(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    async with workshop(tmp_path / "p.db", tmp_path, poll=timedelta(milliseconds=20)) as shop:
        await shop.chat.say(shop.alice, f"/jobs add 1h {use('terminal', command='pwd')} --dir {there}")
        await shop.chat.hears("Job 1")
        shop.clock.later(hours=1, minutes=1)
        await shop.chat.hears(f"\n{there}")
        assert await shop.runs("pwd") == f"(exit code 0 after 0 s)\n{tmp_path}/work"


async def test_guests_run_nothing_even_if_they_have_every_tool(tmp_path: Path) -> None:
    grants = (Grant(platform="fake", role=AccessRole.GUEST),)
    async with workshop(tmp_path / "p.db", tmp_path, tools=EVERYTHING, grants=grants) as shop:
        for call in (use("terminal", command="touch x"), use("process", action="list"), use("file_list")):
            await shop.chat.say(shop.alice, call)
        await shop.chat.hears("There is no tool called", times=3)
        assert not (tmp_path / "work/x").exists()


async def test_only_owners_and_admins_have_a_terminal_by_default(tmp_path: Path) -> None:
    for role, has_it in ((AccessRole.MEMBER, False), (AccessRole.ADMIN, True), (AccessRole.OWNER, True)):
        folder = tmp_path / role.text
        folder.mkdir()
        grants = (Grant(platform="fake", role=role),)
        async with workshop(folder / "p.db", folder, grants=grants) as shop:
            told = await shop.runs("echo hello")
            assert ("hello" in told) is has_it
            assert ("There is no tool called terminal" in told) is not has_it


async def test_rights_are_those_of_the_moment_when_the_command_runs(tmp_path: Path) -> None:
    """Between the question and the answer the person has lost the role that the rule is for."""
    only_owner = CommandRule(pattern="*", mode=ApprovalMode.NEVER, roles=frozenset({AccessRole.ADMIN}))
    policy = CommandPolicy(rules=(only_owner,), default=ApprovalMode.ASK)
    grants = (Grant(platform="fake", role=AccessRole.ADMIN),)
    async with workshop(tmp_path / "p.db", tmp_path, policy=policy, grants=grants) as shop:
        store, owner = shop.here.store, Grant(platform="fake", user_id=shop.alice.id, role=AccessRole.OWNER)
        number = await store.transact(store.grants.add(owner, shop.clock.now(), by="test"))
        await shop.chat.say(shop.alice, use("terminal", command="touch x"))
        await shop.chat.hears("May I use terminal?")
        await store.transact(store.grants.remove(number, shop.clock.now(), by="test", force=True))
        await shop.chat.say(shop.alice, "/approve")
        await shop.chat.hears("The rules of this gateway do not allow this command")
        await shop.here.settled()
        assert not (tmp_path / "work/x").exists()

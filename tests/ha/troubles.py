"""What can go wrong with a database of several servers."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from tests.ha.cluster import DRIVER, Node
from tests.ha.siege import CALM_SECONDS, Siege

__all__ = ["TROUBLES", "UNDER_PATRONI"]

_NOTICE_SECONDS = 3.0
"""How long it takes to see that a server is gone, by hand."""
_FROZEN_SECONDS = 10.0
_STALL_SECONDS = 4.0


async def _replace(siege: Siege, seconds: float) -> None:
    old = await siege.servers.replace_primary(seconds)
    await asyncio.sleep(CALM_SECONDS / 2)
    await siege.servers.heal(old)


async def calm(siege: Siege) -> None:
    """Nothing: what this machine does without any trouble."""
    del siege
    await asyncio.sleep(CALM_SECONDS)


async def kill(siege: Siege) -> None:
    """The first process of the primary. The others see that and end."""
    siege.servers.primary.postmaster().kill()
    await _replace(siege, _NOTICE_SECONDS)


async def kill_node(siege: Siege) -> None:
    """Every process at once."""
    siege.servers.primary.signal(signal.SIGKILL)
    await _replace(siege, _NOTICE_SECONDS)


async def switch(siege: Siege) -> None:
    old = await siege.servers.switch_over()
    await siege.servers.heal(old)


async def freeze(siege: Siege) -> None:
    siege.servers.primary.signal(signal.SIGSTOP)
    await _replace(siege, _FROZEN_SECONDS)


async def freeze_standby(siege: Siege) -> None:
    """The one that confirms, or one of those that can."""
    name = await siege.servers.primary.ask(
        "SELECT application_name FROM pg_stat_replication WHERE sync_state <> 'async' ORDER BY 1 LIMIT 1"
    )
    (node,) = (each for each in siege.servers.standbys if each.name == name)
    node.signal(signal.SIGSTOP)
    await asyncio.sleep(_STALL_SECONDS)
    await siege.servers.heal(node)


async def partition(siege: Siege) -> None:
    """The primary runs on, and nobody hears of it."""
    for link in siege.servers.primary.links:
        link.cut()
    await _replace(siege, _NOTICE_SECONDS)


async def part_standbys(siege: Siege) -> None:
    """The gateways still reach the primary, which no standby and no manager reaches."""
    primary = siege.servers.primary
    for link in primary.links:
        if link is not primary.clients:
            link.cut()
    await _replace(siege, _FROZEN_SECONDS)


async def stall(siege: Siege) -> None:
    """No standby answers: every commit waits."""
    for node in siege.servers.standbys:
        node.signal(signal.SIGSTOP)
    await asyncio.sleep(_STALL_SECONDS)
    for node in siege.servers.standbys:
        node.signal(signal.SIGCONT)


async def delay(siege: Siege) -> None:
    """20 ms for each commit."""
    await _set(siege.servers.primary, commit_delay=20_000, commit_siblings=0)
    await asyncio.sleep(_FROZEN_SECONDS)
    await _set(siege.servers.primary, commit_delay=0, commit_siblings=5)


async def _set(node: Node, **settings: int | str) -> None:
    for name, setting in settings.items():
        await node.ask(f"ALTER SYSTEM SET {name} = '{setting}'")
    await node.ask("SELECT pg_reload_conf()")


async def terminate(siege: Siege) -> None:
    for _ in range(5):
        await siege.servers.primary.ask(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'palaver'"
        )
        await asyncio.sleep(1)


async def take_slots(siege: Siege) -> None:
    """Nobody can connect. What is connected goes on."""
    async with AsyncExitStack() as stack:
        port = siege.servers.primary.port
        try:
            while True:
                taken = await DRIVER.connect(host="127.0.0.1", port=port, user="postgres", database="postgres")
                stack.callback(taken.terminate)
        except DRIVER.TooManyConnectionsError:
            await asyncio.sleep(_STALL_SECONDS)


async def kill_proxy(siege: Siege) -> None:
    """What is between the gateways and the servers ends, breaks all connections, and starts again."""
    began = time.monotonic()
    for node in siege.servers.nodes:
        node.clients.stop()
    await asyncio.sleep(_NOTICE_SECONDS)
    for node in siege.servers.nodes:
        await node.clients.start()
    siege.now.barred.append((began, time.monotonic()))


async def lose(siege: Siege) -> None:
    """A standby is promoted that lacks the last commits, which nobody had to confirm."""
    await _set(siege.servers.primary, synchronous_standby_names="")
    await asyncio.sleep(2)
    for node in siege.servers.standbys:
        await asyncio.to_thread(node.follow, None)
    await asyncio.sleep(_NOTICE_SECONDS)
    siege.may_lose = True
    await kill_node(siege)


TROUBLES: Mapping[str, Callable[[Siege], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        *(calm, kill, kill_node, switch, freeze, freeze_standby, partition, part_standbys, stall, delay),
        *(terminate, take_slots, kill_proxy, lose),
    )
}
UNDER_PATRONI = ("calm", "kill", "kill_node", "switch", "freeze", "freeze_standby", "partition", "part_standbys")
"""Where the manager has to do something."""

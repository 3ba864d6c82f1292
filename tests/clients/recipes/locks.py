"""docs/recipes/python: called as `python locks.py HOST PORT [PID]`. PID is that of a latchd, which it ends; without, only
the leased lock is tried, on any memcached."""

import asyncio
import os
import signal
import sys
import threading

from pymemcache.client.base import Client

sys.path[:0] = [os.path.dirname(__file__) + "/..", os.path.dirname(__file__) + "/../../../docs/recipes/python"]
import latchd_asyncio
import lease
from checks import address, equal, ok, raises, run
from latchd import Connection, Held, Lock, Lost, fenced_set

host, port = address()
server = {"host": host, "port": port}


def leases(client):
    client.flush_all(noreply=False)
    with lease.Lease(client, "leased", ttl=10) as held:
        raises("lease: a second holder", lease.Held, lambda: lease.Lease(client, "leased"))
        held.renew()
        ok("lease: held", held.held())
        equal("lease: client flags", client.raw_command("mg leased f"), b"HD f%d" % 0x6C656173)
    equal("lease: released", client.get("leased"), None)
    other = lease.Lease(client, "leased", ttl=10)
    client.set("leased", b"another", noreply=False)
    raises("lease: lost", lease.Lost, other.renew)
    raises("lease: lost, released", lease.Lost, lambda: other.__exit__(None))
    equal("lease: the item of another holder stays", client.get("leased"), b"another")


def locks(client):
    with Lock("job", **server) as first:
        raises("lock: a second holder", Held, lambda: Lock("job", **server))
        plain = Client((host, port), timeout=10)  # it has sent no lock command
        raises("lease: a bound lock holds the key", lease.Held, lambda: lease.Lease(plain, "job"))
        waited = []
        waiter = threading.Thread(target=lambda: waited.append(Lock("job", wait=10, **server)))
        waiter.start()
        ok("lock: fenced write", fenced_set(client, "job", b"1", first.fence))
    waiter.join()
    ok("lock: the waiter has it, with a higher fence", waited[0].fence > first.fence, waited)
    equal("lock: late fenced write", (fenced_set(client, "job", b"2", first.fence), client.get("job")), (False, b"1"))
    connection = Connection(**server)
    values = [connection.cached("page", 100, lambda n=n: b"%d" % n) for n in range(2)]
    equal("cached: computed once", values, [b"0", b"0"])
    raises("cached: an error of the server", ValueError, lambda: connection.cached("k" * 251, 100, bytes))
    ok("lock: not lost", not waited[0].lost())
    return waited[0]


async def cancelled(task, ticks):
    """Cancels a task after some turns of the loop; returns whether it ends by that."""
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    return isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)


async def cancelled_waits():
    async def hold():
        async with latchd_asyncio.Lock("left", wait=5, **server):
            await asyncio.sleep(1)

    turns = [ticks for ticks in range(40) for _ in range(5)]
    ended = [await cancelled(asyncio.create_task(hold()), ticks) for ticks in turns]
    ok("asyncio: a cancelled wait ends", all(ended), ended.count(False))
    async with latchd_asyncio.Lock("left", wait=1, **server):
        ok("asyncio: a cancelled wait leaves no lock behind", True)
    replies = set()
    for ticks in turns:
        async with latchd_asyncio.Connection(**server) as connection:
            if await cancelled(asyncio.create_task(connection.ask("mn")), ticks):
                try:
                    replies.add(tuple((await connection.ask("mg left v"))[0]))
                except Lost:
                    pass
    ok("asyncio: no request has the reply to a cancelled one", ("MN",) not in replies, replies)


async def with_asyncio(pid):
    await cancelled_waits()
    async with latchd_asyncio.Lock("task", **server) as first:
        second = asyncio.create_task(latchd_asyncio.Lock("task", wait=10, **server).__aenter__())
        try:
            await latchd_asyncio.Lock("task", **server).__aenter__()
        except Held:
            ok("asyncio: a second holder", True)
    second = await second
    ok("asyncio: the waiter has it, with a higher fence", second.fence > first.fence)
    await second.__aexit__(None)
    async with latchd_asyncio.Connection(**server) as connection:
        equal("asyncio: late fenced write", await connection.fenced_set("task", b"1", first.fence), False)

        async def compute():
            return b"made"

        equal("asyncio: cached", [await connection.cached("other", 100, compute) for _ in "12"], [b"made"] * 2)
    try:
        async with latchd_asyncio.Lock("task", **server):
            os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(30)
        ok("asyncio: lost", False, "the body went on")
    except Lost:
        ok("asyncio: lost", asyncio.current_task().cancelling() == 0)


def main():
    client = Client((host, port), timeout=10)
    leases(client)
    if len(sys.argv) > 3:
        held = locks(client)
        asyncio.run(with_asyncio(int(sys.argv[3])))
        ok("lock: lost", held.lost(wait=10))
        raises("lock: released after a loss", Lost, lambda: held.__exit__(None))
        ok("lock: lost after its release", held.lost())


run(main)

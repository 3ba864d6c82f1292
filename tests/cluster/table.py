"""The faults, and the requirements of each. A fault begins in a settled world, and leaves one that can settle again.

H is 3.6 s, T is 4 s, the margin C is 0.4 s, and a heartbeat comes every 0.4 s.
"""

import signal
import time

from clients import Silent
from thread_stop import reap, stop_thread
from world import HOLD_MS, WAIT_MS, await_until

HOLD_S, MARGIN_S, HEARTBEAT_S = HOLD_MS / 1000, 0.4, 0.4
# The time limit of a wait for something that has a requirement of its own.
PATIENCE_S = 30
ROUTES = ("direct", "proxy")


def await_served(run, place, fault, limit, not_pid=None):
    """Measures how long after the fault each route is served, by a process other than `not_pid`."""
    for route in ROUTES:
        served = lambda: [one for one in run.history.served(place.name, route, fault) if one[2] != not_pid]
        first = await_until(f"{place.name} is served: {route}", served, PATIENCE_S, run.history.check)[0]
        run.measure(f"served, {route}", first[1] - fault, limit)


def await_exit(run, node, pid, since, name, limit, reaps=None):
    """Measures when the process ends; it must end with code 75, or kill itself after the hold."""

    def ended():
        if reaps is not None:
            reap(reaps)
        return node.exit_of(pid)

    when, code = await_until(f"{node.name} ends", ended, PATIENCE_S, run.history.check)
    run.measure(name, when - since, limit)
    run.require("exit code 75 or KILL", code in (75, -signal.SIGKILL), f"{node.name} ended with {code}")


def gap(run, place, route, since):
    """The longest time between two answers since then, in seconds."""
    received = [since] + [one[1] for one in run.history.served(place.name, route, since)]
    return max(later - earlier for earlier, later in zip(received, received[1:], strict=False))


class Calm:
    """A time in which no process may lapse."""

    def __init__(self, run):
        self.run, self.since = run, time.monotonic()
        self.pids, self.terms = self.look()

    def look(self):
        places = self.run.world.places
        return [node.pid for place in places for node in place.nodes], [place.term() for place in places]

    def check(self):
        pids, terms = self.look()
        self.run.require("no term ends", terms == self.terms, f"terms {self.terms}, then {terms}")
        self.run.require("no process ends", pids == self.pids, f"pids {self.pids}, then {pids}")
        errors = [one for one in self.run.history.errors_since(self.since) if one[2] == "direct"]
        # A client's own time limit says nothing about the server on a busy machine.
        errors = [one for one in errors if not one[3].endswith("late")]
        self.run.require("no error", not errors, f"{len(errors)} errors, the first {errors[:1]}")
        for place in self.run.world.places:
            self.run.measure(f"longest gap of {place.name}", gap(self.run, place, "direct", self.since), None)


def killed(run, place):
    """SIGKILL of the primary, which does not return."""
    node = place.await_primary()
    pid, node.is_supervised = node.pid, False
    fault = time.monotonic()
    node.send(signal.SIGKILL)
    await_served(run, place, fault, 5.0, pid)
    node.is_supervised = True


def killed_and_restarted(run, place):
    """SIGKILL of the primary under a supervisor, with --state."""
    node = place.await_primary()
    pid, fault = node.pid, time.monotonic()
    node.send(signal.SIGKILL)
    await_served(run, place, fault, 1.0, pid)


def paused(run, place, seconds=10.0):
    """SIGSTOP of the primary, and SIGCONT when another process has served for long."""
    node = place.await_primary()
    pid, silent = node.pid, Silent(place, node.port, run.history)
    run.world.loop.add(silent)
    await_until("a connection", lambda: silent.is_ready, 5)
    fault = time.monotonic()
    node.send(signal.SIGSTOP)
    try:
        await_served(run, place, fault, 5.0, pid)
        # The kernel takes this request; the process finds it when it goes on.
        silent.goes = True
        run.wait_until(fault + seconds)
    finally:
        proceeds = time.monotonic()
        node.send(signal.SIGCONT)
    await_exit(run, node, pid, proceeds, "old process ends", 0.2)
    await_until("the old connection ends", lambda: silent.ended, 5)
    executed = [line for line in silent.replies if not line.startswith(("connection ", "SERVER_ERROR not primary"))]
    run.require("the old process executes nothing", not executed, f"it answers {executed}")


def worker_stuck(run, place):
    """One worker of the primary is stopped; the other threads go on."""
    node = place.await_primary()
    pid, fault = node.pid, time.monotonic()
    tid = stop_thread(pid, "latchd-0")
    # A heartbeat for which the worker had answered may have been sent just after the fault.
    await_exit(run, node, pid, fault, "process gone", HOLD_S + HEARTBEAT_S + 0.1, tid)
    await_served(run, place, fault, 6.0, pid)


def cut_off(run, place, mode):
    """The primary does not reach etcd, and its clients reach it."""
    node = place.await_primary()
    pid, fault = node.pid, time.monotonic()
    node.cut(mode)
    try:
        await_served(run, place, fault, 5.0, pid)
        beliefs = run.history.beliefs_at(pid, fault)
        alive = [str(one) for one in beliefs if one.end is None]
        run.require("the old lockers are closed", not alive, f"{alive}")
        run.measure("last old locker closed", max((one.end or fault for one in beliefs), default=fault) - fault, HOLD_S)
        late = [one for one in run.history.served(place.name, "direct", fault) if one[2] == pid]
        run.limit("last request executed", max((one[0] for one in late), default=fault) - fault, HOLD_S - MARGIN_S)
    finally:
        back = time.monotonic()
        node.cut("pass")
    await_exit(run, node, pid, back, "old process ends", 2.0)


def cut_both_ways(run, place):
    """The primary is cut off from etcd."""
    cut_off(run, place, "hole")


def cut_requests(run, place):
    """No request of the primary reaches etcd."""
    cut_off(run, place, "hole_up")


def cut_answers(run, place):
    """No answer of etcd reaches the primary."""
    cut_off(run, place, "hole_down")


def stopped(run, place):
    """SIGTERM under load: the standby takes over, and the old process does not return before that."""
    node = place.await_primary()
    node.is_supervised = False
    heir, pid, since = place.other(node).pid, node.pid, time.monotonic()
    node.send(signal.SIGTERM)
    for route in ROUTES:
        served = lambda: [one for one in run.history.served(place.name, route, since) if one[2] == heir]
        await_until(f"the standby serves: {route}", served, PATIENCE_S, run.history.check)
        run.measure(f"downtime, {route}", gap(run, place, route, since), 0.25)
    await_left(run, node, pid)
    node.is_supervised = True


def stopped_alone(run, place):
    """SIGTERM of a primary without a standby, which a supervisor starts again: with -e, the items are there."""
    node = place.await_primary()
    standby, pid = place.other(node), node.pid
    standby.is_supervised = False
    standby.send(signal.SIGTERM)
    await_left(run, standby, standby.pid)
    node.leaves_items, since = pid if "-e" in node.command else None, time.monotonic()
    node.send(signal.SIGTERM)
    for route in ROUTES:
        served = lambda: [one for one in run.history.served(place.name, route, since) if one[2] != pid]
        await_until(f"the next process serves: {route}", served, PATIENCE_S, run.history.check)
        run.measure(f"downtime, {route}", gap(run, place, route, since), 1.0)
    # The cache clients read every item meanwhile, and the history knows which must be there.
    _, code = node.exit_of(pid)
    run.require("exit code 0", code == 0, f"{node.name} ended with {code}")
    await_reads(run)
    standby.is_supervised = True


def await_left(run, node, pid):
    """Waits for the end of a process that was told to stop."""
    _, code = await_until(f"{node.name} ends", lambda: node.exit_of(pid), PATIENCE_S, run.history.check)
    run.require("exit code 0", code == 0, f"{node.name} ended with {code}")


def await_reads(run):
    """Waits until the cache clients have read a hundred values."""
    reads = run.history.counts["reads"]
    await_until("values are read", lambda: run.history.counts["reads"] > reads + 100, PATIENCE_S, run.history.check)


def leader_killed(run, _place):
    """SIGKILL of etcd's leader, which returns after 5 s."""
    calm, leader = Calm(run), run.world.etcd.leader()
    run.world.etcd.kill([leader])
    run.wait(5)
    run.world.etcd.start([leader])
    run.wait(2)
    calm.check()


def leader_paused(run, _place, seconds=10):
    """SIGSTOP of etcd's leader: its disk does not answer."""
    calm, leader = Calm(run), run.world.etcd.leader()
    pause_member(run, leader, seconds)
    calm.check()


def follower_paused(run, _place, seconds=10):
    """SIGSTOP of a follower of etcd."""
    calm, leader = Calm(run), run.world.etcd.leader()
    pause_member(run, next(one for one in run.world.etcd.members if one is not leader), seconds)
    calm.check()


def pause_member(run, member, seconds):
    member.process.send_signal(signal.SIGSTOP)
    try:
        run.wait(seconds)
    finally:
        member.process.send_signal(signal.SIGCONT)
    run.wait(2)


def away(run, seconds):
    """No process reaches etcd. Returns when that began and ended."""
    fault = time.monotonic()
    for node in run.world.nodes:
        node.cut("hole")
    run.wait_until(fault + seconds)
    back = time.monotonic()
    for node in run.world.nodes:
        node.cut("pass")
    return fault, back


def check_lapse(run, fault, returns, back, pids):
    """After an absence of etcd each primary goes on in its term, with its items. It has refused requests meanwhile.

    etcd begins to return at `returns`, and is there at `back`.
    """
    for place in run.world.places:
        before = [one[0] for one in run.history.served(place.name, "direct", fault) if one[0] < returns]
        run.limit("last request executed", max(before, default=fault) - fault, HOLD_S - MARGIN_S)
        errors = {one[3] for one in run.history.errors_since(fault) if one[1] == place.name}
        run.require("the others are refused", "SERVER_ERROR not primary" in errors, f"{sorted(errors)}")
        await_served(run, place, back, 1.0)
    run.require("no process ends", pids == [node.pid for node in run.world.nodes], "a process was replaced")
    await_reads(run)


def authority_away(run, _place, seconds=10):
    """All of etcd is away for 10 s."""
    pids = [node.pid for node in run.world.nodes]
    fault, back = away(run, seconds)
    check_lapse(run, fault, back, back, pids)


def authority_away_briefly(run, _place):
    """All of etcd is away for 2.4 s: an outage shorter than H - C - heartbeat is invisible."""
    calm = Calm(run)
    away(run, 2.4)
    run.wait(1)
    calm.check()


def authority_killed(run, _place, seconds=10):
    """SIGKILL of all members of etcd, which return after 10 s."""
    pids = [node.pid for node in run.world.nodes]
    fault = time.monotonic()
    run.world.etcd.kill()
    run.wait_until(fault + seconds)
    returns = time.monotonic()
    run.world.etcd.start()
    check_lapse(run, fault, returns, time.monotonic(), pids)


def record_deleted(run, place):
    """The record of the partition is deleted."""
    node = place.await_primary()
    pid, fault = node.pid, time.monotonic()
    run.world.etcd.delete(f"/latchd/shop/partition/{place.name}")
    await_served(run, place, fault, 5.0, pid)
    await_exit(run, node, pid, fault, "old process ends", 1.0)


def snapshot_restored(run, place):
    """etcd is restored from a snapshot that names the term before, after an outage of more than T."""
    path = run.world.folder / "snapshot.db"
    run.world.etcd.snapshot(path)
    killed_and_restarted(run, place)
    run.world.settle()
    pids = {one.name: one.await_primary().pid for one in run.world.places}
    run.world.etcd.prepare(path)
    run.world.etcd.kill()
    run.wait(WAIT_MS / 1000)
    run.world.etcd.restore()
    back = time.monotonic()
    for one in run.world.places:
        await_served(run, one, back, 5.0, pids[one.name])


def snapshot_restored_at_once(run, place):
    """etcd is restored while the primary holds on, and does not reach it; the snapshot names the predecessor of the
    standby."""
    path = run.world.folder / "snapshot.db"
    run.world.etcd.snapshot(path)
    killed(run, place)
    run.world.settle()
    node = place.await_primary()
    pid = node.pid
    run.world.etcd.prepare(path)
    fault = time.monotonic()
    node.cut("hole")
    try:
        run.world.etcd.restore()
        run.measure("etcd away", time.monotonic() - fault, None)
        await_served(run, place, time.monotonic(), 5.0, pid)
    finally:
        node.cut("pass")


def no_space(run, _place):
    """etcd has reached its quota."""
    sizes = {node: node.log_size() for node in run.world.nodes}
    pids = [node.pid for node in run.world.nodes]
    primaries = [place.await_primary() for place in run.world.places]
    fault = time.monotonic()
    run.world.etcd.fill()
    is_refused = lambda: all("not serving" in node.log_from(sizes[node]) for node in primaries)
    await_until("the primaries lapse", is_refused, PATIENCE_S, run.history.check)
    run.measure("lapse", time.monotonic() - fault, None)
    for node in primaries:
        lines = [line for line in node.log_from(sizes[node]).splitlines() if "space" in line]
        run.require("a log line names it", bool(lines), node.last_lines())
        run.say(f"    {lines[0]}" if lines else "")
    run.world.etcd.make_space()
    back = time.monotonic()
    for place in run.world.places:
        await_served(run, place, back, 1.0)
    run.require("no process ends", pids == [node.pid for node in run.world.nodes], "a process was replaced")


def slow_answers(run, delay_s, seconds=8):
    calm = Calm(run)
    for node in run.world.nodes:
        node.cut("pass", delay_s)
    try:
        run.wait(seconds)
    finally:
        for node in run.world.nodes:
            node.cut("pass")
    run.wait(1)
    calm.check()


def answers_in_300_ms(run, _place):
    """Each answer of etcd takes 300 ms longer."""
    slow_answers(run, 0.3)


def answers_in_400_ms(run, _place):
    """Each answer of etcd takes 400 ms longer: it arrives after the next heartbeat is due."""
    slow_answers(run, 0.4)


def old_items(run, place):
    """A process returns with the file of an earlier term, and serves. The history knows which items are old."""
    stopped(run, place)
    run.world.settle()
    returned = place.other(place.await_primary())
    killed(run, place)
    run.world.settle()
    run.require("the process with items serves", place.await_primary() is returned, f"{returned.name} does not serve")
    await_reads(run)


# Each fault: its name, its function, the place of its partition (0 has -e), the members of etcd that it needs, and
# whether the short pass has it.
FAULTS = (
    ("killed and restarted", killed_and_restarted, 0, 1, True),
    ("killed", killed, 1, 1, True),
    ("paused", paused, 1, 1, False),
    ("paused for 6 s", lambda run, place: paused(run, place, 6.0), 0, 1, True),
    ("worker stuck", worker_stuck, 0, 1, True),
    ("cut off", cut_both_ways, 1, 1, False),
    ("requests cut off", cut_requests, 0, 1, False),
    ("answers cut off", cut_answers, 1, 1, True),
    ("stopped", stopped, 1, 1, True),
    ("stopped alone with -e", stopped_alone, 0, 1, True),
    ("etcd's leader killed", leader_killed, 0, 3, False),
    ("etcd's leader paused", leader_paused, 0, 3, False),
    ("a follower of etcd paused", follower_paused, 0, 3, False),
    ("etcd away for 2.4 s", authority_away_briefly, 0, 1, False),
    ("etcd away for 6 s", lambda run, place: authority_away(run, place, 6), 0, 1, True),
    ("etcd away", authority_away, 0, 1, False),
    ("etcd killed", authority_killed, 0, 1, False),
    ("record deleted", record_deleted, 1, 1, True),
    ("snapshot restored", snapshot_restored, 0, 1, False),
    ("snapshot restored at once", snapshot_restored_at_once, 1, 1, False),
    ("etcd without space", no_space, 0, 1, False),
    ("answers in 300 ms", answers_in_300_ms, 0, 1, False),
    ("answers in 400 ms", answers_in_400_ms, 0, 1, True),
    ("old items return", old_items, 0, 1, True),
)

"""The history of a fault run, and the rules that it must keep.

- No two clients believe in the lock of a key at once. A belief lasts from the reply that grants it to the request that
  releases it, to the end of its connection, or to the end of the hold that the server named with `H`.
- The fences of a key rise, over all processes.
- The CAS numbers of a key rise, over all processes.
- A read returns no value older than one that was read or acknowledged before in the same process. It returns nothing
  that another process stored, except after a planned hand-over with `-e`. It misses nothing that was acknowledged.
- Once a process has answered, its predecessor executes no request that is sent later.

A process serves one term, so its pid stands for the term. All times are of one clock, `time.monotonic`.
"""

import itertools
import threading
import time
from collections import defaultdict, deque

# The most attempts that are kept for a route: a minute of one attempt in 10 ms.
ATTEMPTS_MAX = 6000
# The most errors and the most ended beliefs that are kept.
EVENTS_MAX = 20000


class Violation(Exception):
    """A rule was broken. The text has the evidence."""


class Belief:
    """A client's belief in a lock. `until` is the end of the hold, or None without `H`."""

    def __init__(self, partition, key, client, pid, fence, start, until):
        self.partition, self.key, self.client, self.pid, self.fence = partition, key, client, pid, fence
        self.start, self.until, self.end, self.reason = start, until, None, None

    def ended_by(self, now):
        return self.end is not None or (self.until is not None and self.until <= now)

    def __str__(self):
        until = "" if self.until is None else f", hold until {self.until:.3f}"
        end = "now" if self.end is None else f"{self.end:.3f} ({self.reason})"
        return f"{self.client} at process {self.pid}: fence {self.fence}, from {self.start:.3f} to {end}{until}"


class Route:
    """The attempts of a probe on one way to a partition: `direct` or `proxy`."""

    def __init__(self):
        self.served = deque(maxlen=ATTEMPTS_MAX)


class History:
    """`path` is a file for the operations of all clients, which `linearize --check` judges (tests/src/linear/told.rs)."""

    def __init__(self, path=None):
        self.lock = threading.RLock()
        self._file = open(path, "w") if path else None
        self._connections = itertools.count(1)
        self.violation = None
        self.routes = defaultdict(Route)
        self.errors = deque(maxlen=EVENTS_MAX)
        self.ended = deque(maxlen=EVENTS_MAX)
        self.counts = defaultdict(int)
        self._believers = {}
        self._fences = {}
        self._grants = defaultdict(int)
        self._cas = {}
        self._cas_of = {}
        self._known = defaultdict(int)
        self._unknown = defaultdict(set)
        self._heirs = {}
        self._serving = {}
        self._pids = defaultdict(list)

    def fail(self, text):
        """Notes the first violation."""
        with self.lock:
            if self.violation is None:
                self.violation = f"at {time.monotonic():.3f}: {text}"

    def check(self):
        if self.violation is not None:
            raise Violation(self.violation)

    # Operations

    def connection(self):
        """A number for a connection."""
        return next(self._connections)

    def operation(self, client, key, sent, received, operation, answer):
        """Writes an operation and its answer; `received` is None without one."""
        end = "-" if received is None else round(received * 1e9)
        self._write(f"{round(sent * 1e9)} {end} {client.connection} {client.pid} {key} {operation} {answer}")

    def _write(self, line):
        with self.lock:
            if self._file is not None:
                self._file.write(line + "\n")

    def close(self):
        """No operation follows."""
        with self.lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    # Locks

    def granted(self, belief):
        key, now = belief.key, belief.start
        last = self._believers.get(key)
        if last is not None and not last.ended_by(now):
            self.fail(f"two clients believe in the lock of {key}: {last}; and {belief}")
        if belief.fence <= self._fences.get(key, 0):
            self.fail(f"fence of {key} falls: {self._fences[key]} of {last}; then {belief}")
        self._fences[key] = belief.fence
        self._believers[key] = belief
        self._grants[key] += 1
        self.counts["grants"] += 1

    def renewed(self, belief, until):
        with self.lock:
            belief.until = max(belief.until, until)

    def end_belief(self, belief, reason, now):
        """Ends a belief. A belief that has ended stays as it is."""
        if belief.end is None:
            belief.end, belief.reason = now, reason
            with self.lock:
                self.ended.append(belief)

    def beliefs_at(self, pid, since):
        """The beliefs in locks of a process that had not ended at that moment, or began later."""
        with self.lock:
            beliefs = {id(one): one for one in [*self.ended, *self._believers.values()] if one.pid == pid}
        return [one for one in beliefs.values() if one.end is None or one.end > since]

    def grants_of(self, key):
        return self._grants[key]

    # Items

    def inherit(self, heir, writer, must):
        """From now on `heir` may return the items of `writer`. If it must, it misses none that was acknowledged."""
        with self.lock:
            self._heirs[heir] = (writer, must)
            self._write(f"heir {heir} {writer}")

    def known(self, pid, key):
        """The number of the newest value of `key` that `pid` must return."""
        with self.lock:
            here = self._known[pid, key]
            writer, must = self._heirs.get(pid, (None, False))
        return self.known(writer, key) if must and not here else here

    def written(self, pid, key, number, cas):
        with self.lock:
            self._known[pid, key] = max(self._known[pid, key], number)
        if cas <= self._cas.get(key, 0):
            self.fail(f"CAS of {key} falls: {self._cas[key]}, then {cas} from process {pid}")
        self._cas[key] = cas
        self._cas_of[key, number] = cas
        self.counts["writes"] += 1

    def perhaps_written(self, pid, key, number):
        """The write has no answer, and may be executed at any time while the process lives."""
        self._unknown[key, pid].add(number)

    def read(self, pid, key, found, known):
        """`found` is `(writer, number, cas)`, or None for a miss; `known` is that of `known` before the request."""
        self.counts["reads" if found else "misses"] += 1
        if found is None:
            if known:
                self.fail(f"read of {key} at process {pid} misses, and value {known} was acknowledged or read before")
            return
        writer, number, cas = found
        if writer != pid and not self._may_return(pid, writer):
            self.fail(f"read of {key} at process {pid} returns value {number}, which process {writer} stored")
        if number < known and number not in self._unknown[key, writer]:
            self.fail(f"read of {key} at process {pid} returns value {number}, older than {known}")
        if self._cas_of.get((key, number), cas) != cas:
            self.fail(f"read of {key} at process {pid}: value {number} has CAS {cas}, not {self._cas_of[key, number]}")
        with self.lock:
            self._known[pid, key] = max(self._known[pid, key], number)

    def _may_return(self, pid, writer):
        while pid in self._heirs:
            pid, _ = self._heirs[pid]
            if pid == writer:
                return True
        return False

    # Service

    def answered(self, partition, pid, sent, received):
        """A process has executed a request."""
        with self.lock:
            pids = self._pids[partition]
            if pid not in pids:
                pids.append(pid)
                self._serving[partition] = (pid, received)
        serving, first = self._serving[partition]
        if pid != serving and sent > first:
            self.fail(
                f"{partition}: process {pid} executes a request sent at {sent:.3f}, and its successor {serving} "
                f"has answered at {first:.3f}"
            )

    def probed(self, partition, route, pid, sent, received):
        with self.lock:
            self.routes[partition, route].served.append((sent, received, pid))

    def served(self, partition, route, since):
        """The attempts that were sent at `since` or later and succeeded: `(sent, received, pid)`."""
        with self.lock:
            return [one for one in self.routes[partition, route].served if one[0] >= since]

    def failed(self, partition, route, why, now):
        """A client got an error, or its connection was closed."""
        with self.lock:
            self.errors.append((now, partition, route, why))

    def errors_since(self, since):
        with self.lock:
            return [one for one in self.errors if one[0] >= since]

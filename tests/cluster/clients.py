"""The clients of a fault run: probes, lockers and cache clients, over the text protocols (docs/PROTOCOL.md).

Each has a route: `direct` connects to the processes of its partition in turn, `proxy` to HAProxy.
"""

import random
import time

from history import Belief
from loop import Ask, Lost, Open, Pause

# A probe tries this often, and waits this long for an answer.
PROBE_S = 0.01
PROBE_TIMEOUT_S = 0.3
# The pause of a client that could not connect.
RETRY_S = 0.02
# A client that waits longer for an answer gives its connection up.
ANSWER_S = 1.0
# A holder asks this often whether its server is there.
ALIVE_S = 0.5
LOCK_WAIT_MS = 2000


def fence_of(words):
    return int(next(word[1:] for word in words[1:] if word[0] == "F"))


def lock_answer(reply):
    words = reply[0].split()
    if words[0] == "HD":
        return f"granted {fence_of(words)}"
    # No connection has it: the server grants no lock at this time.
    return "withheld" if words[:2] == ["LK", "h0"] else "locked"


def unlock_answer(reply):
    return {"HD": "done"}.get(reply[0], "missing")


def set_answer(reply):
    code, _, version = reply[0].partition(" c")
    return {"HD": f"stored {version}", "EX": "exists"}.get(code, "missing")


def get_answer(reply):
    line, value = reply
    return "missing" if value is None else f"hit {value.decode()} {line.split(' c')[1]}"


class Client:
    """What all clients have: a place, a route, and the process at the other end of the connection."""

    def __init__(self, place, route, name, history):
        self.place, self.route, self.history = place, route, history
        self.partition = place.name
        self.name = f"{name} ({route})"
        self.pid, self._turn = None, random.randrange(2)
        # The number of the connection, its last answer, and the keys of the locks that were requested on it.
        self.connection, self._heard, self._locks = None, 0.0, set()

    def connect(self, timeout=ANSWER_S):
        """Connects, and asks for the pid of the process."""
        if self.route == "proxy":
            port = self.place.proxy_port
        else:
            self._turn += 1
            port = self.place.ports[self._turn % len(self.place.ports)]
        yield Open(port, timeout)
        reply = yield Ask(b"stats\r\n", timeout)
        if isinstance(reply, tuple):
            self.refused(reply[0])
        self.pid = int(dict(reply)[b"pid"])

    def refused(self, line):
        self.history.failed(self.partition, self.route, line, time.monotonic())
        raise Lost("refused")

    def ask(self, task, line, timeout=ANSWER_S):
        """Asks, and notes that the process has executed the request. `Lost` if it refuses."""
        reply = yield Ask(line.encode() + b"\r\n", timeout)
        if reply[0].startswith("SERVER_ERROR"):
            self.refused(reply[0])
        self.history.answered(self.partition, self.pid, task.sent, task.received)
        self._heard = task.received
        return reply

    def operate(self, task, key, operation, request, answer_of, timeout=ANSWER_S):
        """Asks, and writes the operation into the history. `answer_of` turns the reply into its words there."""
        answer, received = "-", None
        if operation == "lock":
            self._locks.add(key)
        try:
            reply = yield from self.ask(task, request, timeout)
            answer, received = answer_of(reply), task.received
            return reply
        finally:
            self.history.operation(self, key, task.sent, received, operation, answer)

    def begin(self):
        """A connection is open."""
        self.connection, self._heard = self.history.connection(), time.monotonic()

    def end(self):
        """It has ended. The process may have noticed at any time since its last answer."""
        for key in sorted(self._locks):
            self.history.operation(self, key, self._heard, None, "end", "-")
        self._locks.clear()

    def steps(self, task):
        was_open = False
        while True:
            try:
                yield from self.connect()
                was_open = True
                self.begin()
                yield from self.work(task)
            except Lost as error:
                task.close()
                self.end()
                if was_open:
                    self.history.failed(self.partition, self.route, f"connection lost: {error}", time.monotonic())
            was_open = False
            yield from self.rest()

    def rest(self):
        yield Pause(RETRY_S)


class Probe(Client):
    """Asks for a key that does not exist, as often as it can. The direct route has one probe for each process."""

    def __init__(self, place, route, port, history):
        super().__init__(place, route, "probe", history)
        self._port = port

    def steps(self, task):
        while True:
            began = time.monotonic()
            try:
                yield Open(self._port, PROBE_TIMEOUT_S)
                reply = yield Ask(b"stats\r\n", PROBE_TIMEOUT_S)
                if isinstance(reply, tuple):
                    self.refused(reply[0])
                self.pid = int(dict(reply)[b"pid"])
                while True:
                    self.history.answered(self.partition, self.pid, task.sent, task.received)
                    self.history.probed(self.partition, self.route, self.pid, task.sent, task.received)
                    yield Pause(max(0.0, task.sent + PROBE_S - time.monotonic()))
                    reply = yield Ask(b"mg probe\r\n", PROBE_TIMEOUT_S)
                    if reply[0] != "EN":
                        self.refused(reply[0])
            except Lost as error:
                task.close()
                if str(error) not in ("refused", "late"):
                    self.history.failed(self.partition, self.route, f"probe lost: {error}", time.monotonic())
            # A refused connection may be retried at once, but not more often than a probe asks.
            yield Pause(max(0.001, began + PROBE_S - time.monotonic()))


class Locker(Client):
    """Acquires a key, holds it, and releases it. With `H` it believes no longer than the hold lasts."""

    def __init__(self, place, route, name, history, keys, hold_s, with_hold):
        super().__init__(place, route, name, history)
        self.keys, self.hold_s, self.with_hold = keys, hold_s, with_hold

    def work(self, task):
        while True:
            key = random.choice(self.keys)
            flags = "F H" if self.with_hold else "F"
            request, patience = f"ml {key} w{LOCK_WAIT_MS} {flags}", LOCK_WAIT_MS / 1000 + ANSWER_S
            reply = yield from self.operate(task, key, "lock", request, lock_answer, patience)
            words = reply[0].split()
            if words[0] == "LK":
                continue
            if words[0] != "HD":
                self.history.fail(f"{self.name}: `ml {key}` is answered {reply[0]!r}")
                return
            fence = fence_of(words)
            until = self.bound(words, task.sent)
            if until is not None and until <= time.monotonic():
                # The hold that was named is over: the client does not begin to believe.
                raise Lost("hold over")
            belief = Belief(self.partition, key, self.name, self.pid, fence, task.received, until)
            self.history.granted(belief)
            try:
                yield from self.hold(task, belief)
                self.history.end_belief(belief, "released", time.monotonic())
            finally:
                self.history.end_belief(belief, "lost", time.monotonic())
            reply = yield from self.operate(task, key, f"unlock {fence}", f"mu {key} F{fence}", unlock_answer)
            if reply[0] != "HD":
                self.history.fail(f"{self.name}: the lock of {key} ended on an open connection: {reply[0]!r}; {belief}")
            yield Pause(random.uniform(0.01, 0.03))

    def bound(self, words, sent):
        """The end of the belief by the hold in a reply; None without `H`."""
        if not self.with_hold:
            return None
        hold = [word for word in words[1:] if word[0] == "H"]
        return sent + (int(hold[0][1:]) / 1000 if hold else 0)

    def hold(self, task, belief):
        end = time.monotonic() + random.uniform(*self.hold_s)
        while (left := end - time.monotonic()) > 0:
            yield Pause(min(left, ALIVE_S))
            if left > ALIVE_S:
                reply = yield from self.ask(task, "mn H" if self.with_hold else "mn")
                if self.with_hold:
                    self.history.renewed(belief, self.bound(reply[0].split(), task.sent))
            if belief.until is not None and belief.until <= time.monotonic():
                raise Lost("hold over")


class CacheClient(Client):
    """Writes rising numbers into its own key, half of them by CAS, and reads the keys of the others."""

    def __init__(self, place, route, name, history, key, keys):
        super().__init__(place, route, name, history)
        self.key, self.keys, self.number, self.cas = key, keys, 0, None

    def work(self, task):
        self.cas = None
        while True:
            if random.random() < 0.4:
                yield from self.write(task)
            else:
                yield from self.read(task, random.choice(self.keys))
            yield Pause(random.uniform(0.01, 0.03))

    def write(self, task):
        self.number += 1
        value = f"{self.pid}.{self.number}"
        guard = f" C{self.cas}" if self.cas is not None and self.number % 2 else ""
        request = f"ms {self.key} {len(value)} c{guard}\r\n{value}"
        try:
            operation = f"set {value} {self.cas if guard else '-'}"
            reply = yield from self.operate(task, self.key, operation, request, set_answer)
        except Lost:
            # A refused request was not executed; noting it permits a little more, and no older term.
            self.history.perhaps_written(self.pid, self.key, self.number)
            raise
        words = reply[0].split()
        if words[0] == "HD":
            self.cas = int(words[1][1:])
            self.history.written(self.pid, self.key, self.number, self.cas)
        elif words[0] in ("EX", "NF") and guard:
            # A write without an answer came between.
            self.cas = None
        else:
            self.history.fail(f"{self.name}: `ms {self.key}` is answered {reply[0]!r}")

    def read(self, task, key):
        known = self.history.known(self.pid, key)
        line, value = yield from self.operate(task, key, "get", f"mg {key} v c", get_answer)
        found = None
        if value is not None:
            writer, _, number = value.decode().partition(".")
            found = int(writer), int(number), int(line.split(" c")[1])
        elif line != "EN":
            self.history.fail(f"{self.name}: `mg {key}` is answered {line!r}")
        self.history.read(self.pid, key, found, known)


class Silent(Client):
    """A connection of the old primary: it sends a request when it is told to, and keeps the replies."""

    def __init__(self, place, port, history):
        super().__init__(place, "direct", "silent", history)
        self._port, self.is_ready, self.goes, self.replies, self.ended = port, False, False, [], False

    def steps(self, task):
        try:
            yield Open(self._port)
            reply = yield Ask(b"stats\r\n", ANSWER_S)
            self.pid = int(dict(reply)[b"pid"])
            self.is_ready = True
            while not self.goes:
                yield Pause(0.01)
            for request in (b"ms silent 1 c\r\n1\r\n", b"ml silent F\r\n", b"mg silent v\r\n"):
                self.replies.append((yield Ask(request, 60.0))[0])
        except Lost as error:
            self.replies.append(f"connection {error}")
        self.ended = True

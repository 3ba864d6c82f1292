"""An event loop for clients that are written as generators.

A client yields `Open`, `Ask` or `Pause`, and gets the result of it. `Lost` is raised in it when its connection ends,
whatever it waits for. In one round, the connections that have ended come first: a client hears of the end of its
connection before another client of this process hears of anything that followed from it.
"""

import errno
import heapq
import itertools
import selectors
import socket
import threading
import time
import traceback

RECEIVE_BYTES = 65536
# The longest wait for an event, so that the loop sees that it is told to stop.
TURN_S = 0.05


class Lost(Exception):
    """The connection has ended, or an answer did not come in time."""


class Open:
    """Connects to a port of 127.0.0.1."""

    def __init__(self, port, timeout=1.0):
        self.port, self.timeout = port, timeout


class Ask:
    """Sends a request and waits for its reply: `(line, value)`, or the list of `stats`."""

    def __init__(self, request, timeout):
        self.request, self.timeout = request, timeout


class Pause:
    """Waits; the connection, if there is one, stays open."""

    def __init__(self, seconds):
        self.timeout = seconds


class Task:
    """A client and its connection."""

    def __init__(self, loop, client):
        self.loop, self.client = loop, client
        self.steps = client.steps(self)
        self.socket, self.input, self.is_open, self.ended = None, b"", False, None
        self.waits, self.turn = None, 0
        self.sent = self.received = 0.0

    def close(self):
        if self.socket is not None:
            self.loop.selector.unregister(self.socket)
            self.socket.close()
        self.socket, self.input, self.is_open, self.ended = None, b"", False, None

    def pull(self, mask):
        """Reads all that is there."""
        if self.ended is not None:
            return
        if not self.is_open and mask & selectors.EVENT_WRITE:
            code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self.ended = "refused"
                return
            self.is_open = True
            self.loop.selector.modify(self.socket, selectors.EVENT_READ, self)
        try:
            while data := self.socket.recv(RECEIVE_BYTES):
                self.input += data
            self.ended = "closed"
        except BlockingIOError:
            pass
        except OSError as error:
            self.ended = "reset" if isinstance(error, ConnectionResetError) else str(error)

    def advance(self, now):
        """Continues with the replies that have arrived, then with the end of the connection."""
        while True:
            if isinstance(self.waits, Open) and self.is_open:
                self.step(None)
            elif isinstance(self.waits, Ask) and (reply := self.reply()) is not None:
                self.received = now
                self.step(reply)
            else:
                break
        if self.ended is not None:
            why = self.ended
            self.close()
            self.throw(Lost(why))

    def reply(self):
        """Takes a whole reply from the input; None if there is none."""
        line, end, rest = self.input.partition(b"\r\n")
        if not end:
            return None
        if line.startswith(b"STAT "):
            text, end, rest = self.input.partition(b"\r\nEND\r\n")
            if not end:
                return None
            self.input = rest
            return [one.split(b" ", 2)[1:] for one in text.split(b"\r\n")]
        value = None
        if line.startswith(b"VA "):
            size = int(line.split()[1])
            if len(rest) < size + 2:
                return None
            value, rest = rest[:size], rest[size + 2 :]
        self.input = rest
        return line.decode(), value

    def step(self, result):
        self.resume(lambda: self.steps.send(result))

    def throw(self, error):
        self.resume(lambda: self.steps.throw(error))

    def resume(self, run):
        self.turn += 1
        try:
            self.waits = run()
        except StopIteration:
            self.waits = None
            self.close()
            return
        now = time.monotonic()
        self.loop.at(now + self.waits.timeout, self, self.turn)
        if isinstance(self.waits, Open):
            self.begin(self.waits.port)
        elif isinstance(self.waits, Ask):
            self.send(self.waits.request, now)

    def begin(self, port):
        self.close()
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.loop.selector.register(self.socket, selectors.EVENT_WRITE, self)
        code = self.socket.connect_ex(("127.0.0.1", port))
        if code not in (0, errno.EINPROGRESS):
            # The selector reports this socket in the next round.
            self.ended = "refused"

    def send(self, request, now):
        self.sent = now
        try:
            # A request is shorter than the buffer of a socket, which is empty.
            if self.socket is None or self.socket.send(request) != len(request):
                raise OSError("the socket takes no request")
        except OSError:
            # The end of the connection is reported by the next round.
            pass

    def expire(self, turn):
        if turn != self.turn or self.waits is None:
            return
        if isinstance(self.waits, Pause):
            self.step(None)
        else:
            self.close()
            self.throw(Lost("late"))


class Loop(threading.Thread):
    """Runs clients until `stop`. An exception of a client goes to `on_error` as text."""

    def __init__(self, on_error):
        super().__init__(name="clients", daemon=True)
        self.selector = selectors.DefaultSelector()
        self.on_error = on_error
        self._timers, self._count = [], itertools.count()
        self._added, self._stops = [], False

    def add(self, client):
        self._added.append(client)

    def at(self, moment, task, turn):
        heapq.heappush(self._timers, (moment, next(self._count), task, turn))

    def stop(self):
        self._stops = True
        self.join(5)

    def run(self):
        try:
            while not self._stops:
                self.round()
        except Exception:
            self.on_error("the clients ended: " + traceback.format_exc())

    def round(self):
        while self._added:
            Task(self, self._added.pop(0)).step(None)
        left = self._timers[0][0] - time.monotonic() if self._timers else TURN_S
        events = self.selector.select(min(max(left, 0), TURN_S))
        for key, mask in events:
            key.data.pull(mask)
        now = time.monotonic()
        tasks = [key.data for key, _ in events]
        for task in sorted(tasks, key=lambda task: task.ended is None):
            task.advance(now)
        while self._timers and self._timers[0][0] <= time.monotonic():
            _, _, task, turn = heapq.heappop(self._timers)
            task.expire(turn)

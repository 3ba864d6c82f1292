"""TCP forwarders between the latchd processes and the members of etcd, which can be disturbed."""

import selectors
import socket
import threading
import time
from collections import deque

from etcd import free_port

RECEIVE_BYTES = 65536
TURN_S = 0.05


class Link:
    """A way from one process to one member. `port` is its entry.

    `mode` is `pass`, `refuse` (connections are closed), `hole` (nothing passes), `hole_up` (no request passes) or
    `hole_down` (no answer passes). `delay_s` is added to each answer.
    """

    def __init__(self, target):
        self.target, self.mode, self.delay_s = target, "pass", 0.0
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", free_port()))
        self.listener.listen(16)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]

    def passes(self, is_answer):
        return self.mode == "pass" or self.mode == ("hole_up" if is_answer else "hole_down")


class End:
    """One end of a connection. `queue` has the bytes for its peer, each with the moment at which they may pass."""

    def __init__(self, link, sock, is_answer):
        self.link, self.socket, self.is_answer = link, sock, is_answer
        self.peer, self.queue, self.is_closed = None, deque(), False


class Forwarder(threading.Thread):
    def __init__(self):
        super().__init__(name="forwarder", daemon=True)
        self._selector = selectors.DefaultSelector()
        self._ends, self._new, self._stops = [], [], False

    def link(self, target):
        """A new way to a port."""
        link = Link(target)
        self._new.append(link)
        return link

    def stop(self):
        self._stops = True
        self.join(5)

    def run(self):
        while not self._stops:
            while self._new:
                link = self._new.pop()
                self._selector.register(link.listener, selectors.EVENT_READ, link)
            soonest = min((end.queue[0][0] for end in self._ends if end.queue), default=time.monotonic() + TURN_S)
            left = min(max(soonest - time.monotonic(), 0.001), TURN_S)
            for key, _ in self._selector.select(left):
                if isinstance(key.data, Link):
                    self._accept(key.data)
                elif not key.data.is_closed:
                    self._receive(key.data)
            for end in list(self._ends):
                self._pass_on(end)

    def _accept(self, link):
        try:
            inner, _ = link.listener.accept()
        except OSError:
            return
        if link.mode == "refuse":
            inner.close()
            return
        try:
            outer = socket.create_connection(("127.0.0.1", link.target), timeout=0.2)
        except OSError:
            inner.close()
            return
        asks, answers = End(link, inner, False), End(link, outer, True)
        asks.peer, answers.peer = answers, asks
        for end in (asks, answers):
            end.socket.setblocking(False)
            end.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(end.socket, selectors.EVENT_READ, end)
            self._ends.append(end)

    def _receive(self, end):
        try:
            data = end.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(end)
            return
        delay = end.link.delay_s if end.is_answer else 0
        end.queue.append((time.monotonic() + delay, data))

    def _pass_on(self, end):
        """Passes the bytes that are due. In a hole they wait, as in a network that sends again."""
        if end.is_closed:
            return
        if end.link.mode == "refuse":
            self._close(end)
            return
        while end.queue and end.queue[0][0] <= time.monotonic() and end.link.passes(end.is_answer):
            try:
                # Messages of the election have a few hundred bytes, less than the buffer of a socket.
                end.peer.socket.sendall(end.queue[0][1])
            except OSError:
                self._close(end)
                return
            end.queue.popleft()

    def _close(self, end):
        for one in (end, end.peer):
            if not one.is_closed:
                one.is_closed = True
                self._selector.unregister(one.socket)
                one.socket.close()
                self._ends.remove(one)

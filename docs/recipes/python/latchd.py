"""Locks, fenced writes and cached values on latchd, with the standard library. A leased lock: lease.py."""
import contextlib
import select
import socket

class Held(Exception):
    """Another client holds the lock, or waiting for it would be a deadlock (the reply ends with `d`)."""

class Lost(Exception):
    """The lock ended before its holder released it."""

class Connection:
    def __init__(self, host="127.0.0.1", port=11211):
        self.socket = socket.create_connection((host, port), timeout=5)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # an unreachable server is lost after 10 s
        for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 5)):
            self.socket.setsockopt(socket.IPPROTO_TCP, option, value)
        self.reader = self.socket.makefile("rb")

    def ask(self, line, body=None, wait=0):
        """The words of the reply, and its value if it has one. The server may take `wait` seconds."""
        try:
            self.socket.settimeout(wait + 5)  # never below `wait`
            self.socket.sendall(line.encode() + b"\r\n" + (b"" if body is None else body + b"\r\n"))
            if not (words := self.reader.readline().decode().split()):
                raise EOFError("no reply")
            value = self.reader.read(int(words[1]) + 2)[:-2] if words[0] == "VA" else None
        except BaseException as error:  # also that of a signal: a late reply must not be the next request's
            self.close()
            raise Lost(f"the connection has ended: {error!r}") if isinstance(error, (OSError, EOFError)) else error
        if words[0].endswith("ERROR"):
            raise ValueError(" ".join(words))
        return words, value

    def close(self):
        self.reader.close()
        self.socket.close()

    def cached(self, key, ttl, compute, early=10, wait=10):
        """The value of `key`: one client computes it, `early` s before it expires, and the others wait for it."""
        words, value = self.ask(f"mg {key} v c N{ttl} R{early} B w{int(wait * 1000)}", wait=wait)
        if "W" in words:  # this client computes; if it dies, the next one wins
            value, cas = compute(), next(word[1:] for word in words if word[0] == "c")
            self.ask(f"ms {key} {len(value)} C{cas} T{ttl}", value)  # not stored if the item has changed since
        elif "Z" in words and not value:  # the winner is slow
            value = compute()
        return value

class Lock(Connection):
    """with Lock("job", wait=60) as lock: …   The server releases it when this process or its machine dies."""

    def __init__(self, key, wait=0, **server):
        super().__init__(**server)
        self.key = key
        words, _ = self.ask(f"ml {key} F w{int(wait * 1000)}", wait=wait)  # first come, first served
        if words[0] != "HD":
            self.close()
            raise Held(" ".join(words))
        self.fence = int(words[1][1:])  # rises with each grant of the key, over restarts too

    def lost(self, wait=0):
        """Whether the lock has ended. Ask between steps, or wait in a thread of its own (`wait=None`)."""
        descriptor, poll = self.socket.fileno(), select.poll()
        if descriptor >= 0:
            poll.register(descriptor, select.POLLIN)
        return descriptor < 0 or bool(poll.poll(wait and wait * 1000))  # no reply is due, so this is the end

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        with contextlib.closing(self):
            if self.ask(f"mu {self.key}")[0][0] != "HD" and kind is None:
                raise Lost(self.key)

def fenced_set(client, key, value, fence, ttl=0):
    """Stores over a client of pymemcache, only while this grant is in force: late holders change nothing."""
    return client.raw_command(b"ms %b %d G%d T%d\r\n%b" % (key.encode(), len(value), fence, ttl, value)) == b"HD"

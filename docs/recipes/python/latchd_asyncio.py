"""Locks, fenced writes and cached values on latchd, with asyncio (Python 3.11). Beside latchd.py."""
import asyncio
import socket

from latchd import Held, Lost

class Connection:
    def __init__(self, host="127.0.0.1", port=11211):
        self.server = host, port

    async def __aenter__(self):
        async with asyncio.timeout(5):  # asyncio.wait_for may swallow the cancellation of a wait
            self.reader, self.writer = await asyncio.open_connection(*self.server)
        kernel = self.writer.get_extra_info("socket")
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # an unreachable server is lost after 10 s
        for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 5)):
            kernel.setsockopt(socket.IPPROTO_TCP, option, value)
        self.turn = asyncio.Lock()  # one request at a time
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    async def ask(self, line, body=None, wait=0):
        """The words of the reply, and its value if it has one. The server may take `wait` seconds."""
        async with self.turn:
            if self.writer.is_closing():  # what it has read may be the reply to an earlier request
                raise Lost("the connection has ended")
            try:
                async with asyncio.timeout(wait + 5):  # never below `wait`
                    self.writer.write(line.encode() + b"\r\n" + (b"" if body is None else body + b"\r\n"))
                    words = (await self.reader.readuntil(b"\r\n")).decode().split()
                    value = (await self.reader.readexactly(int(words[1]) + 2))[:-2] if words[0] == "VA" else None
            except BaseException as error:  # also a cancelled task: its reply must not be the next request's
                self.writer.close()
                raise Lost(f"the connection has ended: {error!r}") if isinstance(error, (OSError, EOFError)) else error
            if words[0].endswith("ERROR"):
                raise ValueError(" ".join(words))
            return words, value

    async def cached(self, key, ttl, compute, early=10, wait=10):
        """The value of `key`: one client computes it, `early` s before it expires, and the others wait for it."""
        words, value = await self.ask(f"mg {key} v c N{ttl} R{early} B w{int(wait * 1000)}", wait=wait)
        if "W" in words:  # this client computes; if it dies, the next client wins
            value, cas = await compute(), next(word[1:] for word in words if word[0] == "c")
            await self.ask(f"ms {key} {len(value)} C{cas} T{ttl}", value)  # not stored if the item has changed since
        return value if value or "Z" not in words else await compute()  # Z without a value: the winner is slow

    async def fenced_set(self, key, value, fence, ttl=0):
        """Stores over this connection, only while this grant, of any connection, is in force."""
        return (await self.ask(f"ms {key} {len(value)} G{fence} T{ttl}", value))[0][0] == "HD"

class Lock:
    """async with Lock("job", wait=60) as lock: …   If the lock is lost, the body is cancelled, and Lost is raised."""
    def __init__(self, key, wait=0, **server):
        self.connection, self.key, self.wait, self.lost = Connection(**server), key, wait, False

    async def __aenter__(self):
        connection = await self.connection.__aenter__()
        try:
            words, _ = await connection.ask(f"ml {self.key} F w{int(self.wait * 1000)}", wait=self.wait)
            if words[0] != "HD":
                raise Held(" ".join(words))
        except BaseException:  # also a cancelled or timed-out wait: it leaves the queue, and no lock behind
            connection.writer.close()
            raise
        self.fence = int(words[1][1:])  # rises with each grant of the key, over restarts too
        self.watch = asyncio.create_task(self._watch(asyncio.current_task()))
        return self

    async def _watch(self, body):
        await asyncio.gather(self.connection.reader.read(1), return_exceptions=True)  # no reply is due: the end
        self.lost = body.cancel()

    async def __aexit__(self, kind, *_):
        self.watch.cancel()
        try:
            if self.lost:
                asyncio.current_task().uncancel()
                raise Lost(self.key)
            await asyncio.wait([self.watch])
            if (await self.connection.ask(f"mu {self.key}"))[0][0] != "HD" and kind is None:
                raise Lost(self.key)
        finally:
            self.connection.writer.close()

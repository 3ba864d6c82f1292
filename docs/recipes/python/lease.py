"""A leased lock by `add` and `cas`, with pymemcache: on latchd and on memcached."""
import math
import random
import secrets
import time

LEASED = 0x6C656173  # client flags: docs/PROTOCOL.md, "Leased locks"


class Held(Exception):
    """Another client holds the lock."""


class Lost(Exception):
    """The lock ended before its holder released it."""


class Lease:
    """with Lease(client, "job", ttl=30, wait=60) as lease: …   The client has no serde. Renew the lease in time."""

    def __init__(self, client, key, ttl=30, wait=0):
        self.client, self.key, self.ttl = client, key, ttl
        self.exptime = math.ceil(ttl * 1.01) + 1  # the server's clock may be faster
        self.token = secrets.token_urlsafe(16).encode()
        end = time.monotonic() + wait
        while not self._lasts(self._add):
            if time.monotonic() >= end:
                raise Held(key)
            time.sleep(random.uniform(0.02, 0.2))

    def held(self):
        """Whether the holder may rely on the lock. Ask before each step."""
        return time.monotonic() < self.until

    def renew(self):
        if not self._lasts(lambda: self._cas(self.exptime)):
            raise Lost(self.key)

    def _lasts(self, request):
        until = time.monotonic() + self.ttl  # from the request on, not from the reply
        done = request()
        if done:
            self.until = until
        return done

    def _add(self):
        return self.client.add(self.key, self.token, self.exptime, noreply=False, flags=LEASED)

    def _cas(self, exptime):
        value, cas = self.client.gets(self.key)
        return value == self.token and self.client.cas(self.key, value, cas, exptime, noreply=False, flags=LEASED)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if not self._cas(-1) and kind is None:  # removes the item, only if it is still ours
            raise Lost(self.key)

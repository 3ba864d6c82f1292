"""What pymemcache, pylibmc and bmemcached make of an item that another connection has locked.

The third argument is that of `-o locked_reply`. With `locked`, some of them take the answer for a broken server; that is
what docs/FROM-MEMCACHED.md warns of, so these facts are of its table.
"""

import socket
import sys

import bmemcached
import pylibmc
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheUnknownError

from checks import address, equal, raises, run


def main():
    host, port = address()
    plain = sys.argv[3] == "not_stored"
    holder = socket.create_connection((host, port))
    lines = holder.makefile("rb")
    holder.sendall(b"flush_all\r\nset k 0 0 1\r\n1\r\nlock k\r\n")
    equal("the item is locked", [lines.readline() for _ in range(3)], [b"OK\r\n", b"STORED\r\n", b"OK\r\n"])

    pymemcache = Client((host, port), timeout=10, default_noreply=False)
    if plain:
        equal("pymemcache: set", pymemcache.set("k", "2"), False)
        equal("pymemcache: cas", pymemcache.cas("k", "2", b"5"), False)
        equal("pymemcache: incr", pymemcache.incr("k", 1), None)
    else:
        raises("pymemcache: set", MemcacheUnknownError, lambda: pymemcache.set("k", "2"))
        raises("pymemcache: cas", MemcacheUnknownError, lambda: pymemcache.cas("k", "2", b"5"))
        raises("pymemcache: incr", ValueError, lambda: pymemcache.incr("k", 1))
    equal("pymemcache: delete", pymemcache.delete("k"), False)
    equal("pymemcache: set without reply", Client((host, port)).set("k", "2"), True)
    equal("pymemcache: nothing was changed", pymemcache.get("k"), b"1")

    for name, binary in (("text", False), ("binary", True)):
        client = pylibmc.Client([f"{host}:{port}"], binary=binary, behaviors={"cas": True})
        if plain:
            equal(f"pylibmc, {name}: set", client.set("k", "2"), False)
            equal(f"pylibmc, {name}: cas", client.cas("k", "2", 5), False)
            equal(f"pylibmc, {name}: delete", client.delete("k"), False)
            equal(f"pylibmc, {name}: get after that", client.get("k"), b"1")
        else:
            raises(f"pylibmc, {name}: set", pylibmc.UnknownReadFailure, lambda: client.set("k", "2"))
            raises(f"pylibmc, {name}: the server counts as failed", pylibmc.ServerDown, lambda: client.get("k"))

    other = bmemcached.Client((f"{host}:{port}",))
    raises("bmemcached: set", bmemcached.exceptions.MemcachedException, lambda: other.set("k", "2"))
    if plain:
        equal("bmemcached: cas", other.cas("k", "2", 5), False)
    else:
        raises("bmemcached: cas", bmemcached.exceptions.MemcachedException, lambda: other.cas("k", "2", 5))
    equal("bmemcached: get after that", other.get("k"), "1")


run(main)

"""pymemcache: the classic text protocol."""

import json
import time

from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import (
    MemcacheClientError,
    MemcacheIllegalInputError,
    MemcacheServerError,
    MemcacheUnknownCommandError,
)

from checks import address, equal, ok, raises, run


class JsonSerde:
    def serialize(self, key, value):
        if isinstance(value, bytes):
            return value, 1
        return json.dumps(value).encode(), 2

    def deserialize(self, key, value, flags):
        return value if flags == 1 else json.loads(value)


def basic(client):
    client.flush_all()
    equal("get: miss", client.get("a"), None)
    equal("get: default on a miss", client.get("a", default=7), 7)
    equal("set", client.set("a", b"1"), True)
    equal("get: hit", client.get("a"), b"1")
    equal("set: empty value", (client.set("e", b""), client.get("e")), (True, b""))
    binary = bytes(range(256)) + b"\r\nEND\r\n"
    equal("set: any bytes", (client.set("b", binary), client.get("b")), (True, binary))
    equal("add: over something", client.add("a", b"2", noreply=False), False)
    equal("add: new", client.add("new", b"2", noreply=False), True)
    equal("replace: nothing there", client.replace("none", b"3", noreply=False), False)
    equal("replace: over something", client.replace("a", b"b", noreply=False), True)
    equal("append", client.append("a", b"c", noreply=False), True)
    equal("prepend", client.prepend("a", b"a", noreply=False), True)
    equal("append and prepend: result", client.get("a"), b"abc")
    equal("append: nothing there", client.append("none", b"x", noreply=False), False)
    equal("delete", client.delete("a", noreply=False), True)
    equal("delete: nothing there", client.delete("a", noreply=False), False)
    equal("get: after delete", client.get("a"), None)


def versions(client):
    client.set("v", b"1", noreply=False)
    value, version = client.gets("v")
    equal("gets", value, b"1")
    equal("cas: the right version", client.cas("v", b"2", version, noreply=False), True)
    equal("cas: a version of the past", client.cas("v", b"3", version, noreply=False), False)
    equal("cas: nothing there", client.cas("none", b"3", version, noreply=False), None)
    equal("cas: result", client.get("v"), b"2")
    grown = int(client.gets("v")[1]) > int(version)
    ok("cas: the version grew", grown, "it did not")


def many(client):
    values = {f"k{n}": str(n).encode() * 10 for n in range(500)}
    equal("set_many", client.set_many(values, noreply=False), [])
    equal("get_many", client.get_many([*values, "none"]), values)
    got = client.gets_many(["k1", "k2", "none"])
    equal("gets_many", {k: v[0] for k, v in got.items()}, {k: values[k] for k in ("k1", "k2")})
    equal("delete_many", client.delete_many(["k1", "k2", "none"], noreply=False), True)
    equal("get_many: after delete_many", client.get_many(["k1", "k2", "k3"]), {"k3": values["k3"]})


def numbers(client):
    equal("incr: nothing there", client.incr("n", 1), None)
    client.set("n", b"10", noreply=False)
    equal("incr", client.incr("n", 5), 15)
    equal("decr", client.decr("n", 20), 0)
    client.set("n", str(2**64 - 1).encode(), noreply=False)
    equal("incr: wraps", client.incr("n", 2), 1)
    client.set("n", b"abc", noreply=False)
    raises("incr: not a number", MemcacheClientError, lambda: client.incr("n", 1))
    equal("incr: the connection is still good", client.get("n"), b"abc")


def without_reply(client):
    client.set("q", b"1", noreply=True)
    client.append("q", b"2", noreply=True)
    client.incr("q", 1, noreply=True)
    client.touch("q", 100, noreply=True)
    equal("noreply: everything was done in order", client.get("q"), b"13")
    client.delete("q", noreply=True)
    equal("noreply: delete", client.get("q"), None)


def expiry(client):
    client.set("short", b"1", expire=1, noreply=False)
    client.set("long", b"1", expire=100, noreply=False)
    client.set("touched", b"1", expire=1, noreply=False)
    equal("touch", client.touch("touched", 100, noreply=False), True)
    equal("touch: nothing there", client.touch("none", 100, noreply=False), False)
    client.set("date", b"1", expire=int(time.time()) + 100, noreply=False)
    client.set("past", b"1", expire=-1, noreply=False)
    equal("expiry: in the past", client.get("past"), None)
    time.sleep(2.5)
    equal("expiry: over", client.get("short"), None)
    left = {"long": b"1", "touched": b"1", "date": b"1"}
    equal("expiry: not yet", client.get_many(["short", *left]), left)


def large(client):
    value = b"x" * (1024 * 1024 - 500)
    equal("a large value: set", client.set("big", value, noreply=False), True)
    equal("a large value: get", client.get("big"), value)
    raises(
        "a value past the limit",
        (MemcacheServerError),
        lambda: client.set("big", b"x" * (3 * 1024 * 1024), noreply=False),
    )
    equal("a value past the limit: the old one is gone", client.get("big"), None)


def errors(client):
    raises("a key that is too long", MemcacheIllegalInputError, lambda: client.get("k" * 251))
    raises("an unknown command", MemcacheUnknownCommandError, lambda: client.raw_command("nonsense"))
    equal("the connection is still good", client.set("a", b"1", noreply=False), True)


def server(client):
    ok("version", client.version()[:1].isdigit(), client.version())
    stats = client.stats()
    ok("stats", b"cmd_get" in stats and b"curr_items" in stats, stats.keys())
    equal("flush_all", client.flush_all(noreply=False), True)
    equal("flush_all: result", client.get("a"), None)
    client.quit()


def main():
    client = Client(address(), timeout=10, default_noreply=False)
    for part in (basic, versions, many, numbers, without_reply, expiry, large, errors):
        part(client)
    typed = Client(address(), serde=JsonSerde())
    typed.set("json", {"a": [1, 2.5, None]}, noreply=False)
    equal("serde: what went in comes out, by its flags", typed.get("json"), {"a": [1, 2.5, None]})
    typed.set("raw", b"\x00\x01", noreply=False)
    equal("serde: two kinds of flags", typed.get_many(["json", "raw"])["raw"], b"\x00\x01")
    prefixed = Client(address(), key_prefix=b"p:")
    prefixed.set("k", b"1", noreply=False)
    equal("prefix", client.get("p:k"), b"1")
    pool = PooledClient(address(), max_pool_size=4)
    pool.set("pool", b"1", noreply=False)
    equal("pool", [pool.get("pool") for _ in range(10)], [b"1"] * 10)
    utf8 = Client(address(), allow_unicode_keys=True)
    equal("a key beyond ASCII", (utf8.set("ключ", b"1", noreply=False), utf8.get("ключ")), (True, b"1"))
    server(client)


run(main)

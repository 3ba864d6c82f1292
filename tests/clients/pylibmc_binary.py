"""pylibmc, on libmemcached: the binary protocol."""

import time

import pylibmc

from checks import address, equal, ok, raises, run


def main():
    host, port = address()
    client = pylibmc.Client([f"{host}:{port}"], binary=True, behaviors={"tcp_nodelay": True, "cas": True})
    client.flush_all()
    equal("get: miss", client.get("a"), None)
    equal("set", client.set("a", "one"), True)
    equal("get: hit", client.get("a"), "one")
    equal("set: bytes", (client.set("b", b"\x00\r\n\xff"), client.get("b")), (True, b"\x00\r\n\xff"))
    equal("set: a number", (client.set("i", 7), client.get("i")), (True, 7))
    equal("set: an object", (client.set("o", {"x": [1]}), client.get("o")), (True, {"x": [1]}))
    equal("set: empty", (client.set("e", b""), client.get("e")), (True, b""))
    equal("add: over something", client.add("a", "two"), False)
    equal("add: new", client.add("new", "two"), True)
    equal("replace", client.replace("a", "b"), True)
    raises("replace: nothing there", pylibmc.NotFound, lambda: client.replace("none", "b"))
    equal("append", client.append("a", "c"), True)
    equal("prepend", client.prepend("a", "a"), True)
    equal("append and prepend: result", client.get("a"), "abc")
    equal("delete", client.delete("a"), True)
    equal("delete: nothing there", client.delete("a"), False)
    values = {f"k{n}": f"value {n}" for n in range(200)}
    equal("set_multi", client.set_multi(values), [])
    equal("get_multi", client.get_multi([*values, "none"]), values)
    equal("delete_multi", client.delete_multi(["k1", "k2"]), True)
    equal("get_multi: after delete_multi", client.get_multi(["k1", "k2", "k3"]), {"k3": "value 3"})
    client.set("n", 10)
    equal("incr", client.incr("n", 5), 15)
    equal("decr", client.decr("n", 20), 0)
    raises("incr: nothing there", pylibmc.NotFound, lambda: client.incr("none"))
    client.set("v", "1")
    value, version = client.gets("v")
    equal("gets", value, "1")
    equal("cas: the right version", client.cas("v", "2", version), True)
    equal("cas: a version of the past", client.cas("v", "3", version), False)
    equal("touch", client.touch("v", 100), True)
    equal("touch: nothing there", client.touch("none", 100), False)
    client.set("short", "1", time=1)
    client.set("long", "1", time=100)
    time.sleep(2.5)
    equal("expiry", client.get_multi(["short", "long"]), {"long": "1"})
    large = "x" * 1_000_000
    equal("a large value", (client.set("big", large), client.get("big") == large), (True, True))
    raises("a value past the limit", pylibmc.Error, lambda: client.set("big", "x" * 3_000_000))
    equal("the connection is still good", (client.set("a", 1), client.get("a")), (True, 1))
    stats = client.get_stats()
    ok("stats", len(stats) == 1 and "curr_items" in {str(k) if isinstance(k, str) else k.decode() for k in stats[0][1]}, stats)
    equal("flush_all", client.flush_all(), True)
    equal("flush_all: result", client.get("a"), None)


run(main)

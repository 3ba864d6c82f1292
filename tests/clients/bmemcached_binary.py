"""python-binary-memcached: the binary protocol, with quiet commands for what goes to many keys."""

import time

import bmemcached

from checks import address, equal, ok, run


def main():
    host, port = address()
    client = bmemcached.Client((f"{host}:{port}",))
    client.flush_all()
    equal("get: miss", client.get("a"), None)
    equal("get: default on a miss", client.get("a", 7), 7)
    equal("set", client.set("a", "one"), True)
    equal("get: hit", client.get("a"), "one")
    equal("set: bytes", (client.set("b", b"\x00\r\n\xff"), client.get("b")), (True, b"\x00\r\n\xff"))
    equal("set: a number", (client.set("i", 7), client.get("i")), (True, 7))
    equal("set: an object", (client.set("o", {"x": [1]}), client.get("o")), (True, {"x": [1]}))
    equal("add: over something", client.add("a", "two"), False)
    equal("add: new", client.add("new", "two"), True)
    equal("replace", client.replace("a", "three"), True)
    equal("replace: nothing there", client.replace("none", "b"), False)
    equal("delete", client.delete("a"), True)
    equal("delete: nothing there counts as done", client.delete("a"), True)
    values = {f"k{n}": f"value {n}" for n in range(200)}
    equal("set_multi", client.set_multi(values), [])
    equal("get_multi", client.get_multi([*values, "none"]), values)
    equal("delete_multi", client.delete_multi(["k1", "k2"]), True)
    equal("get_multi: after delete_multi", client.get_multi(["k1", "k2", "k3"]), {"k3": "value 3"})
    equal("incr: makes the number", client.incr("n", 5, default=10), 10)
    equal("incr", client.incr("n", 5), 15)
    equal("decr", client.decr("n", 20), 0)
    client.set("v", "1")
    value, version = client.gets("v")
    equal("gets", value, "1")
    equal("cas: the right version", client.cas("v", "2", version), True)
    equal("cas: a version of the past", client.cas("v", "3", version), False)
    equal("delete: a version of the past", client.delete("v", cas=version), False)
    client.set("short", "1", time=1)
    client.set("long", "1", time=100)
    time.sleep(2.5)
    equal("expiry", client.get_multi(["short", "long"]), {"long": "1"})
    large = "x" * 900_000
    done = client.set("big", large, compress_level=0), client.get("big") == large
    equal("a large value", done, (True, True))
    equal("a compressed value", (client.set("z", large), client.get("z") == large), (True, True))
    stats = list(client.stats().values())[0]
    ok("stats", b"curr_items" in stats or "curr_items" in stats, list(stats)[:5])
    client.flush_all()
    equal("flush_all: result", client.get("i"), None)
    client.disconnect_all()


run(main)

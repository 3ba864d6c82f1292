"""meta-memcache: the meta protocol, with N, R, I, W, X and Z for real."""

import threading
import time

from meta_memcache import CacheClient, Key, connection_pool_factory_builder
from meta_memcache.configuration import LeasePolicy, RecachePolicy, ServerAddress, StalePolicy
from meta_memcache.protocol import RequestFlags, SetMode

from checks import address, equal, ok, run


def client():
    host, port = address()
    return CacheClient.cache_client_from_servers(
        servers=[ServerAddress(host, port)],
        connection_pool_factory_fn=connection_pool_factory_builder(
            max_pool_size=40, recv_timeout=10
        ),
    )


def basic(cache):
    equal("get: miss", cache.get("a"), None)
    equal("set", cache.set("a", "one", ttl=100), True)
    equal("get: hit", cache.get("a"), "one")
    equal("set: bytes", (cache.set("b", b"\x00\r\n", ttl=100), cache.get("b")), (True, b"\x00\r\n"))
    equal("set: an object", (cache.set("o", {"x": [1]}, ttl=100), cache.get("o")), (True, {"x": [1]}))
    equal("set: a number", (cache.set("n", 42, ttl=100), cache.get("n")), (True, 42))
    equal("add: over something", cache.set("a", "x", ttl=100, set_mode=SetMode.ADD), False)
    equal("refill: over something", cache.refill("a", "x", ttl=100), False)
    equal("replace: nothing there", cache.set("z", "x", ttl=9, set_mode=SetMode.REPLACE), False)
    equal("append", cache.set("a", " two", ttl=100, set_mode=SetMode.APPEND), True)
    equal("prepend", cache.set("a", "zero ", ttl=100, set_mode=SetMode.PREPEND), True)
    equal("append and prepend: result", cache.get("a"), "zero one two")
    equal("touch", cache.touch("a", ttl=50), True)
    equal("touch: nothing there", cache.touch("none", ttl=50), False)
    equal("delete", cache.delete("a"), True)
    equal("delete: nothing there", cache.delete("a"), False)
    equal("invalidate: nothing there", cache.invalidate("a"), True)
    equal("no_reply", (cache.set("q", "1", ttl=9, no_reply=True), cache.get("q"))[1], "1")
    values = {f"m{n}": n for n in range(300)}
    for key, value in values.items():
        cache.set(key, value, ttl=100, no_reply=True)
    got = cache.multi_get([*values, "none"])
    equal("multi_get", {k.key: v for k, v in got.items()}, {**values, "none": None})
    large = "x" * 900_000
    equal("a large value", (cache.set("big", large, ttl=100), cache.get("big") == large), (True, True))
    unicode = Key("ключ с пробелом")
    equal("a key that goes as base64", (cache.set(unicode, 1, ttl=9), cache.get(unicode)), (True, 1))


def versions(cache):
    version = cache.set_cas("v", "1", ttl=100)
    equal("set_cas gives the version", cache.get_cas("v"), ("1", version))
    equal("cas: the right version", cache.set("v", "2", ttl=100, cas_token=version), True)
    equal("cas: a version of the past", cache.set("v", "3", ttl=100, cas_token=version), False)
    ok("cas: the version grew", cache.get_cas("v")[1] > version, cache.get_cas("v"))
    equal("delete: a version of the past", cache.delete("v", cas_token=version), False)
    equal("delete: the right version", cache.delete("v", cas_token=cache.get_cas("v")[1]), True)


def counters(cache):
    equal("delta: nothing there", cache.delta("c", 1), False)
    equal("delta_initialize_and_get", cache.delta_initialize_and_get("c", 1, 10, 100), 10)
    equal("delta_and_get", cache.delta_and_get("c", 5), 15)
    equal("delta_and_get: down", cache.delta_and_get("c", -20), 0)
    equal("delta_initialize: there", cache.delta_initialize("c", 3, 10, 100), True)
    equal("delta: result", cache.delta_and_get("c", 0), 3)


def at_once(count, work):
    """Runs `work` in this many threads that begin together, and returns what each returned."""
    results = [None] * count
    barrier = threading.Barrier(count)

    def one(index):
        barrier.wait()
        results[index] = work(index)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def stampede(cache):
    """A missing key and many clients at once: one computes, the others get what it computed."""
    policy = LeasePolicy(ttl=30, miss_retries=100, miss_retry_wait=0.02, wait_backoff_factor=1.0)
    for attempt in range(5):
        key = f"lease{attempt}"
        computed = []

        def work(index):
            value = cache.get_or_lease(key, lease_policy=policy)
            if value is None:
                computed.append(index)
                time.sleep(0.1)
                value = f"computed by {index}"
                cache.set(key, value, ttl=100)
            return value

        values = at_once(20, work)
        equal(f"stampede {attempt}: exactly one computes", len(computed), 1)
        equal(f"stampede {attempt}: all have its value", set(values), {values[0]})


def winner_stores_with_its_version(cache):
    policy = LeasePolicy(ttl=30, miss_retries=1)
    value, version = cache.get_or_lease_cas("won", lease_policy=policy)
    ok("lease: the winner gets a version", value is None and version, (value, version))
    equal("lease: the next one loses", cache.get_or_lease("won", lease_policy=policy), None)
    equal("lease: the winner stores", cache.set("won", 1, ttl=100, cas_token=version), True)
    equal("lease: and only once", cache.set("won", 2, ttl=100, cas_token=version), False)
    equal("lease: everyone reads it", cache.get_or_lease("won", lease_policy=policy), 1)


def early_recache(cache):
    """Near the end of an item's life one client is told to make it anew, the others use it on."""
    policy = RecachePolicy(ttl=60)
    cache.set("old", "old", ttl=30)
    values = at_once(20, lambda _: cache.get("old", recache_policy=policy))
    equal("recache: exactly one is to make it anew", values.count(None), 1)
    equal("recache: the others read on", values.count("old"), 19)
    cache.set("old", "new", ttl=100)
    values = at_once(20, lambda _: cache.get("old", recache_policy=policy))
    equal("recache: then all read the new one", values, ["new"] * 20)


def stale(cache):
    """A deleted item that may still be read: one client is told to make it anew."""
    policy = StalePolicy(mark_stale_on_deletion_ttl=30, mark_stale_on_cas_mismatch=True)
    cache.set("st", "old", ttl=100)
    equal("stale: delete marks it", cache.delete("st", stale_policy=policy), True)
    values = at_once(20, lambda _: cache.get("st"))
    equal("stale: exactly one is to make it anew", values.count(None), 1)
    equal("stale: the others read the old one", values.count("old"), 19)

    cache.set("st", "old", ttl=100)
    cache.delete("st", stale_policy=policy)
    value, version = cache.get_cas("st")
    equal("stale: the winner", value, None)
    cache.delete("st", stale_policy=policy)
    late = cache.set("st", "late", ttl=100, cas_token=version)
    equal("stale: a second invalidation makes the first winner late", late, False)
    late = cache.set("st", "late", ttl=100, cas_token=version, stale_policy=policy)
    equal("stale: a late value may be stored as stale", late, True)
    value, version = cache.get_cas("st")
    equal("stale: and the next reader still wins", value, None)
    equal("stale: whose value is fresh", cache.set("st", "new", ttl=100, cas_token=version), True)
    equal("stale: for everyone", [cache.get("st") for _ in range(3)], ["new"] * 3)


def flags(cache):
    """The raw commands: what the server says of an item."""
    key = Key("f")
    cache.set("f", "abc", ttl=100)
    wanted = RequestFlags(
        return_ttl=True, return_size=True, return_fetched=True, return_last_access=True,
        return_client_flag=True, return_cas_token=True, return_value=True, return_key=True,
        opaque=b"77",
    )
    first = cache.meta_get(key, flags=wanted).flags
    second = cache.meta_get(key, flags=wanted).flags
    ok("flags: ttl", first.ttl in (99, 100), first.ttl)
    equal("flags: fetched", (first.fetched, second.fetched), (0, 1))
    equal("flags: size", first.size, 3)
    equal("flags: opaque", first.opaque, b"77")
    ok("flags: last access", first.last_access in (0, 1), first.last_access)
    ok("flags: version", first.cas_token == second.cas_token and first.cas_token, first.cas_token)
    made = cache.meta_get(Key("viv"), RequestFlags(vivify_on_miss_ttl=30, return_value=True)).flags
    again = cache.meta_get(Key("viv"), RequestFlags(vivify_on_miss_ttl=30, return_value=True)).flags
    equal("flags: W, then Z", (made.win, again.win), (True, False))
    cache.meta_delete(Key("f"), RequestFlags(mark_stale=True))
    won = cache.meta_get(key, flags=RequestFlags(return_value=True)).flags
    lost = cache.meta_get(key, flags=RequestFlags(return_value=True)).flags
    equal("flags: X with W, then with Z", (won.stale, won.win, lost.stale, lost.win), (True, True, True, False))


def main():
    cache = client()
    for part in (
        basic, versions, counters, stampede, winner_stores_with_its_version, early_recache, stale,
        flags,
    ):
        part(cache)


run(main)

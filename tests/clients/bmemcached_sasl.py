"""python-binary-memcached with SASL under TLS. Called as `python … HOST PORT CERTIFICATE`."""

import ssl
import sys

import bmemcached
from bmemcached.exceptions import MemcachedException

from checks import address, equal, raises, run


def main():
    host, port = address()
    tls = ssl.create_default_context(cafile=sys.argv[3])

    def client(name, password):
        return bmemcached.Client((f"{host}:{port}",), name, password, tls_context=tls)

    friend = client("fred", "pass")
    equal("set", friend.set("a", "one"), True)
    equal("get", friend.get("a"), "one")
    values = {f"k{n}": f"value {n}" for n in range(200)}
    equal("set_multi", friend.set_multi(values), [])
    equal("get_multi", friend.get_multi([*values, "none"]), values)
    # The status is memcached's, 0x20; this client takes another one for wrong credentials, and shows ours as it is.
    raises("a wrong password", MemcachedException, lambda: client("fred", "wrong").get("a"))
    raises("a wrong name", MemcachedException, lambda: client("ann", "pass").get("a"))
    stranger = bmemcached.Client((f"{host}:{port}",), tls_context=tls)
    raises("nobody in particular reads anything", MemcachedException, lambda: stranger.get("a"))
    equal("a friend goes on", friend.get("a"), "one")
    friend.disconnect_all()


run(main)

"""pymemcache under TLS. Called as `python pymemcache_tls.py HOST PORT CERTIFICATE`."""

import socket
import ssl
import sys

from pymemcache.client.base import Client

from checks import address, equal, ok, raises, run


def main():
    host, port = address()
    believing = ssl.create_default_context(cafile=sys.argv[3])
    client = Client((host, port), tls_context=believing, timeout=10)
    # The check that the server listens was one.
    failed = client.stats()[b"ssl_handshake_errors"]
    equal("set", client.set("a", b"1"), True)
    equal("get", client.get("a"), b"1")
    large = b"x" * 1_000_000
    equal("a large value", (client.set("big", large), client.get("big") == large), (True, True))
    values = {f"k{n}": b"%d" % n for n in range(500)}
    equal("set_many", client.set_many(values, noreply=False), [])
    equal("get_many", client.get_many([*values, "none"]), values)
    equal("no handshake of these has failed", client.stats()[b"ssl_handshake_errors"], failed)
    other = Client((host, port), tls_context=ssl.create_default_context(), timeout=10)
    raises("a server that nobody vouches for is not spoken to", ssl.SSLError, lambda: other.get("a"))
    plain = Client((host, port), timeout=10)
    raises("who does not speak TLS is not answered", Exception, lambda: plain.get("a"))
    ok("they are counted", client.stats()[b"ssl_handshake_errors"] > failed)
    with socket.create_connection((host, port), timeout=10) as half:
        half.sendall(b"\x16\x03\x01")
        equal("a half handshake is nobody's business", client.get("a"), b"1")
    client.close()


run(main)

"""twemproxy (nutcracker), which shares one connection among its clients: a set that is refused must not be answered
before the proxy has sent all of it, or another client gets that answer.

The third argument is a folder for the proxy's files.
"""

import pathlib
import socket
import subprocess
import sys
import threading
import time

from checks import address, equal, ok, run

# More than the buffers of the sockets between proxy and server take at once.
BODY = b"y" * 30_000_000


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def connect(port):
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=100)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise RuntimeError("nutcracker does not listen")


def get_until(stop, port, wrong):
    client = connect(port)
    lines = client.makefile("rb")
    while not stop.is_set() and not wrong:
        client.sendall(b"get x\r\n")
        for expected in (b"VALUE x 0 5\r\n", b"hello\r\n", b"END\r\n"):
            line = lines.readline()
            if line != expected:
                wrong.append(line)
                break


def main():
    host, port = address()
    folder, own = pathlib.Path(sys.argv[3]), free_port()
    settings = folder / "nutcracker.yml"
    settings.write_text(
        f"pool:\n  listen: 127.0.0.1:{own}\n  hash: fnv1a_64\n  distribution: ketama\n  timeout: 100000\n"
        f"  server_connections: 1\n  servers:\n   - {host}:{port}:1\n"
    )
    log = folder / "nutcracker.log"
    proxy = subprocess.Popen(["nutcracker", "-c", settings, "-s", str(free_port()), "-o", log])
    try:
        setter = connect(own)
        lines = setter.makefile("rb")
        setter.sendall(b"set x 0 0 5\r\nhello\r\n")
        equal("set", lines.readline(), b"STORED\r\n")
        stop, wrong = threading.Event(), []
        getter = threading.Thread(target=get_until, args=(stop, own, wrong))
        getter.start()
        for name, words, answer in (
            ("over the limit", b"0 0", b"SERVER_ERROR object too large for cache\r\n"),
            ("with bad flags", b"99999999999999999999 0", b"CLIENT_ERROR bad command line format\r\n"),
        ):
            setter.sendall(b"set big %b %d\r\n%b\r\n" % (words, len(BODY), BODY))
            equal(f"a set {name} is told so", lines.readline(), answer)
        stop.set()
        getter.join()
        ok("another client gets its own answers", not wrong, wrong)
    finally:
        proxy.terminate()
        proxy.wait()


run(main)

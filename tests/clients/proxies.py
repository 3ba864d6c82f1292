"""Locks behind proxies: HAProxy in TCP mode, which has one connection for each client, and twemproxy, which shares one.

The third argument is a folder for the proxies' files.
"""

import pathlib
import socket
import subprocess
import sys
import time

from checks import address, equal, ok, run

TOKEN = "proxies-token-0123456789"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Client:
    def __init__(self, port):
        for _ in range(100):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=100)
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        self.lines = self.socket.makefile("rb")

    def send(self, line):
        self.socket.sendall(line.encode() + b"\r\n")

    def read(self):
        return self.lines.readline().decode().rstrip()

    def ask(self, line):
        self.send(line)
        return self.read()


def haproxy(server, folder):
    port = free_port()
    settings = folder / "haproxy.cfg"
    settings.write_text(
        f"defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 1s\n  timeout server 1s\n"
        f"frontend clients\n  bind 127.0.0.1:{port}\n  default_backend servers\n"
        f"backend servers\n  server one 127.0.0.1:{server}\n"
    )
    return port, subprocess.Popen(["haproxy", "-f", settings], stdout=subprocess.DEVNULL)


def twemproxy(server, folder):
    port = free_port()
    settings = folder / "twemproxy.yml"
    settings.write_text(
        f"pool:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: ketama\n  timeout: 100000\n"
        f"  servers:\n   - 127.0.0.1:{server}:1\n"
    )
    log = folder / "twemproxy.log"
    return port, subprocess.Popen(["nutcracker", "-c", settings, "-s", str(free_port()), "-o", log])


def behind_haproxy(server, port):
    holder, other, direct = Client(port), Client(port), Client(server)
    equal("a bound lock is taken", holder.ask("ml bound"), "HD")
    equal("and refused to another client", direct.ask("ml bound")[:3], "LK ")
    opened = other.ask(f"mo {TOKEN} T60")
    fence = other.ask("ml session F")
    ok("a session has a lock", fence.startswith("HD F"), fence)
    # The proxy closes both, since they are silent for its timeout.
    equal("the bound lock ends with its connection", direct.ask("ml bound w60000"), "HD")
    equal("the proxy has closed the session's connection", other.read(), "")
    other = Client(port)
    equal("the session goes on", other.ask(f"mo {TOKEN} T60"), opened.replace(" N", " R"))
    equal("and has its lock, with the same fence", other.ask("ml session F"), fence)
    equal("it ends", other.ask(f"mo {TOKEN} T0"), "HD")


def behind_twemproxy(port):
    client = Client(port)
    equal("a leased lock is taken", client.ask("add lease 0 30 2\r\nme"), "STORED")
    equal("and refused to another client", Client(port).ask("add lease 0 30 3\r\nyou"), "NOT_STORED")
    for line in ("ml key", "lock key", f"mo {TOKEN} T5", f"md key j{TOKEN}"):
        equal(f"{line.split()[0]} is closed", Client(port).ask(line), "")


def main():
    _, server = address()
    folder = pathlib.Path(sys.argv[3])
    for start, check in (
        (haproxy, lambda port: behind_haproxy(server, port)),
        (twemproxy, behind_twemproxy),
    ):
        port, proxy = start(server, folder)
        try:
            check(port)
        finally:
            proxy.terminate()
            proxy.wait()


run(main)

"""The processes of a fault run: etcd, two latchd for each partition, HAProxy, and the clients."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

from clients import CacheClient, Locker, Probe
from etcd import CLUSTER, RING, Etcd, free_port
from forwarder import Forwarder
from history import History
from loop import Loop

HOLD_MS, WAIT_MS = 3600, 4000
PARTITIONS = ("cache-a:11211", "cache-b:11212")
CONFIGURATION = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "haproxy.cfg"
QUOTA_BYTES = 24 << 20
# The supervisor looks this often, and starts an ended process again after this time.
SUPERVISOR_S, RESTART_S = 0.01, 0.02
# The longest wait for a primary, a standby and clients that are served.
START_S = 30
LOCKERS, CACHE_CLIENTS = 5, 5
# The codes with which a process may end: stopped, killed by the run, and its term is over.
EXIT_CODES = (0, -signal.SIGKILL, 75)


class Failure(Exception):
    """The run cannot go on, or a process did something that no rule of the history covers."""


def await_until(what, holds, seconds, check=None):
    """Waits for a condition, and returns what it returns."""
    end = time.monotonic() + seconds
    while True:
        if result := holds():
            return result
        if check:
            check()
        if time.monotonic() > end:
            raise Failure(f"after {seconds:.1f} s still not: {what}")
        time.sleep(0.005)


class Node:
    """A latchd under supervision."""

    def __init__(self, world, place, name, arguments):
        self.world, self.place, self.name = world, place, name
        self.port, self.status_port = free_port(), free_port()
        self.links = [world.forwarder.link(member.port) for member in world.etcd.members]
        self.log = world.folder / f"{name}.log"
        authority = ",".join(f"http://127.0.0.1:{link.port}" for link in self.links)
        self.command = [world.program, "-l", f"127.0.0.1:{self.port}", "--status", f"127.0.0.1:{self.status_port}"]
        self.command += ["--authority", authority, "--cluster", CLUSTER, "--partition", place.name]
        self.command += ["--log-file", self.log, *arguments]
        self.is_supervised, self.process, self.exits, self._log_start = True, None, [], 0
        # The pid of the process whose items the next process of this node is to have.
        self.leaves_items = None
        self.lock = threading.Lock()

    def start(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LATCHD_")}
        output = open(self.world.folder / f"{self.name}.txt", "ab")
        start = self.log_size()
        self.process = subprocess.Popen(self.command, stdout=output, stderr=output, env=environment)
        output.close()
        if self.leaves_items is not None:
            # If etcd did not answer in time, the record was not released, and the items are not handed over.
            self.world.history.inherit(self.process.pid, self.leaves_items, self.has_left())
            self.leaves_items = None
        self._log_start = start

    def has_left(self):
        """Whether the process has released the record of its partition."""
        return "is free for another process" in self.log_from(self._log_start)

    @property
    def pid(self):
        process = self.process
        return process.pid if process else None

    def tend(self):
        """Notes the end of the process, and starts it again if it is supervised."""
        with self.lock:
            if self.process is not None and (code := self.process.poll()) is not None:
                self.exits.append((time.monotonic(), self.process.pid, code))
                if code not in EXIT_CODES:
                    self.world.history.fail(f"{self.name} ended with {code}: {self.last_lines()}")
                self.process = None
            if self.process is None and self.is_supervised:
                if not self.exits or time.monotonic() >= self.exits[-1][0] + RESTART_S:
                    self.start()

    def send(self, number):
        os.kill(self.pid, number)

    def stands_by(self):
        """Whether the process has read the record of its partition, and does not serve."""
        return "standing by for" in self.log_from(self._log_start) and self.status("/primary") == 503

    def exit_of(self, pid):
        """When that process ended, and its code; None while it runs."""
        return next(((when, code) for when, ended, code in self.exits if ended == pid), None)

    def status(self, path):
        """The HTTP status of a page of the status port; None without an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.status_port, timeout=1)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def last_lines(self, count=4):
        try:
            return " | ".join(self.log.read_text().splitlines()[-count:])
        except OSError:
            return "no log"

    def log_size(self):
        return self.log.stat().st_size if self.log.exists() else 0

    def log_from(self, offset):
        """The log behind an offset, which `log_size` gave."""
        try:
            return self.log.read_bytes()[offset:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def cut(self, mode, delay_s=0.0):
        for link in self.links:
            link.mode, link.delay_s = mode, delay_s


class Place:
    """A partition: its name, its processes and its address at HAProxy."""

    def __init__(self, world, name, with_memory_file):
        self.world, self.name, self.proxy_port = world, name, free_port()
        short = name.partition(":")[0]
        self.nodes = []
        for n in (1, 2):
            state = world.folder / f"{short}-{n}"
            state.mkdir()
            arguments = ["--state", state]
            if with_memory_file:
                arguments += ["-e", world.folder / f"{short}-{n}.items"]
            self.nodes.append(Node(world, self, f"{short}-{n}", arguments))
        self.ports = [node.port for node in self.nodes]

    def primary(self):
        """The node that the record names, and that serves; None if there is none."""
        record = self.world.etcd.record(self.name)
        if record is None or record["state"] != "serving":
            return None
        for node in self.nodes:
            if record["address"].endswith(f":{node.port}") and node.status("/primary") == 200:
                return node
        return None

    def await_primary(self):
        return await_until(f"a primary of {self.name}", self.primary, START_S, self.world.history.check)

    def other(self, node):
        return self.nodes[1 - self.nodes.index(node)]

    def term(self):
        return int(self.world.etcd.record(self.name)["term"])


class World:
    def __init__(self, program, folder, members, history=None):
        self.program, self.folder = program, pathlib.Path(folder)
        self.history = History(history)
        self.loop = Loop(self.history.fail)
        self.forwarder = Forwarder()
        self.etcd = Etcd(self.folder, members, QUOTA_BYTES)
        self.places = [Place(self, name, name == PARTITIONS[0]) for name in PARTITIONS]
        self.proxy, self._stops, self.with_hold = None, threading.Event(), False
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)

    @property
    def nodes(self):
        return [node for place in self.places for node in place.nodes]

    def start(self):
        self.etcd.start()
        self._make_ring()
        self.forwarder.start()
        self._supervisor.start()
        self._start_proxy()
        for place in self.places:
            place.await_primary()
        self._add_clients()
        self.loop.start()
        self.settle()

    def _make_ring(self):
        members = ",".join(one.url for one in self.etcd.members)
        command = [self.program, "cluster", "init", "--authority", members, "--cluster", CLUSTER, *PARTITIONS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if done.returncode == 0:
            return
        if "unrecognized subcommand" not in done.stderr and "unexpected argument" not in done.stderr:
            raise Failure(f"latchd cluster init: {done.stderr.strip()}")
        partitions = [{"name": name, "weight": 1} for name in PARTITIONS]
        ring = {"format": 1, "id": f"{255:032x}", "partitions": partitions}
        self.etcd.put(RING, json.dumps(ring | {"hold_ms": str(HOLD_MS), "wait_ms": str(WAIT_MS)}))

    def _start_proxy(self):
        """Starts HAProxy with the example, at the addresses of this run."""
        text = CONFIGURATION.read_text()
        names = [("bind :11211", "bind :11212"), (("10.0.0.1", "10.0.0.2"), ("10.0.0.3", "10.0.0.4"))]
        for place, bind, hosts in zip(self.places, *names, strict=True):
            changes = [(bind, f"bind 127.0.0.1:{place.proxy_port}")]
            for node, host in zip(place.nodes, hosts, strict=True):
                changes.append((f"{host}:11211 port 9211", f"127.0.0.1:{node.port} port {node.status_port}"))
            for old, new in changes:
                if text.count(old) != 1:
                    raise Failure(f"{CONFIGURATION} has `{old}` {text.count(old)} times, not once")
                text = text.replace(old, new)
        path = self.folder / "haproxy.cfg"
        path.write_text(text)
        with open(self.folder / "haproxy.log", "wb") as log:
            self.proxy = subprocess.Popen(["haproxy", "-db", "-f", path], stdout=log, stderr=log)

    def _add_clients(self):
        history = self.history
        for place in self.places:
            short = place.name.partition(":")[0]
            self.with_hold = self._has_hold(place)
            for port in place.ports:
                self.loop.add(Probe(place, "direct", port, history))
            self.loop.add(Probe(place, "proxy", place.proxy_port, history))
            busy, long = self.keys(place, "busy", 2), self.keys(place, "long", 1)
            for n in range(LOCKERS):
                route = ("direct", "proxy")[n % 2]
                # Two of five wait for one lock that is held for long, so that a fault always meets a holder.
                keys, hold_s = (long, (2.0, 4.0)) if n < 2 else (busy, (0.01, 0.05))
                with_hold = self.with_hold and n != 3
                self.loop.add(Locker(place, route, f"locker {short}-{n}", history, keys, hold_s, with_hold))
            keys = [f"{short}-item-{n}" for n in range(CACHE_CLIENTS)]
            for n, key in enumerate(keys):
                route = ("direct", "proxy")[n % 2]
                self.loop.add(CacheClient(place, route, f"cache client {key}", history, key, keys))

    def _ask(self, place, line):
        with socket.create_connection(("127.0.0.1", place.await_primary().port), timeout=2) as one:
            one.sendall(line.encode() + b"\r\n")
            return one.makefile("rb").readline().decode().rstrip()

    def _has_hold(self, place):
        return " H" in self._ask(place, "mn H")

    def keys(self, place, kind, count):
        """So many keys that the ring places on this partition."""
        keys = []
        for n in range(1000):
            key = f"{place.name.partition(':')[0]}-{kind}-{n}"
            if not self._ask(place, f"ml {key} F").startswith("SERVER_ERROR key of"):
                keys.append(key)
            if len(keys) == count:
                return keys
        raise Failure(f"no keys of {place.name}")

    def _supervise(self):
        while not self._stops.wait(SUPERVISOR_S):
            for node in self.nodes:
                node.tend()

    def settle(self):
        """Waits until each partition has a primary, a standby, and clients that are served on both ways."""
        since = time.monotonic()
        for place in self.places:
            primary = place.await_primary()
            standby = place.other(primary)
            await_until(f"{standby.name} stands by", standby.stands_by, START_S, self.history.check)
            for route in ("direct", "proxy"):
                is_served = lambda: self.history.served(place.name, route, since)
                await_until(f"{place.name} is served: {route}", is_served, START_S, self.history.check)
        grants = self.history.counts["grants"]
        is_locked = lambda: self.history.counts["grants"] > grants + 2 * LOCKERS
        await_until("locks are granted", is_locked, START_S, self.history.check)

    def stop(self):
        """Ends every process of the run, whatever has happened."""
        self._stops.set()
        if self._supervisor.is_alive():
            self._supervisor.join()
        if self.loop.is_alive():
            self.loop.stop()
        for node in self.nodes:
            if node.process is not None:
                node.process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    # A process with a thread that ptrace has stopped is collected with this program.
                    node.process.wait(5)
        if self.proxy is not None:
            self.proxy.kill()
            self.proxy.wait()
        if self.forwarder.is_alive():
            self.forwarder.stop()
        self.etcd.kill()

    def keep_logs(self, folder):
        """Copies the logs of all processes."""
        folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("*.log"):
            shutil.copy(path, folder)

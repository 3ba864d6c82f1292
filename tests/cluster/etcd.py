"""The etcd of a fault run: its members, and the records in them."""

import base64
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import time

READY_S = 30
# The longest wait for an answer, also while a leader is elected.
ANSWER_S = 15
CLUSTER = "shop"
RING = f"/latchd/{CLUSTER}/ring"
_given = set()


def free_port():
    """A port below those that the kernel gives to clients: a process that is started again finds it free."""
    while True:
        port = random.randrange(16000, 32000)
        if port in _given:
            continue
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port


def partition_key(name):
    return f"/latchd/{CLUSTER}/partition/{name}"


def encode(text):
    return base64.b64encode(text.encode()).decode()


class Member:
    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.data, self.port, self.peer_port, self.process = folder / name, free_port(), free_port(), None

    @property
    def restored(self):
        return self.folder / f"{self.name}.restored"

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def peer_url(self):
        return f"http://127.0.0.1:{self.peer_port}"

    def ask(self, path, request, timeout=2.0):
        """Calls the JSON gateway. OSError without an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", path, json.dumps(request))
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"{path}: {error!r}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise OSError(f"{path}: {answer}")
        return answer


class Etcd:
    """`quota_bytes` bounds the size of each member's data, so that the fault `no space` is quick."""

    def __init__(self, folder, count, quota_bytes):
        self.folder, self.quota_bytes = pathlib.Path(folder), quota_bytes
        self.members = [Member(f"etcd-{n}", self.folder) for n in range(count)]

    def start(self, members=None):
        cluster = ",".join(f"{one.name}={one.peer_url}" for one in self.members)
        for one in members or self.members:
            log = open(self.folder / f"{one.name}.log", "ab")
            one.process = subprocess.Popen(
                ["etcd", "--name", one.name, "--data-dir", one.data, "--log-level", "warn"]
                + ["--listen-client-urls", one.url, "--advertise-client-urls", one.url]
                + ["--listen-peer-urls", one.peer_url, "--initial-advertise-peer-urls", one.peer_url]
                + ["--initial-cluster", cluster, "--quota-backend-bytes", str(self.quota_bytes)],
                stdout=log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.startswith("ETCD")},
            )
            log.close()
        self.await_ready(members)

    def await_ready(self, members=None):
        """Waits until each member answers a linearizable read."""
        end = time.monotonic() + READY_S
        for one in members or self.members:
            while True:
                try:
                    one.ask("/v3/kv/range", {"key": encode(RING)}, 0.5)
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.02)

    def kill(self, members=None, number=signal.SIGKILL):
        for one in members or self.members:
            if one.process is not None:
                # A stopped process ends, too.
                one.process.send_signal(number)
                one.process.wait()
                one.process = None

    def ask(self, path, request):
        """Asks the members in turn until one answers, for a while. A member without space is an answer."""
        end = time.monotonic() + ANSWER_S
        while True:
            for one in self.members:
                try:
                    return one.ask(path, request)
                except OSError as error:
                    if "space" in str(error) or time.monotonic() > end:
                        raise
            time.sleep(0.05)

    def get(self, key):
        """The value of a key; None if there is none."""
        found = self.ask("/v3/kv/range", {"key": encode(key)}).get("kvs")
        return base64.b64decode(found[0]["value"]).decode() if found else None

    def put(self, key, value):
        self.ask("/v3/kv/put", {"key": encode(key), "value": encode(value)})

    def delete(self, key):
        self.ask("/v3/kv/deleterange", {"key": encode(key)})

    def record(self, partition):
        """The record of a partition; None if there is none."""
        text = self.get(partition_key(partition))
        return json.loads(text) if text else None

    def leader(self):
        """The member that leads, or the first one if none says so."""
        for one in self.members:
            answer = one.ask("/v3/maintenance/status", {}, ANSWER_S)
            if answer.get("leader") == answer["header"]["member_id"]:
                return one
        return self.members[0]

    def control(self, *arguments, members=None):
        """Runs etcdctl against all members, or these."""
        urls = ",".join(one.url for one in members or self.members)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD")}
        done = subprocess.run(
            ["etcdctl", f"--endpoints={urls}", *map(str, arguments)],
            env=environment | {"ETCDCTL_API": "3"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode != 0:
            raise OSError(f"etcdctl {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def snapshot(self, path):
        path.unlink(missing_ok=True)
        self.control("snapshot", "save", path, members=self.members[:1])

    def prepare(self, path):
        """Prepares the data of all members from a snapshot, for `restore`."""
        cluster = ",".join(f"{one.name}={one.peer_url}" for one in self.members)
        for one in self.members:
            shutil.rmtree(one.restored, ignore_errors=True)
            self.control(
                *("snapshot", "restore", path, "--name", one.name, "--data-dir", one.restored),
                *("--initial-cluster", cluster, "--initial-advertise-peer-urls", one.peer_url),
            )

    def restore(self):
        """Replaces the data of all members, and starts them."""
        self.kill()
        for one in self.members:
            shutil.rmtree(one.data)
            one.restored.rename(one.data)
        self.start()

    def fill(self):
        """Writes until the members refuse it for want of space."""
        value = "x" * (1 << 20)
        for _ in range(2 * self.quota_bytes >> 20):
            try:
                self.put("/filler", value)
            except OSError as error:
                if "space" in str(error):
                    return
                raise
        raise OSError("etcd takes more than its quota")

    def make_space(self):
        revision = self.ask("/v3/kv/range", {"key": encode(RING)})["header"]["revision"]
        self.control("compact", revision)
        self.control("defrag")
        self.control("alarm", "disarm")

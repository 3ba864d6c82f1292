"""Fault runs of a latchd cluster: each fault, its figures, and the rules that the history must keep.

    faults.py PROGRAM [--all] [--times N] [--slack N] [--tries N] [--only NAME,…] [--random SECONDS] [--logs FOLDER]
              [--history FILE]

Without --all one short pass with one member of etcd; with --all every fault, N times, with three members. --random
draws a fault every 10 s. The rules are strict (history.py); the limits of times are multiplied by --slack, except those
that follow from the clock of the primary. Everything is on 127.0.0.1 and in a temporary directory, which takes 130 MB
for each member of etcd. A fault whose requirements are not met is executed again, --tries times in all: a
machine that stops a process for seconds moves every time, but it breaks no rule.

Exits 1 if a rule or a requirement is broken, and 2 if the run cannot begin.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict

from history import Violation
from table import FAULTS
from world import Failure, World

RANDOM_S = 10
# More than three members of etcd take.
SHARED_MEMORY_BYTES = 1 << 30
# The most lines of each log that a missed requirement prints.
LINES_MAX = 12


class Run:
    """The figures of a run, and the means of the faults."""

    def __init__(self, world, slack):
        self.world, self.history, self.slack = world, world.history, slack
        self.figures, self.limits, self.misses = defaultdict(list), {}, defaultdict(int)
        self.notes, self._missed = [], []
        self.fault, self._sizes, self._is_shown = "", {}, False

    def say(self, text):
        print(text, flush=True)

    def wait_until(self, moment):
        """Waits, and looks at the history meanwhile."""
        while (left := moment - time.monotonic()) > 0:
            self.history.check()
            time.sleep(min(left, 0.05))

    def wait(self, seconds):
        self.wait_until(time.monotonic() + seconds)

    def measure(self, name, seconds, limit):
        """A time, and its limit in seconds; None: a figure only."""
        self._note(name, seconds, limit, self.slack)

    def limit(self, name, seconds, limit):
        """A time whose limit no busy machine can move."""
        self._note(name, seconds, limit, 1)

    def _note(self, name, seconds, limit, slack):
        self.figures[self.fault, name].append(seconds)
        self.limits[self.fault, name] = limit
        holds = limit is None or seconds <= limit * slack
        bound = "" if limit is None else f" (at most {limit:.2f} s{f' x {slack:g}' if slack != 1 else ''})"
        self.say(f"  {'ok' if holds else 'MISSED'} - {name}: {seconds:.3f} s{bound}")
        if not holds:
            self._miss(name, f"{seconds:.3f} s{bound}")

    def require(self, name, holds, why):
        if holds:
            self.say(f"  ok - {name}")
        else:
            self.say(f"  MISSED - {name}: {why}")
            self._miss(name, why)

    def _miss(self, name, why):
        self.misses[self.fault, name] += 1
        self._missed.append(f"{self.fault}: {name}: {why}")
        self.print_logs()

    def print_logs(self):
        """The newest lines of each latchd since the fault, once."""
        if self._is_shown:
            return
        self._is_shown = True
        for node, size in self._sizes.items():
            for line in node.log_from(size).splitlines()[-LINES_MAX:]:
                self.say(f"      {node.name}: {line}")

    def execute(self, name, function, place, tries):
        """Executes a fault until its requirements are met, so many times at most."""
        self.fault = name
        for left in reversed(range(tries)):
            self._sizes, self._is_shown = {node: node.log_size() for node in self.world.nodes}, False
            self._missed = []
            self.say(f"{name}, {place.name}")
            try:
                function(self, place)
                self.world.settle()
                self.history.check()
            except (Violation, Failure, OSError):
                self.print_logs()
                raise
            if not self._missed:
                return
            if left:
                self.say(f"  again: {len(self._missed)} requirements are not met")
        self.notes += self._missed

    def report(self):
        """The table of all figures."""
        self.say(f"\n{'fault':28} {'figure':30} {'runs':>4} {'median':>8} {'worst':>8} {'limit':>6} missed")
        for (fault, name), values in self.figures.items():
            limit = self.limits[fault, name]
            limit = "" if limit is None else f"{limit:.2f}"
            missed = self.misses.get((fault, name), 0) or ""
            median, worst = statistics.median(values), max(values)
            self.say(f"{fault:28} {name:30} {len(values):4} {median:8.3f} {worst:8.3f} {limit:>6} {missed}")
        counts = self.history.counts
        ended = sum(code == 75 for node in self.world.nodes for _, _, code in node.exits)
        kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("grants", "writes", "reads", "misses"))
        self.say(f"\n{kinds}; exits with 75: {ended}")
        for note in self.notes:
            self.say(f"MISSED {note}")


def chosen(options):
    """The faults to execute, in order."""
    if options.only:
        names = options.only.split(",")
        unknown = set(names) - {fault[0] for fault in FAULTS}
        if unknown:
            raise Failure(f"unknown faults: {', '.join(sorted(unknown))}; known: {', '.join(one[0] for one in FAULTS)}")
        return [fault for fault in FAULTS if fault[0] in names]
    return [fault for fault in FAULTS if options.all or options.random or fault[4]]


def execute(run, faults, options):
    if options.random:
        end = time.monotonic() + options.random
        while time.monotonic() < end:
            due = time.monotonic() + RANDOM_S
            name, function, _, _, _ = random.choice(faults)
            run.execute(name, function, random.choice(run.world.places), options.tries)
            run.wait_until(due)
        return
    for _ in range(options.times):
        for name, function, place, _, _ in faults:
            run.execute(name, function, run.world.places[place], options.tries)


def main():
    parser = argparse.ArgumentParser(description="Executes the faults of a latchd cluster.")
    parser.add_argument("program")
    parser.add_argument("--all", action="store_true", help="every fault, with three members of etcd")
    parser.add_argument("--times", type=int, default=1, help="so many times [default: 1]")
    parser.add_argument("--slack", type=float, default=1, help="multiply the limits of times [default: 1]")
    parser.add_argument("--tries", type=int, default=1, help="execute a fault so many times at most [default: 1]")
    parser.add_argument("--only", help="only these faults, separated by commas")
    parser.add_argument("--random", type=float, help="draw a fault every 10 s, for so many seconds")
    parser.add_argument("--history", type=pathlib.Path, help="write the operations of all clients there")
    parser.add_argument("--logs", type=pathlib.Path, help="copy the logs of all processes there")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="latchd-faults-", dir=memory_folder()) as folder:
        sys.exit(run_in(folder, options))


def memory_folder():
    """A file system in memory, if there is one: on a busy disk, etcd's sync can take seconds."""
    if not os.access("/dev/shm", os.W_OK):
        return None
    return "/dev/shm" if shutil.disk_usage("/dev/shm").free >= SHARED_MEMORY_BYTES else None


def run_in(folder, options):
    try:
        faults = chosen(options)
        members = 3 if options.all or options.random else max(fault[3] for fault in faults)
        world = World(options.program, folder, members, options.history)
    except Failure as failure:
        print(f"faults.py: {failure}", file=sys.stderr)
        return 2
    run, begun = Run(world, options.slack), time.monotonic()
    failed = True
    try:
        world.start()
        run.say(f"{members} member(s) of etcd, 2 partitions; lockers {'with' if world.with_hold else 'without'} H")
        execute(run, faults, options)
        failed = bool(run.notes)
    except Violation as violation:
        run.say(f"VIOLATION in `{run.fault}`: {violation}")
    except (Failure, OSError) as failure:
        run.say(f"FAILED in `{run.fault or 'start'}`: {failure!r}")
    finally:
        if options.logs:
            world.keep_logs(options.logs)
        world.stop()
        world.history.close()
    run.report()
    run.say(f"{'FAILED' if failed else 'passed'} after {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    main()

"""What the client scripts share: one line a fact, and an exit code.

A script is called as `python NAME.py HOST PORT`. Each fact is one line, `ok - NAME` or
`not ok - NAME: WHY`; an exception ends the script and counts as one fact that does not hold.
"""

import sys
import traceback

failed = 0


def address():
    return sys.argv[1], int(sys.argv[2])


def ok(name, holds, why=""):
    global failed
    if holds:
        print(f"ok - {name}", flush=True)
    else:
        failed += 1
        print(f"not ok - {name}: {why}", flush=True)


def equal(name, got, expected):
    ok(name, got == expected, f"got {got!r:.200}, expected {expected!r:.200}")


def raises(name, kind, call):
    try:
        got = call()
    except kind:
        ok(name, True)
    else:
        ok(name, False, f"no {kind.__name__}, but {got!r:.200}")


def run(main):
    try:
        main()
    except Exception as error:
        traceback.print_exc()
        ok("the script comes to its end", False, repr(error))
    sys.exit(1 if failed else 0)

"""The rules of history.py, each with a history that breaks it and the nearest one that keeps it."""

from history import Belief, History


def belief(client, fence, start, until=None, pid=1):
    return Belief("a", "key", client, pid, fence, start, until)


def overlap(history):
    history.granted(belief("one", 1, 10.0))
    history.granted(belief("two", 2, 11.0))


def no_overlap(history):
    first = belief("one", 1, 10.0)
    history.granted(first)
    history.end_belief(first, "lost", 11.0)
    history.granted(belief("two", 2, 11.0))


def overlap_of_a_hold(history):
    history.granted(belief("one", 1, 10.0, until=13.0))
    history.granted(belief("two", 2, 12.9))


def hold_over(history):
    history.granted(belief("one", 1, 10.0, until=13.0))
    history.granted(belief("two", 2, 13.0))


def hold_renewed(history):
    first = belief("one", 1, 10.0, until=13.0)
    history.granted(first)
    history.renewed(first, 14.0)
    history.granted(belief("two", 2, 13.5))


def fence_falls(history):
    first = belief("one", 5, 10.0)
    history.granted(first)
    history.end_belief(first, "released", 11.0)
    history.granted(belief("two", 5, 12.0, pid=2))


def cas_falls(history):
    history.written(1, "key", 1, 7)
    history.written(2, "key", 2, 7)


def cas_rises(history):
    history.written(1, "key", 1, 7)
    history.written(2, "key", 2, 8)


def older_value(history):
    history.written(1, "key", 1, 7)
    history.written(1, "key", 2, 8)
    history.read(1, "key", (1, 1, 7), history.known(1, "key"))


def read_beside_a_write(history):
    history.written(1, "key", 1, 7)
    known = history.known(1, "key")
    history.written(1, "key", 2, 8)
    history.read(1, "key", (1, 1, 7), known)


def older_than_a_read(history):
    history.read(1, "key", (1, 2, 8), 0)
    history.read(1, "key", (1, 1, 7), history.known(1, "key"))


def late_write(history):
    history.perhaps_written(1, "key", 1)
    history.written(1, "key", 2, 8)
    history.read(1, "key", (1, 1, 9), history.known(1, "key"))


def value_lost(history):
    history.written(1, "key", 1, 7)
    history.read(1, "key", None, history.known(1, "key"))


def miss_in_the_next_process(history):
    history.written(1, "key", 1, 7)
    history.read(2, "key", None, history.known(2, "key"))


def value_of_an_earlier_process(history):
    history.written(1, "key", 1, 7)
    history.read(2, "key", (1, 1, 7), history.known(2, "key"))


def value_handed_over(history):
    history.inherit(2, 1, False)
    value_of_an_earlier_process(history)


def value_lost_in_a_hand_over(history):
    history.inherit(2, 1, True)
    miss_in_the_next_process(history)


def hand_over_that_failed(history):
    history.inherit(2, 1, False)
    miss_in_the_next_process(history)


def wrong_cas(history):
    history.written(1, "key", 1, 7)
    history.read(1, "key", (1, 1, 9), history.known(1, "key"))


def two_serve(history):
    history.answered("a", 1, 10.0, 10.1)
    history.answered("a", 2, 11.0, 11.1)
    history.answered("a", 1, 11.2, 11.3)


def late_answer(history):
    history.answered("a", 1, 10.0, 10.1)
    history.answered("a", 2, 11.0, 11.1)
    history.answered("a", 1, 11.1, 11.3)


BROKEN = {
    overlap: "two clients believe",
    overlap_of_a_hold: "two clients believe",
    hold_renewed: "two clients believe",
    fence_falls: "fence of key falls",
    cas_falls: "CAS of key falls",
    older_value: "older than 2",
    older_than_a_read: "older than 2",
    value_lost: "misses",
    value_of_an_earlier_process: "which process 1 stored",
    value_lost_in_a_hand_over: "misses",
    wrong_cas: "has CAS 9, not 7",
    two_serve: "its successor 2",
}
KEPT = (
    no_overlap,
    hold_over,
    cas_rises,
    read_beside_a_write,
    late_write,
    miss_in_the_next_process,
    value_handed_over,
    hand_over_that_failed,
    late_answer,
)


def main():
    for case, expected in BROKEN.items():
        history = History()
        case(history)
        assert history.violation and expected in history.violation, (case.__name__, history.violation)
    for case in KEPT:
        history = History()
        case(history)
        assert history.violation is None, (case.__name__, history.violation)
    print(f"{len(BROKEN)} broken histories are found, {len(KEPT)} others are kept")


main()

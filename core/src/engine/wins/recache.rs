//! The win as a pure function: which get is to recache an item.
//!
//! - R1: between two events that open the win, at most one get is answered [`Win::Won`].
//!
//! The win is open for an item that a get has just vivified, for a stale one, and for one whose TTL runs short (`R`),
//! as long as it was not sent. It opens again with each store of a new value, with `md I`, with the end of the item,
//! and with the end of the owner to which it was bound. Arithmetic does not open it: a number computed from a stale one
//! is stale.
//!
//! Source: memcached 1.6.45 `proto_parser.c`, `process_mget_cmd`.

use latchd_protocol::command::{TtlStep, TtlSteps};
use latchd_protocol::item::{ItemHeader, WinMark};
use latchd_protocol::reply::{TtlSeconds, TtlTrace, Win};
use latchd_protocol::time::{Clock, Deadline, Exptime};

/// How an item came to be in front of a get.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::engine) enum Origin {
    /// It was there.
    Found,
    /// The command has just made it.
    Made,
}

/// The result of a command's steps on the TTL and the win of an item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::engine) struct Outcome {
    /// Its deadline after the last step.
    pub(in crate::engine) deadline: Option<Deadline>,
    /// Its remaining TTL before, between and after the steps.
    pub(in crate::engine) ttl: TtlTrace,
    /// The win in the reply to the get. After [`Win::Won`] the win must be marked as sent (R1).
    pub(in crate::engine) win: Win,
}

/// Takes the steps of a get on an item, in their order.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "each command calls it, and a call costs as much as it does"
)]
pub(in crate::engine) fn decide(
    clock: &Clock,
    header: &ItemHeader,
    steps: &TtlSteps,
    origin: Origin,
) -> Outcome {
    let mut runs_short = false;
    let (deadline, ttl) = if steps.is_empty() {
        // The most frequent case, with the result of `walk`.
        let ttl = TtlTrace::unchanged(shown(clock, header.deadline));
        (header.deadline, ttl)
    } else {
        walk(
            clock,
            header.deadline,
            steps,
            origin,
            |deadline, threshold| {
                runs_short |= is_short(clock, deadline, threshold);
            },
        )
    };
    let win = match header.win {
        WinMark::Sent => Win::Sent,
        WinMark::Open => Win::Won,
        WinMark::None if origin == Origin::Made || header.stale || runs_short => Win::Won,
        WinMark::None => Win::None,
    };
    Outcome { deadline, ttl, win }
}

/// The mark of an item after a get with this reply.
pub(in crate::engine) const fn mark_after(mark: WinMark, win: Win) -> WinMark {
    match win {
        Win::Won => WinMark::Sent,
        Win::Sent | Win::None => mark,
    }
}

/// The remaining seconds until a deadline.
#[inline]
fn shown(clock: &Clock, deadline: Option<Deadline>) -> TtlSeconds {
    deadline.map(|at| at.remaining_s(clock.tick()))
}

/// Takes the touching and vivifying steps of a command, and shows each `R` to `recache` with the
/// deadline at its place. Returns the deadline after the last step, and the TTL around each.
pub(in crate::engine) fn walk(
    clock: &Clock,
    deadline: Option<Deadline>,
    steps: &TtlSteps,
    origin: Origin,
    mut recache: impl FnMut(Option<Deadline>, Exptime),
) -> (Option<Deadline>, TtlTrace) {
    let mut deadline = deadline;
    let mut ttl = TtlTrace::unchanged(shown(clock, deadline));
    for (taken, step) in steps.iter().enumerate() {
        match step {
            TtlStep::Touch(exptime) => deadline = clock.deadline(exptime),
            TtlStep::Vivify(exptime) if origin == Origin::Made => {
                deadline = clock.deadline(exptime);
            }
            TtlStep::Vivify(_) => {}
            TtlStep::Recache(threshold) => recache(deadline, threshold),
        }
        for later in ttl.0.iter_mut().skip(taken + 1) {
            *later = shown(clock, deadline);
        }
    }
    (deadline, ttl)
}

/// Whether the remaining TTL of an item is less than `threshold`. An item without TTL never runs short, and a threshold
/// of 0 or less is never reached.
fn is_short(clock: &Clock, deadline: Option<Deadline>, threshold: Exptime) -> bool {
    let Some(deadline) = deadline else {
        return false;
    };
    match threshold {
        Exptime::Never | Exptime::Past => false,
        Exptime::In { seconds } => deadline.remaining_s(clock.tick()) < seconds,
        Exptime::At { .. } => clock
            .deadline(threshold)
            .is_some_and(|date| deadline < date),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchd_protocol::item::Cas;
    use latchd_protocol::time::{Instant, Tick};

    fn clock() -> Clock {
        Clock {
            now: Instant::from_millis(5_000),
            unix_s_at_start: 1_700_000_000,
        }
    }

    fn header(ttl_s: Option<u32>, stale: bool, win_sent: bool) -> ItemHeader {
        ItemHeader {
            deadline: ttl_s.and_then(|seconds| clock().deadline(Exptime::In { seconds })),
            stale,
            win: if win_sent {
                WinMark::Sent
            } else {
                WinMark::None
            },
            ..ItemHeader::new(Cas::FIRST, Tick::default())
        }
    }

    fn win(header: &ItemHeader, steps: TtlSteps) -> Win {
        decide(&clock(), header, &steps, Origin::Found).win
    }

    fn recache(seconds: i64) -> TtlSteps {
        TtlSteps::one(TtlStep::Recache(Exptime::from_wire(seconds)))
    }

    #[test]
    fn a_win_is_open_until_it_is_sent() {
        for (stale, ttl_s, steps) in [
            (true, None, TtlSteps::NONE),
            (false, Some(10), recache(11)),
            (true, None, recache(5)),
        ] {
            assert_eq!(win(&header(ttl_s, stale, false), steps), Win::Won);
            assert_eq!(win(&header(ttl_s, stale, true), steps), Win::Sent);
        }
        let made = |win_sent| {
            decide(
                &clock(),
                &header(None, false, win_sent),
                &TtlSteps::NONE,
                Origin::Made,
            )
            .win
        };
        assert_eq!(made(false), Win::Won);
    }

    #[test]
    fn a_fresh_item_with_time_left_is_not_to_be_recached() {
        for steps in [TtlSteps::NONE, recache(10), recache(0), recache(-1)] {
            assert_eq!(win(&header(Some(10), false, false), steps), Win::None);
        }
        assert_eq!(
            win(&header(None, false, false), recache(1_000_000)),
            Win::None
        );
    }

    #[test]
    fn steps_act_in_the_order_of_the_request() {
        let touch = TtlStep::Touch(Exptime::In { seconds: 100 });
        let short = TtlStep::Recache(Exptime::In { seconds: 50 });
        let before = TtlSteps::one(touch).then(short).unwrap();
        let after = TtlSteps::one(short).then(touch).unwrap();
        assert_eq!(win(&header(Some(10), false, false), before), Win::None);
        assert_eq!(win(&header(Some(10), false, false), after), Win::Won);
        let ttl = decide(
            &clock(),
            &header(Some(10), false, false),
            &after,
            Origin::Found,
        )
        .ttl;
        assert_eq!(ttl, TtlTrace([Some(10), Some(10), Some(100), Some(100)]));
    }

    #[test]
    fn a_made_item_has_no_ttl_before_the_step_that_makes_it() {
        let steps = TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 30 }));
        let outcome = decide(&clock(), &header(None, false, false), &steps, Origin::Made);
        assert_eq!(outcome.ttl, TtlTrace([None, Some(30), Some(30), Some(30)]));
    }
}

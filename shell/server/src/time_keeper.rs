//! The clock thread.
//!
//! - K1: The clock ticks every [`TICK`], and sooner while one tick is not enough to remove all that is due.
//!   Between two ticks, it leaves the shards alone for as long as the tick took, but at most [`REST_MAX`].
//!   If no command has come since the last tick, and nothing has a deadline, the next one is [`IDLE_TICK`] later; a deadline
//!   that comes meanwhile brings it nearer.
//! - K2: A wait or a lease ends at its deadline, not a tick later. If a thread brings the soonest deadline
//!   nearer, it has the clock wake then.

use std::time::Duration;

use smol::future::FutureExt;

use crate::clients::mailbox::Message;
use crate::server_state::ServerState;
use crate::sync::atomic::Ordering;
use crate::sync::channel::Receiver;
use crate::sync::{Instant, Timer};

/// The interval of ticks.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// The interval of ticks of an idle server. Each wakes two threads. It is shorter than the patience of the health check.
const IDLE_TICK: Duration = Duration::from_secs(2);

/// The shortest and the longest pause after a tick that left expired items.
const REST_MIN: Duration = Duration::from_micros(100);
const REST_MAX: Duration = Duration::from_millis(5);

/// The interval of the checks for idle clients and slow handshakes.
const SWEEP: Duration = Duration::from_secs(1);

/// An interval of work that comes with ticks.
struct Every {
    span: Duration,
    last: Instant,
}

impl Every {
    fn new(span: Duration) -> Self {
        Self {
            span,
            last: Instant::now(),
        }
    }

    /// Whether the interval is over; then the next one begins.
    fn is_over(&mut self) -> bool {
        let is_over = self.last.elapsed() >= self.span;
        if is_over {
            self.last = Instant::now();
        }
        is_over
    }
}

/// Ticks until the server stops, and ends waits and leases at their deadlines.
pub(crate) async fn keep_time(shared: &ServerState, stopped: &Receiver<()>) {
    let mut tick_at = Instant::now() + TICK;
    let mut sweeps = Every::new(SWEEP);
    let mut ticked = shared.clock.now();
    loop {
        let wake_at = shared.waiters.deadline().map(|at| {
            // In this order: if the thread is delayed in between, it wakes too soon and checks again.
            let from = Instant::now();
            let now_ms = shared.clock.now().as_millis();
            from + Duration::from_millis(at.as_millis().saturating_sub(now_ms))
        });
        let alarm = async {
            Timer::at(wake_at.map_or(tick_at, |at| at.min(tick_at))).await;
            true
        };
        let nearer = async {
            shared.waiters.nearer().await;
            true
        };
        let stop = async {
            // Nothing is ever sent: an error means that the sender was dropped.
            let _ = stopped.recv().await;
            false
        };
        if !stop.or(alarm).or(nearer).await {
            return;
        }
        let now = shared.clock.now();
        // Each step below reports the next deadline of the lock manager.
        shared.waiters.forget_deadline();
        if Instant::now() < tick_at {
            shared.shards.pass(now);
            tell_expired(shared);
            tick_at = tick_at.min(Instant::now() + TICK);
            continue;
        }
        let began = Instant::now();
        let is_idle = shared.shards.is_idle_since(ticked);
        ticked = now;
        let wants_more = shared.shards.tick(now, shared.clock.unix_s_at_start());
        shared.ticked_ms.store(now.as_millis(), Ordering::Relaxed);
        shared.tell_evicted();
        tell_expired(shared);
        shared.pass_withheld(now);
        if let Some(member) = &shared.member {
            let numbers = shared.shards.numbers(now);
            member.note_tick(numbers.cas.number().max(numbers.fence.number()));
        }
        let is_swept = shared.config.idle_timeout.is_some()
            || shared.keys.is_some()
            || shared.lingering.load(Ordering::Relaxed) > 0;
        let has_more = is_swept
            || shared.member.is_some()
            || shared.are_withheld()
            || shared.waiters.deadline().is_some();
        tick_at = Instant::now()
            + if wants_more {
                rest_after(began.elapsed())
            } else if is_idle && !has_more {
                IDLE_TICK
            } else {
                TICK
            };
        if is_swept && sweeps.is_over() {
            for mailbox in &*shared.mailboxes {
                mailbox.post(Message::Sweep);
            }
        }
    }
}

/// Reports the sessions that have expired.
fn tell_expired(shared: &ServerState) {
    for owner in shared.waiters.take_expired() {
        shared.tell_session("expire", owner, None);
    }
}

/// The pause after a tick that took this long and was not enough: the same time again. So other threads have
/// a shard for at least half of the time, and the clock takes at most half of a processor. A tick holds a
/// shard for a fraction of a millisecond.
fn rest_after(tick: Duration) -> Duration {
    tick.clamp(REST_MIN, REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_rests_as_long_as_it_ticks() {
        let us = Duration::from_micros;
        assert_eq!(rest_after(us(3)), REST_MIN);
        assert_eq!(rest_after(us(700)), us(700));
        assert_eq!(rest_after(us(90_000)), REST_MAX);
    }
}

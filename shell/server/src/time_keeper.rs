//! The thread of the clock.
//!
//! - K1: the items are told that time has passed, every [`TICK`] and sooner while one tick is not enough; then the
//!   shards are left alone for as long as a tick takes, and for [`REST_MAX`] if it takes longer.
//! - K2: a wait or a lease that ends is ended when it is time, not a tick later; whoever brings the soonest moment
//!   nearer has the clock wake for it.

use std::time::Duration;

use smol::future::FutureExt;

use crate::clients::mailbox::Message;
use crate::shared::Shared;
use crate::sync::atomic::Ordering;
use crate::sync::channel::Receiver;
use crate::sync::{Instant, Timer};

/// How often the shards are told that time has passed.
const TICK: Duration = Duration::from_millis(200);

/// How long the shards are left alone at least, and at most, if there is more to take out than one tick does.
const REST_MIN: Duration = Duration::from_micros(100);
const REST_MAX: Duration = Duration::from_millis(5);

/// How long it is between two looks for clients that are idle, or take too long over their handshake.
const SWEEP: Duration = Duration::from_secs(1);

/// Ticks until the server stops; and lets waits and leases end when it is time, not a tick later.
pub(crate) async fn keep_time(shared: &Shared, stopped: &Receiver<()>) {
    let mut tick_at = Instant::now() + TICK;
    let (mut swept, mut counted) = (Instant::now(), Instant::now());
    loop {
        let wake_at = shared.waiters.deadline().map(|at| {
            // In this order: whoever is held up between the two wakes too soon, and looks again.
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
            // Nothing is ever sent: an error says that the other side has gone.
            let _ = stopped.recv().await;
            false
        };
        if !stop.or(alarm).or(nearer).await {
            return;
        }
        let now = shared.clock.now();
        // As they are let go of, the shards say when it is time again.
        shared.waiters.forget_deadline();
        if Instant::now() < tick_at {
            shared.shards.pass(now);
            continue;
        }
        let began = Instant::now();
        let wants_more = shared.shards.tick(now, shared.clock.unix_s_at_start());
        shared.ticked_ms.store(now.as_millis(), Ordering::Relaxed);
        shared.tell_evicted();
        if counted.elapsed() >= TICK {
            counted = Instant::now();
            shared.shards.count_holders();
        }
        tick_at = Instant::now()
            + if wants_more {
                rest_after(began.elapsed())
            } else {
                TICK
            };
        let is_swept = shared.config.idle_timeout.is_some()
            || shared.keys.is_some()
            || shared.lingering.load(Ordering::Relaxed) > 0;
        if is_swept && swept.elapsed() >= SWEEP {
            swept = Instant::now();
            for mailbox in &*shared.mailboxes {
                mailbox.post(Message::Sweep);
            }
        }
    }
}

/// How long the shards are left alone after a tick that took so long and was not enough: as long again, so that
/// whoever wants a shard has it for half of the time at least, and the clock has half of a processor at most. A
/// tick holds a shard for a fraction of a millisecond.
fn rest_after(tick: Duration) -> Duration {
    tick.clamp(REST_MIN, REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_left_alone_for_as_long_as_a_tick_takes() {
        let us = Duration::from_micros;
        assert_eq!(rest_after(us(3)), REST_MIN);
        assert_eq!(rest_after(us(700)), us(700));
        assert_eq!(rest_after(us(90_000)), REST_MAX);
    }
}

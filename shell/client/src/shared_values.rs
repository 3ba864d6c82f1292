//! One question per key and process: the tasks that want the same computed value share the answer.
//!
//! - S1: One task leads: it asks the server, and computes if it is told to. The others wait for its answer. If it is
//!   dropped, the next one leads.
//! - S2: A failure is shared as well. After it, the next task leads only after a pause, which grows with each failure.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use latchd_protocol::Instant;
use latchd_protocol::time::saturating_millis;

use super::background::Alarm;
use super::clock;
use super::compute::Value;
use super::error::Error;
use super::mutex::lock;
use super::turns::{Permit, Permits};

/// The pause after the first failure; it doubles with each further one (S2).
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The most keys with a failure that are remembered.
const FAILED_MAX: usize = 64;

/// The values that tasks of this process want now.
pub(super) struct Computes {
    keys: Mutex<BTreeMap<Box<[u8]>, Entry>>,
    permits: Permits,
}

struct Entry {
    answer: Arc<Mutex<Answer>>,
    /// Closed when the leader has ended.
    ended: Receiver<Infallible>,
    /// Failures in a row, and when the next task may lead.
    failures: u32,
    until: Instant,
}

/// The answer of a leader.
#[derive(Clone, Default)]
pub(super) enum Answer {
    /// None: ask again, and the next task leads.
    #[default]
    None,
    Value(Value),
    /// The leader could not compute it.
    Failed,
    Error(Error),
}

/// The part of a task that wants a value.
pub(super) enum Joined {
    Leader(Leader),
    Answer(Answer),
}

/// The task that asks the server.
pub(super) struct Leader {
    computes: Arc<Computes>,
    key: Box<[u8]>,
    answer: Arc<Mutex<Answer>>,
    alive: Option<Sender<Infallible>>,
}

impl Computes {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            keys: Mutex::default(),
            permits: Permits::new(most),
        })
    }

    /// A permit to ask the server over a connection of its own.
    pub(super) async fn permit(&self) -> Permit {
        self.permits.permit().await
    }

    /// Leads, or waits for the answer of the leader.
    pub(super) async fn join(self: &Arc<Self>, key: &[u8]) -> Joined {
        let now = clock::now();
        let (answer, ended, pause) = {
            let mut keys = lock(&self.keys);
            match keys.get(key) {
                Some(entry) if !entry.ended.is_closed() || now < entry.until => {
                    let pause = entry.ended.is_closed().then(|| clock::until(entry.until));
                    (Arc::clone(&entry.answer), entry.ended.clone(), pause)
                }
                Some(_) | None => return Joined::Leader(self.lead(&mut keys, key, now)),
            }
        };
        if let Some(pause) = pause {
            Alarm::after(pause).await;
            return Joined::Answer(Answer::None);
        }
        let _ = ended.recv().await;
        Joined::Answer(lock(&answer).clone())
    }

    fn lead(
        self: &Arc<Self>,
        keys: &mut BTreeMap<Box<[u8]>, Entry>,
        key: &[u8],
        now: Instant,
    ) -> Leader {
        if keys.len() > FAILED_MAX {
            keys.retain(|_, entry| !entry.ended.is_closed() || now < entry.until);
        }
        let (alive, ended) = bounded(1);
        let answer = Arc::<Mutex<Answer>>::default();
        let failures = keys.get(key).map_or(0, |entry| entry.failures);
        let entry = Entry {
            answer: Arc::clone(&answer),
            ended,
            failures,
            until: now,
        };
        keys.insert(key.into(), entry);
        Leader {
            computes: Arc::clone(self),
            key: key.into(),
            answer,
            alive: Some(alive),
        }
    }
}

impl Leader {
    /// Ends with this answer. Without one, the next task asks the server.
    pub(super) fn end(&mut self, answer: Answer) {
        let Some(alive) = self.alive.take() else {
            return;
        };
        let has_failed = matches!(answer, Answer::Failed);
        *lock(&self.answer) = answer;
        let mut keys = lock(&self.computes.keys);
        if has_failed {
            if let Some(entry) = keys.get_mut(&self.key) {
                let factor = 1_u32.checked_shl(entry.failures).unwrap_or(u32::MAX);
                entry.failures = entry.failures.saturating_add(1);
                let pause = PAUSE.saturating_mul(factor).min(PAUSE_MAX);
                let until_ms = clock::now().as_millis() + saturating_millis(pause);
                entry.until = Instant::from_millis(until_ms);
            }
        } else {
            keys.remove(&self.key);
        }
        drop(alive);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.end(Answer::None);
    }
}

#[cfg(test)]
mod tests {
    use async_io::block_on;

    use super::*;

    fn value() -> Value {
        Value::found(b"v".to_vec(), false)
    }

    #[test]
    fn one_task_leads_and_the_others_share() {
        let computes = Computes::new(4);
        let Joined::Leader(mut leader) = block_on(computes.join(b"k")) else {
            panic!("the first one leads");
        };
        let others = [(); 3].map(|()| {
            let computes = Arc::clone(&computes);
            std::thread::spawn(move || block_on(computes.join(b"k")))
        });
        std::thread::sleep(Duration::from_millis(50));
        leader.end(Answer::Value(value()));
        for other in others {
            assert!(
                matches!(other.join().unwrap(), Joined::Answer(Answer::Value(found)) if found == value())
            );
        }
        assert!(lock(&computes.keys).is_empty());
    }

    #[test]
    fn a_failure_is_shared_and_followed_by_a_pause() {
        let computes = Computes::new(4);
        let Joined::Leader(mut leader) = block_on(computes.join(b"k")) else {
            panic!("the first one leads");
        };
        let begun = std::time::Instant::now();
        leader.end(Answer::Failed);
        assert!(matches!(
            block_on(computes.join(b"k")),
            Joined::Answer(Answer::None)
        ));
        assert!(begun.elapsed() >= PAUSE);
        assert!(matches!(block_on(computes.join(b"k")), Joined::Leader(_)));
    }

    #[test]
    fn a_leader_that_is_dropped_is_replaced() {
        let computes = Computes::new(4);
        drop(block_on(computes.join(b"k")));
        assert!(matches!(block_on(computes.join(b"k")), Joined::Leader(_)));
    }
}

//! The waits of a process: one for a key at a time, and a bounded number in all.
//!
//! - T1: One task of the process waits for a key on the server. The others wait here, in order of arrival. When the first
//!   one has the lock, the next waits on the server, behind the clients of other processes.
//! - T2: At most [`ClientOptions::waits_max`](super::ClientOptions::waits_max) tasks wait on the server, each over a
//!   connection of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_channel::{Receiver, Sender, bounded};

use super::mutex::lock;

/// Permits that are taken and given back.
#[derive(Clone)]
pub(super) struct Permits {
    take: Sender<()>,
    give_back: Receiver<()>,
}

/// The waits of one server.
pub(super) struct Turns {
    all: Permits,
    keys: Mutex<BTreeMap<Box<[u8]>, Key>>,
}

/// The turn of a key, and the number of tasks that want it.
struct Key {
    turn: Permits,
    tasks: usize,
}

/// The turn to wait for a key (T1).
pub(super) struct Turn {
    turns: Arc<Turns>,
    key: Box<[u8]>,
    permits: Permits,
    is_mine: bool,
}

/// A permit to wait over a connection (T2).
pub(super) struct Permit(Permits);

impl Permits {
    pub(super) fn new(count: usize) -> Self {
        let (take, give_back) = bounded(count.max(1));
        Self { take, give_back }
    }

    /// Waits for a permit.
    pub(super) async fn permit(&self) -> Permit {
        self.take().await;
        Permit(self.clone())
    }

    async fn take(&self) {
        // The channel is open: a receiver is beside the sender.
        let _ = self.take.send(()).await;
    }

    fn give_back(&self) {
        let _ = self.give_back.try_recv();
    }
}

impl Turns {
    pub(super) fn new(waits_max: usize) -> Arc<Self> {
        Arc::new(Self {
            all: Permits::new(waits_max),
            keys: Mutex::default(),
        })
    }

    /// Waits for the turn of a key.
    pub(super) async fn of(self: &Arc<Self>, key: &[u8]) -> Turn {
        let permits = {
            let mut keys = lock(&self.keys);
            let entry = keys.entry(key.into()).or_insert_with(|| Key {
                turn: Permits::new(1),
                tasks: 0,
            });
            entry.tasks += 1;
            entry.turn.clone()
        };
        // If this future is dropped, the task does not want the turn any more.
        let mut turn = Turn {
            turns: Arc::clone(self),
            key: key.into(),
            permits,
            is_mine: false,
        };
        turn.permits.take().await;
        turn.is_mine = true;
        turn
    }

    /// Waits for a permit.
    pub(super) async fn permit(&self) -> Permit {
        if self.all.take.is_full() {
            tracing::warn!(
                "all connections for waits are in use: raise waits_max, or wait for fewer keys"
            );
        }
        self.all.permit().await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_mine {
            self.permits.give_back();
        }
        let mut keys = lock(&self.turns.keys);
        if let Some(entry) = keys.get_mut(&self.key) {
            entry.tasks -= 1;
            if entry.tasks == 0 {
                keys.remove(&self.key);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

#[cfg(test)]
mod tests {
    use async_io::block_on;
    use futures_lite::future::poll_once;

    use super::*;

    #[test]
    fn a_key_has_one_turn_at_a_time() {
        let turns = Turns::new(8);
        let first = block_on(turns.of(b"k"));
        let mut second = Box::pin(turns.of(b"k"));
        assert!(block_on(poll_once(second.as_mut())).is_none());
        assert!(block_on(poll_once(Box::pin(turns.of(b"other")))).is_some());
        drop(first);
        assert!(block_on(poll_once(second.as_mut())).is_some());
        drop(second);
        assert!(lock(&turns.keys).is_empty());
    }

    #[test]
    fn waits_have_a_bound() {
        let turns = Turns::new(2);
        let [first, _second] = [block_on(turns.permit()), block_on(turns.permit())];
        let mut third = Box::pin(turns.permit());
        assert!(block_on(poll_once(third.as_mut())).is_none());
        drop(first);
        assert!(block_on(poll_once(third.as_mut())).is_some());
    }
}

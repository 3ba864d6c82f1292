//! The waits of a process: one for a key at a time, and a bounded number in all.
//!
//! - T1: One task of the process waits for a key on the server. The others wait here, in order of arrival. When the first
//!   one has the lock, the next waits on the server, behind the clients of other processes.
//! - T2: At most [`ClientOptions::waits_max`](super::ClientOptions::waits_max) tasks wait on the server, each over a
//!   connection of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use async_channel::{Receiver, Sender, bounded};

use super::mutex::lock;

/// The least number of keys that are kept before those that no task wants are removed.
const KEYS_MIN: usize = 64;

/// Permits that are taken and given back.
#[derive(Clone)]
pub(super) struct Permits {
    take: Sender<()>,
    give_back: Receiver<()>,
}

/// The waits of one server.
pub(super) struct Turns {
    all: Permits,
    keys: Mutex<Keys>,
}

/// The turns of the keys that tasks want.
struct Keys {
    turns: BTreeMap<Box<[u8]>, Weak<Permits>>,
    /// At this number of keys, those that no task wants any more are removed.
    most: usize,
}

/// The turn to wait for a key (T1).
pub(super) struct Turn {
    _permit: Permit,
    _of_key: Arc<Permits>,
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
        // The channel is open: a receiver is beside the sender.
        let _ = self.take.send(()).await;
        Permit(self.clone())
    }
}

impl Turns {
    pub(super) fn new(waits_max: usize) -> Self {
        let turns = BTreeMap::new();
        Self {
            all: Permits::new(waits_max),
            keys: Mutex::new(Keys { turns, most: 0 }),
        }
    }

    /// Waits for the turn of a key.
    pub(super) async fn of(&self, key: &[u8]) -> Turn {
        // Each task that wants the turn has the permits.
        let of_key = lock(&self.keys).permits(key);
        Turn {
            _permit: of_key.permit().await,
            _of_key: of_key,
        }
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

impl Keys {
    fn permits(&mut self, key: &[u8]) -> Arc<Permits> {
        if let Some(permits) = self.turns.get(key).and_then(Weak::upgrade) {
            return permits;
        }
        if self.turns.len() >= self.most {
            self.turns.retain(|_, permits| permits.strong_count() > 0);
            self.most = 2 * self.turns.len() + KEYS_MIN;
        }
        let permits = Arc::new(Permits::new(1));
        self.turns.insert(key.into(), Arc::downgrade(&permits));
        permits
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let _ = self.0.give_back.try_recv();
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
        drop(block_on(turns.of(b"k")));
        for key in 0..=2 * KEYS_MIN {
            drop(block_on(turns.of(&key.to_be_bytes())));
        }
        assert!(lock(&turns.keys).turns.len() <= KEYS_MIN);
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

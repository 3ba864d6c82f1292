//! The connections to one server: shared ones, and idle ones for the next exclusive use.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::background;
use super::connector::Connector;
use super::driver::Driver;
use super::endpoint::Endpoint;
use super::error::{Error, ErrorKind};
use super::hub::Hub;
use super::link::Link;
use super::options::ClientOptions;

/// The most idle connections kept open for the next call. With fewer than are used at a time, each
/// connection-bound lock would open and close one.
const IDLE_MAX: usize = 64;

/// The most keys of leases on a connection. Each has at most one unanswered request, and a session can have
/// four times as many.
const LOAD_MAX: usize = 1_000;

/// The number of successive obtains of a contended key that let others go first. Meeting another holder
/// restarts it.
const POLITE_OBTAINS: u32 = 10;

/// The most contended keys remembered; the one quiet for longest is forgotten.
const CONTENDED_MAX: usize = 64;

/// The connections to one server. Clones share them.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    connector: Connector,
    options: ClientOptions,
    idle: Mutex<Vec<Driver>>,
    hubs: Mutex<Vec<Hub>>,
    /// The server said that clients cannot wait there for the lock of a key.
    lacks_queue: AtomicBool,
    /// Keys leased over shared connections with a place in the server's queue.
    placed: Mutex<BTreeSet<Box<[u8]>>>,
    /// Keys wanted by others lately, each with the number of obtains that still let others go first; the
    /// latest last.
    contended: Mutex<VecDeque<(Box<[u8]>, u32)>>,
}

/// The claim on a key leased over the shared connections. A second lease of the key would ask over the same
/// connection for the lock that the first one has there.
pub(super) struct Claim {
    pool: Pool,
    key: Box<[u8]>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.pool.placed().remove(&self.key);
    }
}

impl Pool {
    /// A pool without connections.
    pub(super) fn new(connector: Connector, options: ClientOptions) -> Self {
        Self(Arc::new(Inner {
            connector,
            options,
            idle: Mutex::new(Vec::new()),
            hubs: Mutex::new(Vec::new()),
            lacks_queue: AtomicBool::new(false),
            placed: Mutex::new(BTreeSet::new()),
            contended: Mutex::new(VecDeque::new()),
        }))
    }

    /// The endpoint of the server.
    pub(super) fn connector(&self) -> &Connector {
        &self.0.connector
    }

    /// The address of the server.
    pub(super) fn endpoint(&self) -> &Endpoint {
        self.0.connector.endpoint()
    }

    /// The time limit for a reply, if a call has no other.
    pub(super) fn reply_timeout(&self) -> Duration {
        self.0.options.reply_timeout
    }

    /// An error of this server.
    pub(super) fn error(&self, kind: ErrorKind) -> Error {
        Error::at(Arc::clone(self.endpoint().name()), kind)
    }

    /// Whether this process can use the client.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`].
    pub(super) fn check_process(&self) -> Result<(), Error> {
        if background::is_forked() {
            return Err(self.error(ErrorKind::Forked));
        }
        Ok(())
    }

    /// A place on a shared connection, with this share of its load. It is on an unused one, or on a new one
    /// while there are fewer than the options allow, or on the one with the lowest load.
    pub(super) fn link(&self, load: usize) -> Link {
        // Every change of the list is complete before a panic is possible.
        let mut hubs = self.0.hubs.lock().unwrap_or_else(PoisonError::into_inner);
        let least = hubs
            .iter()
            .map(|hub| (hub.load(), hub))
            .min_by_key(|(load, _)| *load);
        let hub = match least {
            Some((0, hub)) => hub.clone(),
            Some((other, hub))
                if hubs.len() >= self.0.options.connections && other + load <= LOAD_MAX =>
            {
                hub.clone()
            }
            Some(_) | None => {
                let hub = Hub::new(self.0.connector.clone());
                hubs.push(hub.clone());
                hub
            }
        };
        Link::new(hub, load)
    }

    /// An idle open connection, or one still to be opened.
    pub(super) async fn driver(&self) -> Driver {
        self.driver_such(|driver| driver.kept_session().is_none())
            .await
    }

    /// As [`driver`](Self::driver), but one that is attached to a session if there is one.
    pub(super) async fn attached_driver(&self) -> Driver {
        self.driver_such(|driver| driver.kept_session().is_some())
            .await
    }

    async fn driver_such(&self, fits: impl Fn(&Driver) -> bool) -> Driver {
        loop {
            let found = {
                let mut idle = self.idle();
                let place = idle.iter().rposition(&fits);
                place.map(|place| idle.remove(place))
            };
            let Some(mut driver) = found else {
                return Driver::new(self.0.connector.clone(), &self.0.options);
            };
            // The server may have closed it: after a restart, or because it was idle.
            if driver.is_fit().await {
                return driver;
            }
        }
    }

    /// Whether the server may have a queue for each key.
    pub(super) fn may_queue(&self) -> bool {
        !self.0.lacks_queue.load(Ordering::Relaxed)
    }

    /// Records that the server has none.
    pub(super) fn lacks_queue(&self) {
        self.0.lacks_queue.store(true, Ordering::Relaxed);
    }

    /// Claims a key among the users of the shared connections; `None` if another has claimed it.
    pub(super) fn claim(&self, key: &[u8]) -> Option<Claim> {
        let is_new = self.placed().insert(key.into());
        is_new.then(|| Claim {
            pool: self.clone(),
            key: key.into(),
        })
    }

    /// Records that another client held the key.
    pub(super) fn was_held(&self, key: &[u8]) {
        let mut contended = self.contended();
        contended.retain(|(known, _)| **known != *key);
        if contended.len() >= CONTENDED_MAX {
            contended.pop_front();
        }
        contended.push_back((key.into(), POLITE_OBTAINS));
    }

    /// Whether an obtain of the key that starts now should let others go first.
    pub(super) fn is_polite(&self, key: &[u8]) -> bool {
        let mut contended = self.contended();
        let Some(place) = contended.iter().position(|(known, _)| **known == *key) else {
            return false;
        };
        if let Some((_, left)) = contended.get_mut(place) {
            *left -= 1;
            if *left == 0 {
                contended.remove(place);
            }
        }
        true
    }

    fn contended(&self) -> MutexGuard<'_, VecDeque<(Box<[u8]>, u32)>> {
        // Every change of the list is complete before a panic is possible.
        self.0
            .contended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn placed(&self) -> MutexGuard<'_, BTreeSet<Box<[u8]>>> {
        // Every change of the set is complete before a panic is possible.
        self.0.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection for the next call, if it is usable.
    pub(super) fn give_back(&self, driver: Driver) {
        let mut idle = self.idle();
        if driver.is_quiet() && idle.len() < IDLE_MAX {
            idle.push(driver);
        }
    }

    /// The number of connections kept for the next call.
    #[cfg(test)]
    pub(super) fn idle_connections(&self) -> usize {
        self.idle().len()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Driver>> {
        // Every change of the list is complete before a panic is possible.
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    /// A pool without a server: nothing here opens a connection.
    fn pool(connections: usize) -> Pool {
        let options = ClientOptions::new().connections(connections);
        Client::new("127.0.0.1:1", options).unwrap().pool
    }

    fn loads(pool: &Pool) -> Vec<usize> {
        pool.0.hubs.lock().unwrap().iter().map(Hub::load).collect()
    }

    #[test]
    fn the_least_loaded_connection_is_shared() {
        let pool = pool(2);
        let first = pool.link(3);
        assert_eq!(loads(&pool), [3]);
        let second = pool.link(1);
        assert_eq!(loads(&pool), [3, 1], "there may be two");
        let _third = pool.link(4);
        assert_eq!(loads(&pool), [3, 5]);
        let _fourth = pool.link(LOAD_MAX - 3);
        assert_eq!(loads(&pool), [LOAD_MAX, 5], "it is not too much");
        let _fifth = pool.link(LOAD_MAX - 4);
        let all = [LOAD_MAX, 5, LOAD_MAX - 4];
        assert_eq!(loads(&pool), all, "a third one, since it is too much");
        drop((first, second));
        assert_eq!(loads(&pool), [LOAD_MAX - 3, 4, LOAD_MAX - 4]);
    }

    #[test]
    fn unused_connection_is_used_again() {
        let pool = pool(8);
        drop(pool.link(2));
        let _link = pool.link(5);
        assert_eq!(loads(&pool), [5]);
    }

    #[test]
    fn contended_keys_let_others_first() {
        let pool = pool(1);
        let polite = |key: &[u8]| {
            let obtains = (0..2 * POLITE_OBTAINS).take_while(|_| pool.is_polite(key));
            u32::try_from(obtains.count()).unwrap()
        };
        assert_eq!(polite(b"k"), 0);
        pool.was_held(b"k");
        assert_eq!((polite(b"other"), polite(b"k")), (0, POLITE_OBTAINS));
        pool.was_held(b"k");
        assert!(pool.is_polite(b"k"));
        pool.was_held(b"k");
        assert_eq!(polite(b"k"), POLITE_OBTAINS, "another holder restarts it");

        for key in 0..=CONTENDED_MAX {
            pool.was_held(&[u8::try_from(key).unwrap()]);
        }
        assert_eq!(pool.contended().len(), CONTENDED_MAX);
        assert_eq!(polite(&[0]), 0, "it was quiet for longest");
        assert_eq!(polite(&[1]), POLITE_OBTAINS);
    }

    #[test]
    fn claimed_key_has_one_user() {
        let pool = pool(1);
        let claim = pool.claim(b"k");
        assert!(claim.is_some() && pool.claim(b"k").is_none());
        assert!(pool.claim(b"other").is_some());
        drop(claim);
        assert!(pool.claim(b"k").is_some());
    }
}

//! The connections to one server: those that many share, and those that wait for their next use by one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::background;
use super::door::Door;
use super::driver::Driver;
use super::endpoint::Endpoint;
use super::error::{Error, ErrorKind};
use super::hub::Hub;
use super::link::Link;
use super::options::ClientOptions;

/// Connections that are kept open for the next call: fewer than there are at a time would be opened and closed for each
/// lock that is bound to one.
const IDLE_MAX: usize = 64;

/// How many keys of leases share a connection at most. Each has one request unanswered at a time, and
/// a session can have four times as many.
const LOAD_MAX: usize = 1_000;

/// The connections to one server. A copy has the same ones.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    door: Door,
    options: ClientOptions,
    idle: Mutex<Vec<Driver>>,
    hubs: Mutex<Vec<Hub>>,
}

impl Pool {
    /// No connection yet.
    pub(super) fn new(door: Door, options: ClientOptions) -> Self {
        Self(Arc::new(Inner {
            door,
            options,
            idle: Mutex::new(Vec::new()),
            hubs: Mutex::new(Vec::new()),
        }))
    }

    /// The way in.
    pub(super) fn door(&self) -> &Door {
        &self.0.door
    }

    /// Where the connections lead.
    pub(super) fn endpoint(&self) -> &Endpoint {
        self.0.door.endpoint()
    }

    /// What holds of every call.
    pub(super) fn options(&self) -> &ClientOptions {
        &self.0.options
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

    /// A place on a shared connection that counts as `load` users: one that nobody uses, or a new one
    /// as long as there are fewer than the options say, or the one with the fewest users.
    pub(super) fn link(&self, load: usize) -> Link {
        // A list of connections is whole whoever panicked.
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
                let hub = Hub::new(self.0.door.clone());
                hubs.push(hub.clone());
                hub
            }
        };
        Link::new(hub, load)
    }

    /// A connection that is open and idle, or is still to be opened.
    pub(super) async fn driver(&self) -> Driver {
        loop {
            let Some(mut driver) = self.idle().pop() else {
                return Driver::new(self.0.door.clone(), &self.0.options);
            };
            // A server that has restarted, or closes idle clients, has closed it meanwhile.
            if driver.is_fit().await {
                return driver;
            }
        }
    }

    /// Keeps a connection for the next call, if it is fit for one.
    pub(super) fn give_back(&self, driver: Driver) {
        let mut idle = self.idle();
        if driver.is_quiet() && idle.len() < IDLE_MAX {
            idle.push(driver);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Driver>> {
        // A list of connections is whole whoever panicked.
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

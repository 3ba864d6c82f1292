//! The connections to one server that wait for their next use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::driver::Driver;
use super::endpoint::Endpoint;
use super::error::{Error, ErrorKind};
use super::options::ClientOptions;

/// Connections that are kept open for the next call.
const IDLE_MAX: usize = 8;

/// Idle connections to one server. A copy has the same ones.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    options: ClientOptions,
    idle: Mutex<Vec<Driver>>,
}

impl Pool {
    /// No connection yet.
    pub(super) fn new(endpoint: Endpoint, options: ClientOptions) -> Self {
        Self(Arc::new(Inner {
            endpoint,
            options,
            idle: Mutex::new(Vec::new()),
        }))
    }

    /// Where the connections lead.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// What holds of every call.
    pub(super) fn options(&self) -> &ClientOptions {
        &self.0.options
    }

    /// An error of this server.
    pub(super) fn error(&self, kind: ErrorKind) -> Error {
        Error::at(self.0.endpoint.name(), kind)
    }

    /// A connection that is open and idle, or is still to be opened.
    pub(super) async fn driver(&self) -> Driver {
        loop {
            let Some(mut driver) = self.idle().pop() else {
                let endpoint = self.0.endpoint.clone();
                return Driver::new(endpoint, self.0.options.connect_timeout);
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

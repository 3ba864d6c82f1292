//! The connections to one server that wait for their next use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::driver::{Driver, Endpoint};

/// Connections that are kept open for the next call.
const IDLE_MAX: usize = 8;

/// Idle connections to one server. A copy has the same ones.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    idle: Mutex<Vec<Driver>>,
}

impl Pool {
    /// No connection yet.
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self(Arc::new(Inner {
            endpoint,
            idle: Mutex::new(Vec::new()),
        }))
    }

    /// Where the connections lead.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// A connection that is open and idle, or is still to be opened.
    pub(super) async fn driver(&self) -> Driver {
        loop {
            let idle = self.idle().pop();
            match idle {
                // A server that has restarted, or closes idle clients, has closed it meanwhile.
                Some(mut driver) => {
                    if driver.is_fit().await {
                        return driver;
                    }
                }
                None => return Driver::new(self.0.endpoint.clone()),
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

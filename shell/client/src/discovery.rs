//! The current addresses of a cluster's servers, as `config get cluster` shows them.
//!
//! - D1: The names decide the ring and do not change. Only addresses are taken from a later answer.
//! - D2: The servers are asked when a connection is to be opened, if one has failed since the last answer or that is
//!   older than [`ASK_EVERY`], and at most once in [`PAUSE`]. One connection asks; others use the addresses that are
//!   known.
//! - D3: Without an answer, the last addresses stay.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchd_protocol::Instant;
use latchd_protocol::wire::Malformed;
use latchd_protocol::wire::cluster::{ClusterConfig, ClusterServer};

use super::client::Client;
use super::clock;
use super::error::{Error, ErrorKind};
use super::mutex::lock;
use super::options::ClientOptions;

/// The longest time for which an answer counts, if connections are opened.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// The shortest time between two questions.
const PAUSE: Duration = Duration::from_millis(500);

/// The most endpoints that are asked.
const ENDPOINTS_MAX: usize = 64;

/// The addresses of a cluster.
pub(super) struct Discovery {
    /// The clients of the configuration endpoints, in the order in which they are asked.
    endpoints: Vec<Client>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The current address of each name.
    addresses: BTreeMap<Box<str>, Arc<str>>,
    asked: Option<Instant>,
    /// A connection has failed since the last question.
    has_failed: bool,
}

/// A server of a cluster: its name leads to its address.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) discovery: Arc<Discovery>,
    pub(super) name: Box<str>,
}

impl Route {
    /// The current address; `None` if no answer has named the server.
    pub(super) async fn address(&self) -> Option<Arc<str>> {
        if self.discovery.is_due() {
            // D3
            let _ = self.discovery.ask().await;
        }
        lock(&self.discovery.state)
            .addresses
            .get(&self.name)
            .cloned()
    }

    /// A connection of the server has failed, or the server refuses to serve.
    pub(super) fn has_failed(&self) {
        lock(&self.discovery.state).has_failed = true;
    }
}

impl Discovery {
    /// The cluster behind these endpoints. Each may take an equal part of the time to connect.
    ///
    /// # Errors
    /// As [`Client::new`]; [`ErrorKind::Address`] if there is no endpoint, or too many.
    pub(super) fn new<A: AsRef<str>>(
        endpoints: impl IntoIterator<Item = A>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        let endpoints: Vec<A> = endpoints.into_iter().collect();
        if endpoints.is_empty() || endpoints.len() > ENDPOINTS_MAX {
            let why = format!("a cluster needs 1 to {ENDPOINTS_MAX} configuration endpoints");
            return Err(ErrorKind::Address(why.into()).into());
        }
        let parts = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
        let part = options.connect_timeout / parts.saturating_add(1);
        let options = options.clone().connect_timeout(part).reply_timeout(part);
        let clients = endpoints
            .iter()
            .map(|address| Client::new(address.as_ref(), options.clone()));
        Ok(Self {
            endpoints: clients.collect::<Result<_, _>>()?,
            state: Mutex::default(),
        })
    }

    /// Asks the endpoints in order, until one answers. Returns its answer: the servers and their weights.
    ///
    /// # Errors
    /// That of the last endpoint.
    pub(super) async fn ask(&self) -> Result<(ClusterConfig, Vec<u32>), Error> {
        let mut last = None;
        for endpoint in &self.endpoints {
            match endpoint.cluster_config().await {
                Ok(shown) => {
                    self.note(&shown.0);
                    return Ok(shown);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is an endpoint"))
    }

    /// Whether the caller is to ask (D2).
    fn is_due(&self) -> bool {
        let mut state = lock(&self.state);
        let age = state.asked.map_or(Duration::MAX, clock::since);
        let is_due = age >= ASK_EVERY || state.has_failed && age >= PAUSE;
        if is_due {
            (state.asked, state.has_failed) = (Some(clock::now()), false);
        }
        is_due
    }

    fn note(&self, config: &ClusterConfig) {
        let mut state = lock(&self.state);
        state.asked = Some(clock::now());
        for server in &config.servers {
            if let Ok((name, address)) = route(server) {
                state.addresses.insert(name, address);
            }
        }
    }
}

fn route(server: &ClusterServer) -> Result<(Box<str>, Arc<str>), Malformed> {
    let name = server.ring_name()?.into();
    let address = server.address()?.to_string().into();
    Ok((name, address))
}

//! Several servers, each with its part of the keys, as the ring of the core places them.
//!
//! - R1: If a server is down, calls for its keys fail. The keys are not moved: another server would have old
//!   values when the first one returns, and two clients could hold the same lock.

use std::sync::Arc;

use futures_lite::future;
use latchd_protocol::ring::Ring;

use super::cache::CacheItem;
use super::discovery::{Discovery, Route};
use super::error::{Error, ErrorKind};
use super::options::ClientOptions;
use super::server::Client;

/// Several servers, each with its part of the keys.
#[derive(Clone, Debug)]
pub struct Cluster {
    servers: Vec<Client>,
    ring: Ring,
}

impl Cluster {
    /// Servers of the same weight, with addresses as in [`Client::connect`]. The first calls open the
    /// connections.
    ///
    /// # Errors
    /// [`ErrorKind::Address`] if an address is invalid, or if there is none.
    pub fn new<A: AsRef<str>>(
        addresses: impl IntoIterator<Item = A>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        let weighted = addresses.into_iter().map(|address| (address, 1));
        Self::with_weights(weighted, options)
    }

    /// As [`new`](Self::new); a server's share of the keys is in proportion to the weight after its address.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_weights<A: AsRef<str>>(
        servers: impl IntoIterator<Item = (A, u32)>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        let (mut clients, mut names) = (Vec::new(), Vec::new());
        for (address, weight) in servers {
            let client = Client::new(address.as_ref(), options.clone())?;
            names.push((client.pool.endpoint().ring_address(), weight));
            clients.push(client);
        }
        if clients.is_empty() {
            return Err(ErrorKind::Address("a cluster needs at least one server".into()).into());
        }
        Ok(Self {
            servers: clients,
            ring: Ring::new(&names),
        })
    }

    /// The cluster that its configuration endpoints describe (ElastiCache's "auto discovery"): `config get cluster` shows
    /// its servers and their current addresses. Their names decide the ring, with the weights of latchd's `stats cluster`. The endpoints, at most 64, are asked in order
    /// until one answers.
    ///
    /// Connections follow the addresses. They are asked for again before a connection is opened, if one has failed or
    /// the server was not primary since, and otherwise at most once a minute. Servers that are added later are not
    /// used: make a new cluster.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if the last endpoint knows no cluster; [`ErrorKind::Unreachable`] if it cannot be
    /// reached; as [`new`](Self::new).
    pub async fn discover<A: AsRef<str>>(
        endpoints: impl IntoIterator<Item = A>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        let discovery = Arc::new(Discovery::new(endpoints, options)?);
        let (config, weights) = discovery.ask().await?;
        let (mut clients, mut names) = (Vec::new(), Vec::new());
        for (server, weight) in config.servers.iter().zip(weights) {
            let unfit =
                |_| ErrorKind::Address(format!("{}: not a server's name", server.name).into());
            let name = server.ring_name().map_err(unfit)?;
            let route = Route {
                discovery: Arc::clone(&discovery),
                name: name.as_str().into(),
            };
            clients.push(Client::routed(&name, Some(route), options.clone())?);
            names.push((name, weight));
        }
        Ok(Self {
            servers: clients,
            ring: Ring::new(&names),
        })
    }

    /// The client of the server of this key.
    #[must_use]
    pub fn server(&self, key: impl AsRef<[u8]>) -> &Client {
        let place = self.place(key.as_ref());
        self.servers.get(place).expect("each point is a server's")
    }

    /// The index of this key's server, in the order of the addresses.
    pub(super) fn place(&self, key: &[u8]) -> usize {
        self.ring.place(key)
    }

    /// All servers, in the order of the addresses.
    #[must_use]
    pub fn servers(&self) -> &[Client] {
        &self.servers
    }

    /// Reads many items, in the order of the keys, from all their servers at the same time.
    ///
    /// # Errors
    /// As [`Client::get_many`], of any server.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<CacheItem>>, Error> {
        let keys: Vec<K> = keys.into_iter().collect();
        let mut places = vec![Vec::new(); self.servers.len()];
        for (place, key) in keys.iter().enumerate() {
            places[self.ring.place(key.as_ref())].push(place);
        }
        // All requests are sent before the first reply is awaited.
        let mut asked = Vec::new();
        for (server, places) in self.servers.iter().zip(&places) {
            let some: Vec<&[u8]> = places.iter().map(|place| keys[*place].as_ref()).collect();
            if !some.is_empty() {
                asked.push((Box::pin(server.get_many(some)), places));
            }
        }
        let mut early = Vec::new();
        for (ask, _) in &mut asked {
            early.push(future::poll_once(ask.as_mut()).await);
        }
        let mut all = vec![None; keys.len()];
        for ((ask, places), early) in asked.into_iter().zip(early) {
            let items = match early {
                Some(items) => items?,
                None => ask.await?,
            };
            for (place, item) in places.iter().zip(items) {
                all[*place] = item;
            }
        }
        Ok(all)
    }
}

//! Several servers, with calls that return when they are done.

use async_io::block_on;

use super::Client;
use crate::{CacheItem, ClientOptions, Error};

/// Several servers, each of which has its part of the keys; see [`client::Cluster`](crate::Cluster).
#[derive(Clone, Debug)]
pub struct Cluster {
    cluster: crate::Cluster,
    /// In the order of their addresses in [`new`](Self::new).
    servers: Vec<Client>,
}

impl Cluster {
    /// See [`new`](crate::Cluster::new).
    ///
    /// # Errors
    /// As there.
    pub fn new<A: AsRef<str>>(
        addresses: impl IntoIterator<Item = A>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        crate::Cluster::new(addresses, options).map(Self::of)
    }

    /// See [`with_weights`](crate::Cluster::with_weights).
    ///
    /// # Errors
    /// As there.
    pub fn with_weights<A: AsRef<str>>(
        servers: impl IntoIterator<Item = (A, u32)>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        crate::Cluster::with_weights(servers, options).map(Self::of)
    }

    /// See [`discover`](crate::Cluster::discover).
    ///
    /// # Errors
    /// As there.
    pub fn discover<A: AsRef<str>>(
        endpoints: impl IntoIterator<Item = A>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        block_on(crate::Cluster::discover(endpoints, options)).map(Self::of)
    }

    fn of(cluster: crate::Cluster) -> Self {
        let servers = cluster.servers().iter().cloned().map(Client).collect();
        Self { cluster, servers }
    }

    /// See [`server`](crate::Cluster::server).
    #[must_use]
    pub fn server(&self, key: impl AsRef<[u8]>) -> &Client {
        let place = self.cluster.place(key.as_ref());
        self.servers.get(place).expect("each point is a server's")
    }

    /// See [`servers`](crate::Cluster::servers).
    #[must_use]
    pub fn servers(&self) -> &[Client] {
        &self.servers
    }

    /// See [`get_many`](crate::Cluster::get_many).
    ///
    /// # Errors
    /// As there.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<CacheItem>>, Error> {
        block_on(self.cluster.get_many(keys))
    }
}

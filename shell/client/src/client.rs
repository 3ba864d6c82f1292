//! The client of one server, or of several.

use std::fmt;
use std::sync::Arc;

use futures_lite::future;
use latchd_client_core::{LockState, TermsError, wire_key};
use latchd_protocol::ring::Ring;

use super::compute::{self, Value};
use super::connector::Connector;
use super::detached::Detached;
use super::discovery::{Discovery, Route};
use super::endpoint::Endpoint;
use super::error::{ComputeError, Error, ErrorKind};
use super::event_loop;
use super::lock::Lock;
use super::obtain::{in_order, obtain};
use super::options::{ClientOptions, ComputeOptions, LockOptions};
use super::pool::Pool;

/// The client of one server, or of several that have a part of the keys each. Cloning it is cheap, and clones share their
/// connections.
///
/// If a server of several is down, calls for its keys fail. The keys are not moved: another server would have old values
/// when the first one returns, and two clients could hold the same lock.
#[derive(Clone)]
pub struct Client {
    servers: Arc<[Pool]>,
    /// The places of the keys on several servers.
    ring: Option<Arc<Ring>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(Pool::endpoint).collect();
        formatter
            .debug_struct("Client")
            .field("servers", &servers)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the server at `address`: `HOST`, `HOST:PORT`, `[V6]:PORT`, or the path of a Unix socket,
    /// which begins with `/` or `.`. The default port is 11211.
    ///
    /// # Errors
    /// [`ErrorKind::Address`] if the address is invalid; [`ErrorKind::Unreachable`] if no server can be
    /// reached there.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        let client = Self::new(address, ClientOptions::new())?;
        client.first().share(0).ask(&[], |_, _| {}).await?;
        Ok(client)
    }

    /// As [`connect`](Self::connect), but the first connection is opened by the first call.
    ///
    /// # Errors
    /// [`ErrorKind::Address`] if the address is invalid; [`ErrorKind::Tls`] if TLS cannot be set up with
    /// these options; [`ErrorKind::Unreachable`] if no file descriptor is left for an event loop.
    pub fn new(address: &str, options: ClientOptions) -> Result<Self, Error> {
        Ok(Self::of(pool(address, None, options)?))
    }

    /// A client of several servers, as libmemcached places their keys with weighted ketama. A server's share of the keys is
    /// in proportion to the weight after its address. The first calls open the connections.
    ///
    /// # Errors
    /// [`ErrorKind::Address`] if an address is invalid, or if there is none; as [`new`](Self::new).
    pub fn ring<A: AsRef<str>>(
        servers: impl IntoIterator<Item = (A, u32)>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        let (mut pools, mut names) = (Vec::new(), Vec::new());
        for (address, weight) in servers {
            let pool = pool(address.as_ref(), None, options.clone())?;
            names.push((pool.endpoint().ring_address(), weight));
            pools.push(pool);
        }
        if pools.is_empty() {
            return Err(ErrorKind::Address("a ring needs at least one server".into()).into());
        }
        Ok(Self::on_ring(pools, &names))
    }

    /// A client of the cluster that these configuration endpoints describe, at most 64, asked in order until one answers
    /// (`config get cluster`, ElastiCache's "auto discovery"). The names of the servers decide the ring, with the weights
    /// of latchd's `stats cluster`.
    ///
    /// Connections follow the servers' addresses. They are asked for again before a connection is opened, if one has
    /// failed or the server was not primary since, and otherwise at most once a minute. Servers that are added later are
    /// not used: make a new client.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if the last endpoint knows no cluster; [`ErrorKind::Unreachable`] if it cannot be
    /// reached; as [`ring`](Self::ring).
    pub async fn discover<A: AsRef<str>>(
        endpoints: impl IntoIterator<Item = A>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        let discovery = Arc::new(Discovery::new(endpoints, options)?);
        let (config, weights) = discovery.ask().await?;
        let (mut pools, mut names) = (Vec::new(), Vec::new());
        for (server, weight) in config.servers.iter().zip(weights) {
            let unfit =
                |_| ErrorKind::Address(format!("{}: not a server's name", server.name).into());
            let name = server.ring_name().map_err(unfit)?;
            let route = Route {
                discovery: Arc::clone(&discovery),
                name: name.as_str().into(),
            };
            pools.push(pool(&name, Some(route), options.clone())?);
            names.push((name, weight));
        }
        Ok(Self::on_ring(pools, &names))
    }

    /// The client of one server.
    pub(super) fn of(pool: Pool) -> Self {
        Self {
            servers: Arc::from([pool]),
            ring: None,
        }
    }

    fn on_ring(pools: Vec<Pool>, names: &[(String, u32)]) -> Self {
        Self {
            servers: pools.into(),
            ring: Some(Arc::new(Ring::new(names))),
        }
    }

    /// Clients of the single servers, in the order of their addresses.
    pub fn servers(&self) -> impl Iterator<Item = Self> {
        self.servers.iter().cloned().map(Self::of)
    }

    /// The client of the server of this key.
    #[must_use]
    pub fn server(&self, key: impl AsRef<[u8]>) -> Self {
        Self::of(self.pool(key.as_ref()).clone())
    }

    /// The server's address, as errors show it: `HOST:PORT`, or a path. Of several servers, the first.
    #[must_use]
    pub fn address(&self) -> &str {
        self.first().endpoint().name()
    }

    pub(super) fn first(&self) -> &Pool {
        self.servers.first().expect("there is a server")
    }

    pub(super) fn pools(&self) -> &[Pool] {
        &self.servers
    }

    /// The index of a key's server.
    pub(super) fn place(&self, key: &[u8]) -> usize {
        self.ring.as_ref().map_or(0, |ring| ring.place(key))
    }

    /// The server of a key.
    pub(super) fn pool(&self, key: &[u8]) -> &Pool {
        self.servers
            .get(self.place(key))
            .expect("each point is a server's")
    }

    /// Locks a key. While another client holds it, the call waits: on latchd in the server's queue, first come, first
    /// served, and elsewhere it asks again. It waits until the options' deadline, or for ever.
    ///
    /// If the future is dropped before it ends, everything that it may have obtained is released, and it leaves the queue.
    ///
    /// # Errors
    /// [`ErrorKind::NotObtained`] after the deadline, or if the key has an item that is no lock;
    /// [`ErrorKind::Unreachable`] if the server cannot be reached at the first try; [`ErrorKind::Unsupported`] or
    /// [`ErrorKind::Terms`] if it cannot fulfil the options.
    pub async fn lock(&self, key: impl AsRef<[u8]>, options: &LockOptions) -> Result<Lock, Error> {
        let keys = in_order([key])?;
        obtain(self.pool_of(&keys)?, keys, options, true).await
    }

    /// Locks a key if no other client holds it.
    ///
    /// # Errors
    /// [`ErrorKind::NotObtained`] if another client holds it: [`Error::holder`] shows it. Otherwise as
    /// [`lock`](Self::lock).
    pub async fn try_lock(
        &self,
        key: impl AsRef<[u8]>,
        options: &LockOptions,
    ) -> Result<Lock, Error> {
        let keys = in_order([key])?;
        obtain(self.pool_of(&keys)?, keys, options, false).await
    }

    /// Locks several keys of one server as one lock, all or none. While the call waits for one key, it holds none.
    ///
    /// # Errors
    /// As [`lock`](Self::lock); [`ErrorKind::Terms`] also if there are no keys, one twice, or keys of several servers.
    pub async fn lock_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &LockOptions,
    ) -> Result<Lock, Error> {
        let keys = in_order(keys)?;
        obtain(self.pool_of(&keys)?, keys, options, true).await
    }

    /// As [`lock_many`](Self::lock_many), but does not wait.
    ///
    /// # Errors
    /// As there, and as [`try_lock`](Self::try_lock).
    pub async fn try_lock_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &LockOptions,
    ) -> Result<Lock, Error> {
        let keys = in_order(keys)?;
        obtain(self.pool_of(&keys)?, keys, options, false).await
    }

    /// Goes on with a lock that was [left behind](Lock::detach).
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it has ended; otherwise as [`lock`](Self::lock).
    pub async fn attach(&self, detached: &Detached) -> Result<Lock, Error> {
        let keys = in_order(detached.keys())?;
        detached.attach(self.pool_of(&keys)?).await
    }

    /// The holder of a key; `None` if no client holds it. On memcached the token, the metadata and the time of an item that
    /// is a lock.
    ///
    /// # Errors
    /// The server's refusal, or the reason why it cannot be reached.
    pub async fn lock_state(&self, key: impl AsRef<[u8]>) -> Result<Option<LockState>, Error> {
        let key = key.as_ref();
        wire_key(key)?;
        super::lock_state::of(self.pool(key), key).await
    }

    /// The only server of these keys.
    fn pool_of(&self, keys: &[Box<[u8]>]) -> Result<&Pool, Error> {
        let mut places = keys.iter().map(|key| self.place(key));
        let place = places.next().unwrap_or_default();
        if places.any(|other| other != place) {
            return Err(TermsError::Servers.into());
        }
        Ok(self.servers.get(place).expect("each point is a server's"))
    }

    /// Reads a value, or computes and stores it, in one client at a time. Tasks of this client that want the same key ask
    /// once, and share the answer.
    ///
    /// `make` is given the old value if there is one. If it fails, or the future is dropped while it runs, the next reader
    /// computes. A value that the server does not store, because it is too large or the key is locked, is returned all the
    /// same: see [`Value::stored`].
    ///
    /// # Errors
    /// [`ComputeError::Compute`] if `make` failed, and [`ComputeError::Elsewhere`] if that of another task did;
    /// [`ErrorKind::TimedOut`] if another client took too long to compute; [`ErrorKind::Terms`] if the options contradict
    /// each other.
    pub async fn compute<E>(
        &self,
        key: impl AsRef<[u8]>,
        options: &ComputeOptions,
        make: impl AsyncFnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, E>,
    ) -> Result<Value, ComputeError<E>> {
        let key = wire_key(key.as_ref()).map_err(Error::from)?;
        let pool = self.pool(key.as_bytes());
        let terms = options
            .terms(pool.options.reply_timeout)
            .map_err(Error::from)?;
        compute::compute(pool, key, terms, make).await
    }
}

/// The connections to the server with this address, or with this name in a cluster.
fn pool(address: &str, route: Option<Route>, options: ClientOptions) -> Result<Pool, Error> {
    event_loop::check().map_err(ErrorKind::Unreachable)?;
    let endpoint = Endpoint::parse(address)
        .map_err(|problem| ErrorKind::Address(format!("{address}: {problem}").into()))?;
    let name = Arc::clone(endpoint.name());
    let connector = Connector::new(endpoint, route, &options)
        .map_err(|problem| Error::at(name, ErrorKind::Tls(problem.into())))?;
    Ok(Pool::new(connector, options))
}

/// The results of futures that all begin before the first is awaited.
pub(super) async fn all_at_once<T>(work: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut begun = Vec::new();
    for one in work {
        let mut one = Box::pin(one);
        let early = future::poll_once(one.as_mut()).await;
        begun.push((one, early));
    }
    let mut results = Vec::new();
    for (one, early) in begun {
        results.push(match early {
            Some(result) => result,
            None => one.await,
        });
    }
    results
}

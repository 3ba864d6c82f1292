//! Plain cache calls: read, store, count, remove. They use the connections that leases share, so concurrent
//! requests are sent together.
//!
//! - P1: A call is one request to the server. It is not repeated once it may have been sent, since the server
//!   may have executed it.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Meta Commands"; `flush_all` and `stats` are classic.

mod options;
pub(super) mod words;

use bytes::Bytes;
use latchd_client_core::{AnyRequest, AnyResponse, Loss, wire_key};
use latchd_protocol::fence::Fence;
use latchd_protocol::stats::StatsTopic;
use latchd_protocol::time::Exptime;
use latchd_protocol::wire::classic::reply::ClassicResponse;
use latchd_protocol::wire::cluster::ClusterConfig;
use latchd_protocol::wire::meta::{Flag, Verb};

use self::words::{item, number, outcome, read, refusal};
use super::client::{Client, all_at_once};
use super::error::{Error, ErrorKind};
use super::fenced;
use super::pool::Pool;

pub use self::options::{GetOptions, StoreMode, StoreOptions};

/// The most keys requested over one connection at a time.
const KEYS_AT_A_TIME: usize = 500;

/// An item that was read.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CacheItem {
    /// Its value.
    pub value: Bytes,
    /// The client flags stored with it.
    pub client_flags: u32,
    /// Its version, for [`StoreOptions::cas`].
    pub cas: u64,
    /// Its remaining ttl, in seconds; `None` if it never expires.
    pub ttl_s: Option<u64>,
    /// Whether it is marked stale.
    pub stale: bool,
    /// Whether this reader won it, and computes the new value.
    pub won: bool,
}

/// The result of a store, a count or a removal.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// The change is done.
    Done,
    /// An add found an item, or another mode found none.
    NotStored,
    /// There is no such item.
    NotFound,
    /// The item has another version than the compared one.
    Exists,
    /// A connection holds the item's lock.
    Locked,
}

impl Outcome {
    /// The result of a change under a grant.
    pub(super) fn done(self, pool: &Pool) -> Result<(), Error> {
        match self {
            Self::Done => Ok(()),
            Self::NotStored | Self::NotFound | Self::Exists | Self::Locked => {
                Err(pool.error(ErrorKind::NotHeld(Some(Loss::Taken))))
            }
        }
    }
}

/// Plain cache calls; of several servers, to that of the key. Each may fail as [`ErrorKind::Terms`] for its key, [`ErrorKind::Unreachable`] or
/// [`ErrorKind::Refused`].
impl Client {
    /// Reads an item; `None` if there is none.
    ///
    /// # Errors
    /// As above.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<CacheItem>, Error> {
        self.get_with(key, &GetOptions::new()).await
    }

    /// Reads an item with options; `None` if there is none.
    ///
    /// # Errors
    /// As above.
    pub async fn get_with(
        &self,
        key: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<Option<CacheItem>, Error> {
        let key = wire_key(key.as_ref())?;
        ask_one(self.pool(key.as_bytes()), &read(key, options), item).await
    }

    /// Reads many items at a time, in the order of the keys; `None` for each missing one.
    ///
    /// # Errors
    /// As above, of the first refused key.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<CacheItem>>, Error> {
        let keys: Vec<K> = keys.into_iter().collect();
        let mut places = vec![Vec::new(); self.pools().len()];
        for (place, key) in keys.iter().enumerate() {
            if let Some(places) = places.get_mut(self.place(key.as_ref())) {
                places.push(place);
            }
        }
        let servers = self
            .pools()
            .iter()
            .zip(&places)
            .filter(|(_, places)| !places.is_empty());
        let work = servers.map(async |(pool, places)| {
            let some: Vec<&[u8]> = places.iter().map(|place| keys[*place].as_ref()).collect();
            (get_many(pool, &some).await, places)
        });
        let mut all = vec![None; keys.len()];
        for (items, places) in all_at_once(work.collect()).await {
            for (place, item) in places.iter().zip(items?) {
                all[*place] = item;
            }
        }
        Ok(all)
    }

    /// Stores a value over any other.
    ///
    /// # Errors
    /// As above.
    pub async fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        exptime: Exptime,
    ) -> Result<Outcome, Error> {
        self.store(key, value, &StoreOptions::new().exptime(exptime))
            .await
    }

    /// Stores a value with options.
    ///
    /// # Errors
    /// As above.
    pub async fn store(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &StoreOptions,
    ) -> Result<Outcome, Error> {
        self.store_in(None, key.as_ref(), value.as_ref(), options)
            .await
    }

    /// As [`store`](Self::store); with a grant, only while that grant is in force.
    pub(super) async fn store_in(
        &self,
        grant: Option<Fence>,
        key: &[u8],
        value: &[u8],
        options: &StoreOptions,
    ) -> Result<Outcome, Error> {
        let mode = options.mode as u8;
        let mut flags = vec![Flag::Mode(mode), Flag::ClientFlags(options.client_flags)];
        if options.exptime != Exptime::Never {
            flags.push(Flag::Touch(options.exptime));
        }
        flags.extend(options.cas.map(Flag::Cas));
        flags.extend(options.invalidate.then_some(Flag::Invalidate));
        self.change(grant, Verb::Set, key, flags, value, outcome)
            .await
    }

    /// Stores a value and releases the lock of this grant, in one step.
    pub(super) async fn set_and_unlock(
        &self,
        grant: Fence,
        key: &[u8],
        value: &[u8],
        exptime: Exptime,
    ) -> Result<(), Error> {
        let flags = vec![Flag::Touch(exptime), Flag::Unlock];
        let stored = self.change(Some(grant), Verb::Set, key, flags, value, outcome);
        stored.await?.done(self.pool(key))
    }

    /// Removes an item.
    ///
    /// # Errors
    /// As above.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<Outcome, Error> {
        self.delete_in(None, key.as_ref()).await
    }

    /// As [`delete`](Self::delete); with a grant, only while that grant is in force.
    pub(super) async fn delete_in(
        &self,
        grant: Option<Fence>,
        key: &[u8],
    ) -> Result<Outcome, Error> {
        self.change(grant, Verb::Delete, key, Vec::new(), &[], outcome)
            .await
    }

    /// Changes an item's exptime.
    ///
    /// # Errors
    /// As above.
    pub async fn touch(&self, key: impl AsRef<[u8]>, exptime: Exptime) -> Result<Outcome, Error> {
        let flags = vec![Flag::Touch(exptime)];
        self.change(None, Verb::Get, key.as_ref(), flags, &[], outcome)
            .await
    }

    /// Adds to the decimal number in an item, and returns the sum, which wraps around at 64 bits; `None` if
    /// there is no item.
    ///
    /// # Errors
    /// As above; [`ErrorKind::Refused`] also if it holds no number, or if another client has locked it.
    pub async fn incr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.count(None, key.as_ref(), b'I', delta).await
    }

    /// As [`incr`](Self::incr), but subtracts, down to 0.
    ///
    /// # Errors
    /// As [`incr`](Self::incr).
    pub async fn decr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.count(None, key.as_ref(), b'D', delta).await
    }

    /// Removes all items that are not locked, on all servers.
    ///
    /// # Errors
    /// As above.
    pub async fn flush_all(&self) -> Result<(), Error> {
        let is_done = |answer: &AnyResponse<'_>| match answer.classic() {
            Some(ClassicResponse::Ok) => Ok(()),
            Some(_) | None => Err(refusal(answer)),
        };
        self.ask_each(&AnyRequest::FlushAll, is_done).await
    }

    /// Asks each server for a sign of life.
    ///
    /// # Errors
    /// As above; [`Error::is_not_primary`] if the server serves nothing at present.
    pub async fn ping(&self) -> Result<(), Error> {
        let is_alive = |answer: &AnyResponse<'_>| match answer.code() {
            Some(_) => Ok(()),
            None => Err(refusal(answer)),
        };
        self.ask_each(&AnyRequest::Noop, is_alive).await
    }

    /// The servers of the cluster, as this server knows them, and their weights. A latchd shows the names of the ring with
    /// their ports in `stats cluster`, since ElastiCache's form has no place for them.
    pub(super) async fn cluster_config(&self) -> Result<(ClusterConfig, Vec<u32>), Error> {
        let stats = AnyRequest::Stats(StatsTopic::Cluster);
        let (mut config, mut ring) = (None, Vec::new());
        let pool = self.first();
        ask(pool, &[AnyRequest::Cluster, stats], |place, answer| {
            match answer.classic() {
                Some(ClassicResponse::Cluster(text)) => {
                    config = Some(ClusterConfig::decode(text).map_err(|_| malformed())?);
                }
                Some(ClassicResponse::Stat { name, value }) => {
                    ring.extend(ring_server(name, value));
                }
                Some(ClassicResponse::End) => {}
                Some(_) | None if place == 0 => return Err(refusal(answer)),
                // Other servers do not have these statistics.
                Some(_) | None => {}
            }
            Ok(())
        })
        .await?;
        let config = config.ok_or_else(|| ErrorKind::Refused("END".into()));
        let named = config.and_then(|config| with_ring(config, ring));
        named.map_err(|kind| pool.error(kind))
    }

    /// The server's statistics: names and values, as it prints them. Of several servers, ask each of
    /// [`servers`](Self::servers); this is the first.
    ///
    /// # Errors
    /// As above.
    pub async fn stats(&self) -> Result<Vec<(String, String)>, Error> {
        let stats = AnyRequest::Stats(StatsTopic::General);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut all = Vec::new();
        ask(self.first(), &[stats], |_, answer| match answer.classic() {
            Some(ClassicResponse::Stat { name, value }) => {
                all.push((text(name), text(value)));
                Ok(())
            }
            Some(ClassicResponse::End) => Ok(()),
            Some(_) | None => Err(refusal(answer)),
        })
        .await?;
        Ok(all)
    }

    /// Counts in this mode of `ma`; with a grant, only while that grant is in force.
    pub(super) async fn count(
        &self,
        grant: Option<Fence>,
        key: &[u8],
        mode: u8,
        delta: u64,
    ) -> Result<Option<u64>, Error> {
        let flags = vec![Flag::Mode(mode), Flag::Delta(delta), Flag::Value];
        self.change(grant, Verb::Arithmetic, key, flags, &[], number)
            .await
    }

    /// Changes an item; with a grant, only while that grant is in force.
    async fn change<T>(
        &self,
        grant: Option<Fence>,
        verb: Verb,
        key: &[u8],
        mut flags: Vec<Flag<'_>>,
        value: &[u8],
        read: impl Fn(&AnyResponse<'_>) -> Result<T, ErrorKind>,
    ) -> Result<T, Error> {
        flags.extend(grant.map(Flag::InGrant));
        let request = AnyRequest::meta(verb, wire_key(key)?, flags, value);
        let read = |answer: &AnyResponse<'_>| match grant {
            Some(_) => fenced::checked(answer).and_then(|()| read(answer)),
            None => read(answer),
        };
        ask_one(self.pool(key), &request, read).await
    }

    /// Asks all servers at once.
    async fn ask_each(
        &self,
        request: &AnyRequest<'_>,
        read: impl Fn(&AnyResponse<'_>) -> Result<(), ErrorKind>,
    ) -> Result<(), Error> {
        let work = self
            .pools()
            .iter()
            .map(|pool| ask_one(pool, request, &read));
        all_at_once(work.collect()).await.into_iter().collect()
    }
}

/// Reads many items at a time from one server.
async fn get_many(pool: &Pool, keys: &[&[u8]]) -> Result<Vec<Option<CacheItem>>, Error> {
    let mut all = Vec::with_capacity(keys.len());
    for some in keys.chunks(KEYS_AT_A_TIME) {
        let requests = some
            .iter()
            .map(|key| Ok(read(wire_key(key)?, &GetOptions::new())))
            .collect::<Result<Vec<_>, Error>>()?;
        ask(pool, &requests, |_, answer| {
            all.push(item(answer)?);
            Ok(())
        })
        .await?;
    }
    Ok(all)
}

/// Sends one request that has one reply.
async fn ask_one<T>(
    pool: &Pool,
    request: &AnyRequest<'_>,
    read: impl Fn(&AnyResponse<'_>) -> Result<T, ErrorKind>,
) -> Result<T, Error> {
    let mut answered = None;
    let requests = std::slice::from_ref(request);
    let each = |_: usize, answer: &AnyResponse<'_>| {
        answered = Some(read(answer)?);
        Ok(())
    };
    ask(pool, requests, each).await?;
    Ok(answered.expect("each answered request was shown"))
}

/// Sends requests. The first error of `each` is that of the call.
pub(super) async fn ask(
    pool: &Pool,
    requests: &[AnyRequest<'_>],
    mut each: impl FnMut(usize, &AnyResponse<'_>) -> Result<(), ErrorKind>,
) -> Result<(), Error> {
    let mut error = Ok(());
    let note = |place: usize, answer: &AnyResponse<'_>| {
        let read = each(place, answer);
        if error.is_ok() {
            error = read;
        }
    };
    pool.share(requests.len()).ask(requests, note).await?;
    error.map_err(|kind| pool.error(kind))
}

/// The name and weight of a server, if this line of `stats cluster` has them.
fn ring_server(name: &[u8], weight: &[u8]) -> Option<(String, u32)> {
    let name = str::from_utf8(name.strip_prefix(b"ring:")?).ok()?;
    let weight = str::from_utf8(weight).ok()?.parse().ok()?;
    Some((name.to_owned(), weight))
}

/// The servers under their names in the ring, and their weights. Without a ring, the weights are 1.
fn with_ring(
    mut config: ClusterConfig,
    ring: Vec<(String, u32)>,
) -> Result<(ClusterConfig, Vec<u32>), ErrorKind> {
    let count = config.servers.len();
    if ring.is_empty() {
        return Ok((config, vec![1; count]));
    }
    if ring.len() != count {
        return Err(malformed());
    }
    let mut weights = Vec::new();
    for (server, (name, weight)) in config.servers.iter_mut().zip(ring) {
        server.name = name;
        weights.push(weight);
    }
    Ok((config, weights))
}

fn malformed() -> ErrorKind {
    ErrorKind::Refused("the list of servers is malformed".into())
}

//! Several servers, each with its part of the keys: ketama, as libmemcached places keys.
//!
//! Each server has points on a ring of 32 bits, in proportion to its weight. A key belongs to the server of
//! the first point at or after its own. Adding or removing a server moves only the keys of its points. All
//! clients with the same servers and weights agree, in any language.
//!
//! - R1: If a server is down, calls for its keys fail. The keys are not moved: another server would have old
//!   values when the first one returns, and two clients could hold the same lock.
//!
//! Source: libmemcached 1.1.4 `src/libmemcached/hosts.cc`, `update_continuum`, with
//! `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`; `hash.cc`, `dispatch_host`.

use futures_lite::future;

use super::cache::CacheItem;
use super::error::{Error, ErrorKind};
use super::options::ClientOptions;
use super::server::Client;

/// Points of a server of average weight.
const POINTS: f32 = 160.0;

/// Points that one digest gives.
const POINTS_PER_DIGEST: u32 = 4;

/// Several servers, each with its part of the keys.
#[derive(Clone, Debug)]
pub struct Cluster {
    servers: Vec<Client>,
    ring: Ring,
}

/// The points of all servers.
#[derive(Clone, Debug)]
struct Ring {
    /// Sorted; each point with the index of its server.
    points: Vec<(u32, usize)>,
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
            names.push((client.pool.endpoint().ketama_name(), weight));
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

impl Ring {
    fn new(servers: &[(String, u32)]) -> Self {
        let total: u32 = servers.iter().map(|(_, weight)| weight).sum();
        let mut points = Vec::new();
        for (place, (name, weight)) in servers.iter().enumerate() {
            for index in 0..digests(*weight, total, servers.len()) {
                let digest = md5::compute(format!("{name}-{index}"));
                let of_digest = digest.chunks_exact(4).map(|bytes| (number(bytes), place));
                points.extend(of_digest);
            }
        }
        points.sort_by_key(|(point, _)| *point);
        Self { points }
    }

    /// The server of a key.
    fn place(&self, key: &[u8]) -> usize {
        let own = number(&*md5::compute(key));
        let behind = self.points.partition_point(|(point, _)| *point < own);
        let point = self.points.get(behind).or_else(|| self.points.first());
        point.map_or(0, |(_, place)| *place)
    }
}

/// The number of digests for the points of a server. Computed in floats as in the source, so that rounding
/// agrees.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as the source does; a weight that is not exact in a float is rounded there as well"
)]
fn digests(weight: u32, total: u32, servers: usize) -> u32 {
    let part = weight as f32 / total as f32;
    let points = part * POINTS / POINTS_PER_DIGEST as f32 * servers as f32;
    (f64::from(points) + 0.000_000_000_1).floor() as u32
}

/// The first four bytes, little-endian.
fn number(bytes: &[u8]) -> u32 {
    let first = bytes.first_chunk().copied().unwrap_or_default();
    u32::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of libmemcached 1.1.4, `memcached_generate_hash`: for 40 keys `key:0`, `key:7919`, … one by
    /// one, and for 100,000 keys `k0`, `k1`, … as a sum.
    fn check(servers: &[(&str, u32)], forty: &str, sum: usize) {
        let named: Vec<_> = servers
            .iter()
            .map(|(name, weight)| ((*name).to_owned(), *weight))
            .collect();
        let ring = Ring::new(&named);
        let places: String = (0..40)
            .map(|key| ring.place(format!("key:{}", key * 7919).as_bytes()))
            .map(|place| char::from_digit(u32::try_from(place).unwrap(), 10).unwrap())
            .collect();
        assert_eq!(places, forty);
        let all = (0..100_000).map(|key| ring.place(format!("k{key}").as_bytes()));
        assert_eq!(
            all.fold(0, |sum, place| (sum * 31 + place) % 1_000_000_007),
            sum
        );
    }

    #[test]
    fn keys_are_where_libmemcached_has_them() {
        check(
            &[("10.0.0.1", 1), ("10.0.0.2", 1), ("10.0.0.3", 1)],
            "1020001212110121212202221000101210200101",
            251_407_278,
        );
        let names = ["cache-a:11311", "cache-b:11312", "cache-c", "cache-d:11314"];
        check(
            &names.map(|name| (name, 1)),
            "0023110220011122121100001213200100311203",
            210_154_205,
        );
        let weights = [1, 3, 2, 1];
        let weighted: Vec<_> = names.into_iter().zip(weights).collect();
        check(
            &weighted,
            "0023110221111111121101111210200101311231",
            155_044_606,
        );
    }

    #[test]
    fn a_new_server_moves_only_its_keys() {
        let names: Vec<_> = (0..5).map(|place| (format!("cache-{place}"), 1)).collect();
        let (four, five) = (Ring::new(&names[..4]), Ring::new(&names));
        let mut moved = 0;
        for key in 0..10_000 {
            let key = format!("k{key}");
            let (before, after) = (four.place(key.as_bytes()), five.place(key.as_bytes()));
            assert!(after == before || after == 4);
            moved += usize::from(after != before);
        }
        assert!((1_500..2_500).contains(&moved), "{moved}");
    }
}

//! Several servers, each with its part of the keys: ketama, as libmemcached places keys.
//!
//! Each server has points on a ring of 32 bits, in proportion to its weight. A key belongs to the server of
//! the first point at or after its own. Adding or removing a server moves only the keys of its points. All
//! clients with the same servers and weights agree, in any language.
//!
//! Source: libmemcached 1.1.4 `src/libmemcached/hosts.cc`, `update_continuum`, with
//! `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`; `hash.cc`, `dispatch_host`.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::address::DEFAULT_PORT;

/// Points of a server of average weight.
const POINTS: f32 = 160.0;

/// Points that one digest gives.
const POINTS_PER_DIGEST: u32 = 4;

/// The points of all servers.
///
/// ```
/// use latchd_protocol::ring::Ring;
///
/// let ring = Ring::new(&[("cache-a:11211", 1), ("cache-b:11211", 1)]);
/// assert_eq!(ring.place(b"user:8"), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Ring {
    /// Sorted; each point with the index of its server.
    points: Vec<(u32, usize)>,
}

impl Ring {
    /// The ring of these servers, each with its address and its weight.
    #[must_use]
    pub fn new(servers: &[(impl AsRef<str>, u32)]) -> Self {
        let total: u32 = servers
            .iter()
            .fold(0, |total, (_, weight)| total.saturating_add(*weight));
        let mut points = Vec::new();
        for (place, (name, weight)) in servers.iter().enumerate() {
            let name = point_name(name.as_ref());
            for index in 0..digests(*weight, total, servers.len()) {
                let digest = md5::compute(format!("{name}-{index}"));
                let of_digest = digest.chunks_exact(4).map(|bytes| (number(bytes), place));
                points.extend(of_digest);
            }
        }
        points.sort_by_key(|(point, _)| *point);
        Self { points }
    }

    /// The index of the server of a key, in the order given; 0 if no server has a weight.
    #[must_use]
    pub fn place(&self, key: &[u8]) -> usize {
        let own = number(&*md5::compute(key));
        let behind = self.points.partition_point(|(point, _)| *point < own);
        let point = self.points.get(behind).or_else(|| self.points.first());
        point.map_or(0, |(_, place)| *place)
    }
}

/// The name of a server in its points: the default port is left out, and so are the brackets of an IPv6 address.
fn point_name(address: &str) -> String {
    let Some((host, port)) = address.rsplit_once(':') else {
        return address.to_owned();
    };
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = bracketed.unwrap_or(host);
    if port.parse() == Ok(DEFAULT_PORT) {
        host.to_owned()
    } else {
        format!("{host}:{port}")
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
    // The conversion cuts the fraction off.
    (f64::from(points) + 0.000_000_000_1) as u32
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
        let ring = Ring::new(servers);
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
    fn the_default_port_is_no_part_of_a_name() {
        let names = ["10.0.0.1:11211", "[::1]:11211", "[::1]:11311", "/run/s:0"].map(point_name);
        assert_eq!(names, ["10.0.0.1", "::1", "::1:11311", "/run/s:0"]);
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

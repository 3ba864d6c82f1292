//! A partition on the command line: `HOST:PORT`, or `HOST:PORT=WEIGHT`.

use std::net::{IpAddr, Ipv6Addr};

use latchd_cluster::election::{ADDRESS_BYTES_MAX, Partition, WEIGHT_MAX};
use latchd_protocol::address::HostPort;

/// Reads a partition. Clients write its name, so it has one form: no blanks, and no zeros before the port.
///
/// # Errors
/// A message for the user.
pub(super) fn parse(text: &str) -> Result<Partition, String> {
    let (name, weight) = match text.split_once('=') {
        None => (text, 1),
        Some((name, digits)) => {
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            let weight = digits
                .parse()
                .ok()
                .filter(|weight| is_plain && (1..=WEIGHT_MAX).contains(weight));
            (
                name,
                weight.ok_or_else(|| format!("the weight is not 1 to {WEIGHT_MAX}"))?,
            )
        }
    };
    let expected =
        "expected HOST:PORT as clients write it, such as cache-a:11211 or cache-a:11211=2";
    let address = HostPort::parse(name, 0).map_err(|_| expected)?;
    if address.port == 0 || address.to_string() != name || !is_host(&address.host) {
        return Err(expected.into());
    }
    if name.len() > ADDRESS_BYTES_MAX {
        return Err(format!("the name has more than {ADDRESS_BYTES_MAX} bytes"));
    }
    let ip: Option<IpAddr> = address.host.parse().ok();
    if ip.is_some_and(|ip| ip.is_unspecified()) {
        return Err("clients cannot connect to an unspecified address".into());
    }
    Ok(Partition {
        name: name.to_owned(),
        weight,
    })
}

/// Whether this is a host name, an IPv4 address or an IPv6 address.
fn is_host(host: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    host.bytes().all(is_of_name) || host.parse::<Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_host_port_and_weight() {
        for (text, name, weight) in [
            ("cache-a:11211", "cache-a:11211", 1),
            ("cache_a.example:1=65535", "cache_a.example:1", WEIGHT_MAX),
            ("10.0.0.1:11211=2", "10.0.0.1:11211", 2),
            ("[fd00::1]:11211", "[fd00::1]:11211", 1),
        ] {
            let name = name.to_owned();
            assert_eq!(parse(text), Ok(Partition { name, weight }));
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "", "a", ":1", "a:", "a:0", "a:01", "a:65536", "a:1:2", "*:1", "a/b:1", "a b:1",
            "[a]:1", "::1", "a,b:1", "\u{e9}:1",
        ] {
            assert!(
                parse(text).unwrap_err().starts_with("expected HOST:PORT"),
                "{text}"
            );
        }
        for text in ["a:1=", "a:1=0", "a:1=65536", "a:1=+1", "a:1=1=1"] {
            assert!(
                parse(text)
                    .unwrap_err()
                    .starts_with("the weight is not 1 to 65535"),
                "{text}"
            );
        }
        for text in ["0.0.0.0:1", "[::]:1"] {
            assert!(parse(text).unwrap_err().contains("unspecified"), "{text}");
        }
        let long = format!("{}:65535", "a".repeat(ADDRESS_BYTES_MAX));
        assert!(parse(&long).unwrap_err().contains("more than 261 bytes"));
    }
}

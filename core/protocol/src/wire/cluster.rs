//! The servers of a cluster, as `config get cluster` shows them: ElastiCache's "auto discovery".
//!
//! The text is a line with a version and a line with all servers, `NAME|IP|PORT` each, separated by blanks. The
//! name is a host without a port, and stays; connections go to the address. Clients of ElastiCache may connect to
//! `NAME:PORT`, so a name with a port leads them nowhere.
//!
//! - D1: A text has 1 to [`SERVERS_MAX`] servers and at most [`TEXT_BYTES_MAX`] bytes. Anything else is
//!   [`Malformed`].
//!
//! Source: Amazon ElastiCache for Memcached, user guide, "Adding Auto Discovery To Your Client Library"; the
//! responses in the tests of `django-elastipymemcache` and of ElastiCache's client for PHP.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::str;

use super::Malformed;
use crate::address::HostPort;

/// The most servers of a cluster (D1).
pub const SERVERS_MAX: usize = 1_024;

/// The longest text, in bytes (D1).
pub const TEXT_BYTES_MAX: usize = 256 << 10;

/// The longest name or address of a server, in bytes: that of a host name, a port and brackets.
const NAME_BYTES_MAX: usize = 263;

/// The servers of a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterConfig {
    /// Rises with each change; the same in each answer for the same servers.
    pub version: u64,
    /// The servers.
    pub servers: Vec<ClusterServer>,
}

/// One server of a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterServer {
    /// The name, without blanks and `|`: a host whose port is [`port`](Self::port). Clients also accept `HOST:PORT`.
    pub name: String,
    /// The current address: an IP address or a host name. If empty, the host of the name.
    pub ip: String,
    /// The current port.
    pub port: u16,
}

impl ClusterConfig {
    /// The text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", self.version);
        for (place, server) in self.servers.iter().enumerate() {
            let blank = if place == 0 { "" } else { " " };
            let ClusterServer { name, ip, port } = server;
            let _ = write!(text, "{blank}{name}|{ip}|{port}");
        }
        text.push('\n');
        text
    }

    /// Reads the text.
    ///
    /// # Errors
    /// [`Malformed`] if it has another form, or more servers or bytes than D1 permits.
    pub fn decode(text: &[u8]) -> Result<Self, Malformed> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Malformed);
        }
        let text = str::from_utf8(text).map_err(|_| Malformed)?;
        let mut lines = text.lines();
        let version = lines.next().ok_or(Malformed)?.trim();
        let version = version.parse().map_err(|_| Malformed)?;
        let words = lines.next().ok_or(Malformed)?.split_ascii_whitespace();
        let servers: Result<Vec<_>, _> = words
            .take(SERVERS_MAX + 1)
            .map(ClusterServer::decode)
            .collect();
        let servers = servers?;
        if servers.is_empty() || servers.len() > SERVERS_MAX {
            return Err(Malformed);
        }
        Ok(Self { version, servers })
    }
}

impl ClusterServer {
    fn decode(word: &str) -> Result<Self, Malformed> {
        let mut parts = word.split('|');
        let (Some(name), Some(ip), Some(port), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Malformed);
        };
        let port = port.parse().map_err(|_| Malformed)?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || ip.len() > NAME_BYTES_MAX {
            return Err(Malformed);
        }
        Ok(Self {
            name: name.into(),
            ip: ip.into(),
            port,
        })
    }

    /// The name that decides the server's keys: with a port.
    ///
    /// # Errors
    /// [`Malformed`] if the name is no address.
    pub fn ring_name(&self) -> Result<String, Malformed> {
        let name = HostPort::parse(&self.name, self.port).map_err(|_| Malformed)?;
        Ok(alloc::format!("{name}"))
    }

    /// The address for connections.
    ///
    /// # Errors
    /// [`Malformed`] if there is no address and the name is none.
    pub fn address(&self) -> Result<HostPort, Malformed> {
        let host = if self.ip.is_empty() {
            let name = HostPort::parse(&self.name, self.port).map_err(|_| Malformed)?;
            name.host
        } else {
            self.ip.clone()
        };
        let port = self.port;
        Ok(HostPort { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use quickcheck::quickcheck;

    fn server(name: &str, ip: &str, port: u16) -> ClusterServer {
        ClusterServer {
            name: name.into(),
            ip: ip.into(),
            port,
        }
    }

    #[test]
    fn elasticaches_text_is_read_and_written() {
        let text = "12\nmyCluster.pc4ldq.0001.use1.cache.amazonaws.com|10.82.235.120|11211 \
                    myCluster.pc4ldq.0002.use1.cache.amazonaws.com|10.80.249.27|11218\n";
        let config = ClusterConfig::decode(text.as_bytes()).unwrap();
        let host = "myCluster.pc4ldq.0002.use1.cache.amazonaws.com";
        assert_eq!(config.version, 12);
        assert_eq!(config.servers[1], server(host, "10.80.249.27", 11218));
        assert_eq!(
            config.servers[1].ring_name(),
            Ok(alloc::format!("{host}:11218"))
        );
        assert_eq!(config.encode(), text);
    }

    #[test]
    fn name_keeps_its_port() {
        let moved = server("cache-a:11211", "fe80::7", 11311);
        assert_eq!(moved.ring_name().unwrap(), "cache-a:11211");
        assert_eq!(moved.address().unwrap().to_string(), "[fe80::7]:11311");
        let plain = server("cache-a:11211", "", 11311);
        assert_eq!(plain.address().unwrap().to_string(), "cache-a:11311");
    }

    #[test]
    fn other_texts_are_malformed() {
        for text in [
            "",
            "1",
            "1\n",
            "1\n\n",
            "x\na|b|1\n",
            "1\na|b\n",
            "1\na|b|c\n",
            "1\n|b|1\n",
            "1\na|b|65536\n",
            "1\na|b|1|2\n",
        ] {
            assert_eq!(
                ClusterConfig::decode(text.as_bytes()),
                Err(Malformed),
                "{text:?}"
            );
        }
        assert_eq!(ClusterConfig::decode(b"1\n\xff|b|1\n"), Err(Malformed));
    }

    #[test]
    fn servers_are_bounded() {
        let of = |count| ClusterConfig {
            version: 1,
            servers: vec![server("a:1", "b", 1); count],
        };
        let most = of(SERVERS_MAX);
        assert_eq!(ClusterConfig::decode(most.encode().as_bytes()), Ok(most));
        let more = of(SERVERS_MAX + 1).encode();
        assert_eq!(ClusterConfig::decode(more.as_bytes()), Err(Malformed));
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        let text = alloc::format!("1\n{long}|b|1\n");
        assert_eq!(ClusterConfig::decode(text.as_bytes()), Err(Malformed));
    }

    quickcheck! {
        fn any_bytes_are_a_cluster_or_not(text: Vec<u8>) -> bool {
            ClusterConfig::decode(&text).is_ok_and(|config| config.servers.len() <= SERVERS_MAX)
                || ClusterConfig::decode(&text) == Err(Malformed)
        }
    }
}

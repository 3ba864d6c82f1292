//! The greeting of the prompt: the version of the server. It also reports an unreachable server before a command is typed.

use std::time::Duration;

use super::Session;
use super::connection::{Broken, Connection, StatsLine};

impl Session {
    /// Connects and shows the version of the server. The version that a latchd replies with is that of memcached, so the greeting reads
    /// `stats`.
    pub(super) fn greet(&mut self) -> Result<(), Broken> {
        let opened = Connection::open(&self.client, self.timeout);
        let connection = self.connection.insert(opened?);
        connection.waits(Duration::ZERO);
        let stats = connection.stats("stats");
        if stats.is_err() || connection.is_closed() {
            self.connection = None;
        }
        self.screen.line(&greeting(stats?))?;
        self.screen.flush()
    }
}

/// The greeting, from the reply to `stats`. A server that refuses it greets with its reply.
fn greeting(stats: Result<Vec<StatsLine>, Vec<u8>>) -> Vec<u8> {
    let lines = match stats {
        Ok(lines) => lines,
        Err(refusal) => return [&refusal, &b"\n"[..]].concat(),
    };
    let value = |name: &str| {
        let line = lines.iter().find(|(of, _)| of == name.as_bytes());
        line.map(|(_, value)| value.as_str())
    };
    let version = value("version").unwrap_or_default();
    let text = match value("latchd_version") {
        Some(own) => format!("latchd {own}, which replies as memcached {version}\n"),
        None => format!("version {version}\n"),
    };
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_names_the_servers_own_version() {
        let of = |lines: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), (*value).into());
            greeting(Ok(lines.iter().map(owned).collect()))
        };
        assert_eq!(
            of(&[("version", "1.6.45"), ("latchd_version", "0.3.0")]),
            b"latchd 0.3.0, which replies as memcached 1.6.45\n"
        );
        let foreign = of(&[("pid", "7"), ("version", "1.6.18")]);
        assert_eq!(foreign, b"version 1.6.18\n");
        let refusal = b"CLIENT_ERROR unauthenticated".to_vec();
        assert_eq!(greeting(Err(refusal)), b"CLIENT_ERROR unauthenticated\n");
    }
}

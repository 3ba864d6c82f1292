//! The greeting of the prompt: the version of the server. It also reports an unreachable server before a command is typed.

use std::time::Duration;

use super::Session;
use super::connection::{Broken, Connection};

impl Session {
    /// Connects and shows the version of the server. The version that a latchd replies with is that of memcached, so the greeting reads
    /// `stats`.
    pub(super) fn greet(&mut self) -> Result<(), Broken> {
        let opened = Connection::open(&self.client, self.timeout);
        let connection = self.connection.insert(opened?);
        connection.waits(Duration::ZERO);
        let read = connection
            .send(b"stats\r\n")
            .and_then(|()| greeting(|| connection.line(false)));
        if read.is_err() || connection.is_closed() {
            self.connection = None;
        }
        let text = read? + "\n";
        self.screen.line(text.as_bytes())?;
        self.screen.flush()
    }
}

/// The greeting, from the lines of the reply to `stats`. A server that refuses it greets with its reply.
fn greeting(mut line: impl FnMut() -> Result<Vec<u8>, Broken>) -> Result<String, Broken> {
    let (mut version, mut own) = (String::new(), None);
    loop {
        let line = line()?;
        let line = String::from_utf8_lossy(line.trim_ascii_end());
        let mut words = line.split(' ');
        match [words.next(), words.next(), words.next()] {
            [Some("STAT"), Some("version"), Some(shown)] => shown.clone_into(&mut version),
            [Some("STAT"), Some("latchd_version"), Some(shown)] => own = Some(shown.to_owned()),
            [Some("STAT"), ..] => {}
            [Some("END"), ..] => break,
            _ => return Ok(line.into_owned()),
        }
    }
    Ok(match own {
        Some(own) => format!("latchd {own}, which replies as memcached {version}"),
        None => format!("version {version}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_names_the_servers_own_version() {
        for (lines, said) in [
            (
                "STAT version 1.6.45\r\nSTAT latchd_version 0.2.0\r\nSTAT pid 7\r\nEND\r\n",
                "latchd 0.2.0, which replies as memcached 1.6.45",
            ),
            (
                "STAT pid 7\r\nSTAT version 1.6.18\r\nEND\r\n",
                "version 1.6.18",
            ),
            (
                "CLIENT_ERROR unauthenticated\r\n",
                "CLIENT_ERROR unauthenticated",
            ),
        ] {
            let mut lines = lines
                .split_inclusive('\n')
                .map(|line| line.as_bytes().to_vec());
            let greeting = greeting(|| lines.next().ok_or(Broken::Closed));
            assert_eq!(greeting.ok().as_deref(), Some(said));
        }
    }
}

//! What a server is told at its start.
//!
//! The folder holds the types of its options. It uses nothing of the server.
//!
//! The names and defaults are memcached's (1.6.45 `memcached.c`, `settings_init`), but that latchd
//! listens on loopback unless it is told otherwise.

pub(crate) mod listen_address;
pub(crate) mod tls_settings;

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use latchd_core::address::DEFAULT_PORT;
use latchd_core::wire::Allowed;

use crate::config::listen_address::{ListenAddress, ListenTls};
use crate::config::tls_settings::{ClientCertificate, TlsSettings};

/// The most worker threads a server runs.
const THREADS_MAX: usize = 64;

/// The least memory a server can do with, in bytes: memcached's least `-m`. A log of items has its
/// segments in it, and what it finds them with.
const MEMORY_BYTES_MIN: usize = 1 << 20;

/// The smallest and the largest `-I`, in bytes. Source: memcached 1.6.45 `memcached.c`, `main`.
const VALUE_BYTES: RangeInclusive<usize> = 1 << 10..=1 << 30;

/// The least and the most that may wait for one who watches, in bytes: the least has room for the longest line.
const WATCHER_BYTES: RangeInclusive<usize> = 1 << 10..=64 << 20;

/// How many connections of the status port are open at a time (U1 there).
pub(crate) const STATUS_CONNECTIONS_MAX: usize = 128;

/// What a server is told at its start. Fill in what differs from [`Config::default`].
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
pub struct Config {
    /// Where to listen on TCP; may be empty if there is a Unix socket. `-l`, `-p`.
    pub listen: Vec<ListenAddress>,
    /// Where to listen on a Unix socket. `-s`, `-a`.
    pub unix_socket: Option<UnixSocket>,
    /// Sockets that listen already, TCP or Unix, besides those; how many may wait is theirs to say. The file
    /// of a Unix socket stays. `LISTEN_FDS`.
    pub sockets: Vec<Arc<OwnedFd>>,
    /// Connections that wait to be accepted, a listener. `-b`.
    pub backlog: u16,
    /// What all items together may take, in bytes. `-m`.
    pub memory_bytes_max: usize,
    /// Values are zeroed when they are dead. `--secure-erase`.
    pub secure_erase: bool,
    /// The largest value, in bytes. `-I`.
    pub value_bytes_max: usize,
    /// Locks that one connection may hold. Beside it, whatever it is, the locks of one connection and
    /// the items that they pin may take an eighth of [`memory_bytes_max`](Self::memory_bytes_max).
    /// `-o locks_per_conn`.
    pub locks_per_connection_max: usize,
    /// What may be kept of requests that are not whole yet, over all connections, in bytes; past it,
    /// those that have most are closed. `None` is a quarter of
    /// [`memory_bytes_max`](Self::memory_bytes_max), and at least 128 MiB and two of the largest values.
    /// `-o read_buf_mem_limit`.
    pub unfinished_bytes_max: Option<usize>,
    /// The memory that replies may take until their clients read them, over all connections, in bytes; past it, the
    /// connections that take most are closed. A value that several of them are sent is counted once. `None` is half of
    /// [`memory_bytes_max`](Self::memory_bytes_max), and at least 64 MiB and two of the largest values.
    /// `-o resp_obj_mem_limit`.
    pub unsent_bytes_max: Option<usize>,
    /// What may wait for one who watches, in bytes, from 1 KiB to 64 MiB; what does not fit is counted and
    /// dropped. `-o watcher_logbuf_size`.
    pub watcher_bytes_max: usize,
    /// Items are written to this file at the server's end, and read from it at the next start; `None` is that they
    /// end with the server. `-e`.
    pub memory_file: Option<PathBuf>,
    /// Whether items may be evicted for room. Otherwise a set without room is refused. `-M`.
    pub evict: bool,
    /// Clients at a time. `-c`.
    pub connections_max: usize,
    /// Clients at a time from one address, of IPv6 from one network of 64 bits; one more is told so and closed. `None` is as
    /// many as there may be. Unix sockets have no address. `-o conns_per_peer`.
    pub connections_per_peer_max: Option<NonZeroUsize>,
    /// What happens to a client past [`connections_max`](Self::connections_max): told so and
    /// closed at once, or left waiting to be accepted until another one goes.
    /// `-o maxconns_fast` (memcached's default) and `-o no_maxconns_fast`.
    pub reject_past_limit: bool,
    /// Worker threads, at most 64. `-t`.
    pub threads: NonZeroUsize,
    /// How long a client may say nothing before it is closed; `None` is for ever.
    /// `-o idle_timeout`.
    pub idle_timeout: Option<Duration>,
    /// What clients may ask for, and in which protocols. `-F`, `-X`, `-A`, `-B`.
    pub allowed: Allowed,
    /// Only who is in this file is let in, a line `name:password` each, and only text is spoken then, but
    /// for [`sasl`](Self::sasl). `-Y`.
    pub auth_file: Option<PathBuf>,
    /// Keys are counted from the start by what stands before this byte, for `stats detail dump`. `None`
    /// is before `:`, once `stats detail on` has asked for it. `-D`.
    pub prefix_delimiter: Option<u8>,
    /// Whether [`auth_file`](Self::auth_file) lets in clients of the binary protocol as well, by SASL.
    /// `-S`.
    pub sasl: bool,
    /// How TLS is spoken on TCP; `None` is not at all. `-Z`.
    pub tls: Option<TlsSettings>,
    /// How long a peer may be gone without a word before its connection is closed and its locks are
    /// free, in whole seconds, at least two: for connections that have taken a lock. Others have a
    /// minute, or as long if that is more. TCP only. `--dead-peer`.
    pub dead_peer: Duration,
    /// Where the status port is ([`Address`](crate::Address) is where clients are served): metrics, locks
    /// and a page over HTTP, for whoever reaches it. `None` is no such port. `--status`.
    pub status: Option<ListenAddress>,
    /// Names by which a browser may ask the status port for the page and the locks, besides addresses,
    /// `localhost`, the machine's name and that of [`status`](Self::status). `--status-host`.
    pub status_hosts: Vec<String>,
    /// What is logged besides warnings: 0 nothing, 1 connections, 2 their requests and answers too,
    /// 3 locks that are taken and given back too. `-v`.
    pub verbosity: u8,
    /// How many lines of the log were dropped, counted by whoever writes the log, and shown in
    /// `stats` as `log_dropped`. `tracing` is told every line; what becomes of it is not the server's.
    pub log_dropped: Arc<AtomicU64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![ListenAddress::loopback(DEFAULT_PORT)],
            unix_socket: None,
            sockets: Vec::new(),
            backlog: 1024,
            memory_bytes_max: 64 << 20,
            value_bytes_max: 1 << 20,
            locks_per_connection_max: 65_536,
            unfinished_bytes_max: None,
            unsent_bytes_max: None,
            watcher_bytes_max: 256 << 10,
            memory_file: None,
            evict: true,
            secure_erase: false,
            connections_max: 1024,
            connections_per_peer_max: None,
            reject_past_limit: true,
            threads: NonZeroUsize::MIN,
            idle_timeout: None,
            allowed: Allowed::default(),
            auth_file: None,
            prefix_delimiter: None,
            sasl: false,
            tls: None,
            dead_peer: Duration::from_secs(10),
            status: None,
            status_hosts: Vec::new(),
            verbosity: 0,
            log_dropped: Arc::default(),
        }
    }
}

impl Config {
    /// Whether a server can be made of it.
    ///
    /// # Errors
    /// A sentence for a person, about the flags that do not go together.
    pub fn check(&self) -> Result<(), String> {
        let (memory, value) = (self.memory_bytes_max, self.value_bytes_max);
        if self.threads.get() > THREADS_MAX {
            let threads = self.threads;
            return Err(format!(
                "-t {threads}: there are at most {THREADS_MAX} threads"
            ));
        }
        if memory < MEMORY_BYTES_MIN {
            return Err(format!(
                "-m: {memory} bytes are too few; the least is {MEMORY_BYTES_MIN}"
            ));
        }
        if !VALUE_BYTES.contains(&value) {
            return Err(format!(
                "-I: values of {value} bytes; they may be from 1k to 1024m"
            ));
        }
        if !WATCHER_BYTES.contains(&self.watcher_bytes_max) {
            return Err(format!(
                "-o watcher_logbuf_size: {} bytes; it may be from 1 to 65536 kilobytes",
                self.watcher_bytes_max
            ));
        }
        if value > memory / 2 {
            return Err(format!(
                "-I is more than half of -m: values of {value} bytes need {} bytes of memory, and \
                 there are {memory}; give more with -m, or less with -I",
                value.saturating_mul(2)
            ));
        }
        if self.sasl && self.auth_file.is_none() {
            return Err(
                "-S: nobody says who may enter; add -Y PATH, a file with a line `name:password` \
                        for each, as in MEMCACHED_SASL_PWDB"
                    .into(),
            );
        }
        self.check_tls()
    }

    fn check_tls(&self) -> Result<(), String> {
        let is_asked = |asked| self.listen.iter().any(|address| address.tls == asked);
        let Some(tls) = &self.tls else {
            if self
                .listen
                .iter()
                .any(|address| address.tls != ListenTls::Usual)
            {
                return Err("-l: notls, btls and mtls are for a server with TLS (-Z)".into());
            }
            return Ok(());
        };
        if self.listen.is_empty() && self.sockets.is_empty() {
            return Err("-Z: TLS needs a TCP port; a Unix socket (-s) never has it".into());
        }
        let asks = tls.client_certificate != ClientCertificate::Unasked;
        if tls.ca_cert.is_none() && (asks || is_asked(ListenTls::Mutual)) {
            let flag = if asks {
                "-o ssl_verify_mode"
            } else {
                "-l mtls"
            };
            return Err(format!(
                "{flag}: nobody says whose certificates are good; add -o ssl_ca_cert=PATH"
            ));
        }
        Ok(())
    }

    /// How many descriptors it needs that are not connections: standard streams, epolls, bells,
    /// listeners, connections to the status port, and some.
    #[must_use]
    pub fn reserved_descriptors(&self) -> u64 {
        let status = self.status.as_ref();
        let of_status = status.map_or(0, |_| STATUS_CONNECTIONS_MAX as u64);
        3 * self.threads.get() as u64 + 32 + of_status
    }

    /// [`Self::unfinished_bytes_max`], its default worked out.
    pub(crate) fn unfinished_bytes_max(&self) -> usize {
        self.unfinished_bytes_max
            .unwrap_or_else(|| self.share(4, 128 << 20))
    }

    /// [`Self::unsent_bytes_max`], its default worked out.
    pub(crate) fn unsent_bytes_max(&self) -> usize {
        self.unsent_bytes_max
            .unwrap_or_else(|| self.share(2, 64 << 20))
    }

    fn share(&self, divisor: usize, bytes_min: usize) -> usize {
        (self.memory_bytes_max / divisor)
            .max(bytes_min)
            .max(self.value_bytes_max.saturating_mul(2))
    }
}

/// A Unix socket to listen on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnixSocket {
    /// Its path. A socket that nobody listens on any more is replaced.
    pub path: PathBuf,
    /// Who may connect: the file's permission bits. memcached's default is `0o700`.
    pub mode: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_is_refused_in_words() {
        let with = |memory_bytes_max, value_bytes_max| Config {
            memory_bytes_max,
            value_bytes_max,
            ..Config::default()
        };
        assert_eq!(Config::default().check(), Ok(()));
        assert_eq!(with(1 << 20, 512 << 10).check(), Ok(()));
        let refused = with(1 << 20, (512 << 10) + 1).check().unwrap_err();
        assert!(
            refused.starts_with("-I is more than half of -m"),
            "{refused}"
        );
        let refused = with((1 << 20) - 1, 1 << 10).check().unwrap_err();
        assert!(
            refused.starts_with("-m: 1048575 bytes are too few"),
            "{refused}"
        );
        for value_bytes in [0, 1023, (1 << 30) + 1] {
            let refused = with(64 << 30, value_bytes).check().unwrap_err();
            assert!(refused.starts_with("-I: values of"), "{refused}");
        }
    }
}

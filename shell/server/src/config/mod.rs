//! The configuration of a server.
//!
//! The folder holds the types of the options. It uses no other part of the server.
//!
//! The names and defaults are memcached's (1.6.45 `memcached.c`, `settings_init`), with one exception: latchd
//! listens on loopback by default.

pub(crate) mod listen_address;
pub(crate) mod tls_settings;

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

#[cfg(feature = "cluster")]
use latchd_cluster::ClusterSettings;
use latchd_core::sessions::SessionLimits;
use latchd_protocol::address::DEFAULT_PORT;
use latchd_protocol::wire::Allowed;

use crate::config::listen_address::{ListenAddress, ListenTls};
use crate::config::tls_settings::{ClientCertificate, TlsSettings};

/// The most worker threads a server runs.
const THREADS_MAX: usize = 64;

/// The smallest memory limit, in bytes: memcached's smallest `-m`. The item log needs it for its segments and
/// their index.
const MEMORY_BYTES_MIN: usize = 1 << 20;

/// The smallest and the largest `-I`, in bytes. Source: memcached 1.6.45 `memcached.c`, `main`.
const VALUE_BYTES: RangeInclusive<usize> = 1 << 10..=1 << 30;

/// The smallest and the largest queue of a watcher, in bytes. The longest line fits into the smallest.
const WATCHER_BYTES: RangeInclusive<usize> = 1 << 10..=64 << 20;

/// The most connections of the status port at a time (`status`, U1).
pub(crate) const STATUS_CONNECTIONS_MAX: usize = 128;

/// The configuration of a server. Set the fields that differ from [`Config::default`].
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
pub struct Config {
    /// Where to listen on TCP; may be empty if there is a Unix socket. `-l`, `-p`.
    pub listen: Vec<ListenAddress>,
    /// Where to listen on a Unix socket. `-s`, `-a`.
    pub unix_socket: Option<UnixSocket>,
    /// Sockets that listen already, TCP or Unix, in addition to those above. Their backlog is their own, and
    /// the file of a Unix socket is not removed. `LISTEN_FDS`.
    pub sockets: Vec<Arc<OwnedFd>>,
    /// The most connections per listener that wait to be accepted. `-b`.
    pub backlog: u16,
    /// The memory limit of all items together, in bytes. `-m`.
    pub memory_bytes_max: usize,
    /// Whether dead values are zeroed. `--secure-erase`.
    pub secure_erase: bool,
    /// The largest value, in bytes. `-I`.
    pub value_bytes_max: usize,
    /// The most locks that one connection may hold. In addition, the locks of one connection and the items
    /// that they pin may take at most an eighth of [`memory_bytes_max`](Self::memory_bytes_max). `-o
    /// locks_per_conn`.
    pub locks_per_connection_max: usize,
    /// The bounds on sessions. `-o sessions` and `-o sessions_per_peer`.
    pub sessions: SessionLimits,
    /// The memory for incomplete requests over all connections, in bytes. When it is exceeded, the
    /// connections that take most are closed. `None`: a quarter of
    /// [`memory_bytes_max`](Self::memory_bytes_max), at least 128 MiB and at least two of the largest values.
    /// `-o read_buf_mem_limit`.
    pub unfinished_bytes_max: Option<usize>,
    /// The memory for unread replies over all connections, in bytes. When it is exceeded, the connections
    /// that take most are closed. A value sent to several connections is counted once. `None`: half of
    /// [`memory_bytes_max`](Self::memory_bytes_max), at least 64 MiB and at least two of the largest values.
    /// `-o resp_obj_mem_limit`.
    pub unsent_bytes_max: Option<usize>,
    /// The queue of one watcher, in bytes, from 1 KiB to 64 MiB. Lines that do not fit are counted and
    /// dropped. `-o watcher_logbuf_size`.
    pub watcher_bytes_max: usize,
    /// The file to which items are written when the server ends, and from which they are read at the next
    /// start. `None`: items end with the server. `-e`.
    pub memory_file: Option<PathBuf>,
    /// A directory of this process alone, on a local disk, for a server outside a cluster. It keeps the longest session and lease,
    /// so that the next process grants no lock in which a client of this one still believes. Without it, the record is beside
    /// [`Self::memory_file`], if there is one. `--state`.
    pub state: Option<PathBuf>,
    /// Whether items may be evicted to free memory. Otherwise a set without free memory fails. `-M`.
    pub evict: bool,
    /// The most clients at a time. `-c`.
    pub connections_max: usize,
    /// The most clients at a time from one address (of IPv6: from one 64-bit network); one more gets an error
    /// and is closed. `None`: no limit of its own. Unix sockets have no address. `-o conns_per_peer`.
    pub connections_per_peer_max: Option<NonZeroUsize>,
    /// The treatment of a client past [`connections_max`](Self::connections_max). True: it gets an error and
    /// is closed at once. False: it waits in the backlog until another client leaves. `-o maxconns_fast`
    /// (memcached's default) and `-o no_maxconns_fast`.
    pub reject_past_limit: bool,
    /// Worker threads, at most 64. `-t`.
    pub threads: NonZeroUsize,
    /// The time after which an idle client is closed; `None`: never. `-o idle_timeout`.
    pub idle_timeout: Option<Duration>,
    /// The commands and protocols that clients may use. `-F`, `-X`, `-A`, `-B`.
    pub allowed: Allowed,
    /// The file of names and passwords, one `name:password` per line. Clients must authenticate, and use the
    /// text protocol unless [`sasl`](Self::sasl) is set. `-Y`.
    pub auth_file: Option<PathBuf>,
    /// Keys are counted by the prefix before this byte from the start on, for `stats detail dump`. `None`: by
    /// the prefix before `:`, once `stats detail on` starts counting. `-D`.
    pub prefix_delimiter: Option<u8>,
    /// Whether clients of the binary protocol can authenticate by SASL against
    /// [`auth_file`](Self::auth_file). `-S`.
    pub sasl: bool,
    /// TLS settings for TCP; `None`: no TLS. `-Z`.
    pub tls: Option<TlsSettings>,
    /// The time, in whole seconds, after which an unreachable client's connection is closed and its locks are
    /// released; at least 2 s. It applies to connections that have acquired a lock. The others have a minute,
    /// or this time if it is longer. TCP only. `--dead-peer`.
    pub dead_peer: Duration,
    /// The address of the status port: metrics, locks and a page over HTTP, without authentication.
    /// ([`Address`](crate::Address) is for the cache's own clients.) `None`: no status port. `--status`.
    pub status: Option<ListenAddress>,
    /// Host names by which a browser may request the page and the locks from the status port. Always allowed:
    /// addresses, `localhost`, the machine's name and that of [`status`](Self::status). `--status-host`.
    pub status_hosts: Vec<String>,
    /// The part in a cluster; `None`: the server serves from its start on. `--authority`.
    #[cfg(feature = "cluster")]
    pub cluster: Option<ClusterSettings>,
    /// The level of the log beyond warnings: 0 nothing, 1 connections, 2 also requests and replies, 3 also
    /// lock events. `-v`.
    pub verbosity: u8,
    /// The number of log lines that the writer of the log has dropped, shown in `stats` as `log_dropped`. The
    /// server passes every line to `tracing`; the subscriber counts here.
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
            sessions: SessionLimits::default(),
            unfinished_bytes_max: None,
            unsent_bytes_max: None,
            watcher_bytes_max: 256 << 10,
            memory_file: None,
            state: None,
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
            #[cfg(feature = "cluster")]
            cluster: None,
            verbosity: 0,
            log_dropped: Arc::default(),
        }
    }
}

impl Config {
    /// Checks that a server can run with this configuration.
    ///
    /// # Errors
    /// A message for a person about flags that contradict each other.
    pub fn check(&self) -> Result<(), String> {
        let (memory, value) = (self.memory_bytes_max, self.value_bytes_max);
        if self.threads.get() > THREADS_MAX {
            let threads = self.threads;
            return Err(format!(
                "-t {threads}: the server runs at most {THREADS_MAX} threads; lower -t"
            ));
        }
        if memory < MEMORY_BYTES_MIN {
            return Err(format!(
                "-m: {memory} bytes are too little; set at least {MEMORY_BYTES_MIN} bytes"
            ));
        }
        if !VALUE_BYTES.contains(&value) {
            return Err(format!(
                "-I: {value} bytes are out of range; set a size from 1k to 1024m"
            ));
        }
        if !WATCHER_BYTES.contains(&self.watcher_bytes_max) {
            return Err(format!(
                "-o watcher_logbuf_size: {} bytes are out of range; set 1 to 65536 kilobytes",
                self.watcher_bytes_max
            ));
        }
        if value > memory / 2 {
            return Err(format!(
                "-I is more than half of -m: values of {value} bytes need {} bytes of memory, but -m \
                 is {memory} bytes; raise -m or lower -I",
                value.saturating_mul(2)
            ));
        }
        if self.sasl && self.auth_file.is_none() {
            return Err(
                "-S: there is no password file; add -Y PATH, a file with a line `name:password` \
                 per user, as in MEMCACHED_SASL_PWDB"
                    .into(),
            );
        }
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &self.cluster {
            cluster.check()?;
            if self.state.is_some() {
                return Err("--state: a member of a cluster has it in its own settings".into());
            }
            if !self.sockets.is_empty() {
                return Err(
                    "--authority with LISTEN_FDS: a standby must not listen; remove the socket unit"
                        .into(),
                );
            }
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
                return Err("-l: the prefixes notls, btls and mtls require TLS; add -Z".into());
            }
            return Ok(());
        };
        if self.listen.is_empty() && self.sockets.is_empty() {
            return Err(
                "-Z: TLS requires a TCP port, and a Unix socket (-s) is none; add -l ADDRESS"
                    .into(),
            );
        }
        let asks = tls.client_certificate != ClientCertificate::Unasked;
        if tls.ca_cert.is_none() && (asks || is_asked(ListenTls::Mutual)) {
            let flag = if asks {
                "-o ssl_verify_mode"
            } else {
                "-l mtls"
            };
            return Err(format!(
                "{flag}: there is no authority to verify client certificates; add -o ssl_ca_cert=PATH"
            ));
        }
        Ok(())
    }

    /// The number of descriptors needed besides connections: standard streams, epolls, eventfds, listeners,
    /// connections to the status port, and a reserve.
    #[must_use]
    pub fn reserved_descriptors(&self) -> u64 {
        let status = self.status.as_ref();
        let of_status = status.map_or(0, |_| STATUS_CONNECTIONS_MAX as u64);
        3 * self.threads.get() as u64 + 32 + of_status
    }

    /// Whether the server is a member of a cluster.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(clippy::unused_self, reason = "no server is one")
    )]
    pub(crate) const fn is_member(&self) -> bool {
        #[cfg(feature = "cluster")]
        let is_member = self.cluster.is_some();
        #[cfg(not(feature = "cluster"))]
        let is_member = false;
        is_member
    }

    /// [`Self::unfinished_bytes_max`], with its default computed.
    pub(crate) fn unfinished_bytes_max(&self) -> usize {
        self.unfinished_bytes_max
            .unwrap_or_else(|| self.share(4, 128 << 20))
    }

    /// [`Self::unsent_bytes_max`], with its default computed.
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
    /// Its path. If no server listens on the socket there any more, it is replaced.
    pub path: PathBuf,
    /// The permission bits of the socket's file. memcached's default is `0o700`.
    pub mode: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictory_options_are_refused() {
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
            refused.starts_with("-m: 1048575 bytes are too little"),
            "{refused}"
        );
        for value_bytes in [0, 1023, (1 << 30) + 1] {
            let refused = with(64 << 30, value_bytes).check().unwrap_err();
            assert!(refused.contains("bytes are out of range"), "{refused}");
        }
    }
}

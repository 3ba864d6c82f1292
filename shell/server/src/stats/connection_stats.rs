//! The server's counters of connections, and their `stats` lines.
//!
//! The names are memcached's (1.6.45 `doc/protocol.txt`, "General-purpose statistics"), so monitoring tools
//! read them unchanged.

use std::borrow::Cow;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use latchd_protocol::stats::StatsLine;

use latchd_protocol::wire::{LockedReply, Protocols};

use crate::config::Config;
use crate::config::tls_settings::{ClientCertificate, KeyFormat, TlsSettings, TlsVersion};
use crate::os::headroom;
use crate::stats::turn_times::{Measured, TurnTimes};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::clock::Clock;
use crate::sync::{Mutex, MutexGuard};

/// Connections and bytes.
#[derive(Debug)]
pub(crate) struct ConnectionStats {
    connections_max: usize,
    open: AtomicUsize,
    accepting: AtomicBool,
    total: AtomicU64,
    rejected: AtomicU64,
    pauses: AtomicU64,
    paused: Mutex<Paused>,
    out_of_memory_input: AtomicU64,
    out_of_memory_output: AtomicU64,
    idle: AtomicU64,
    authentications: AtomicU64,
    authentication_failures: AtomicU64,
    handshake_failures: AtomicU64,
    record_failures: AtomicU64,
    traffic: Box<[Traffic]>,
}

/// The kinds of memory kept for a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BufferKind {
    /// Incomplete requests.
    Input,
    /// Unread replies.
    Output,
}

/// The time in which new connections were not accepted.
#[derive(Debug, Default)]
struct Paused {
    /// All pauses that have ended.
    before: Duration,
    /// The start of the current pause.
    since: Option<std::time::Instant>,
}

/// The bytes and turns of one worker. Each worker has a cache line of its own, so workers do not slow each
/// other's counting.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Traffic {
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    yields: AtomicU64,
    meta_commands: AtomicU64,
    /// The lengths of its turns.
    pub(crate) turns: TurnTimes,
}

impl Traffic {
    /// Counts received bytes.
    pub(crate) fn count_read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts sent bytes.
    pub(crate) fn count_written(&self, bytes: usize) {
        self.bytes_written
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts executed meta commands.
    pub(crate) fn count_meta(&self, commands: u32) {
        self.meta_commands
            .fetch_add(u64::from(commands), Ordering::Relaxed);
    }

    /// Counts a connection that had more work and yielded to the others.
    pub(crate) fn count_yield(&self) {
        self.yields.fetch_add(1, Ordering::Relaxed);
    }
}

impl ConnectionStats {
    pub(crate) fn new(connections_max: usize, workers: usize) -> Self {
        Self {
            connections_max,
            open: AtomicUsize::new(0),
            accepting: AtomicBool::new(true),
            total: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            pauses: AtomicU64::new(0),
            paused: Mutex::default(),
            out_of_memory_input: AtomicU64::new(0),
            out_of_memory_output: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            authentications: AtomicU64::new(0),
            authentication_failures: AtomicU64::new(0),
            handshake_failures: AtomicU64::new(0),
            record_failures: AtomicU64::new(0),
            traffic: (0..workers).map(|_| Traffic::default()).collect(),
        }
    }

    /// The counters of a worker.
    pub(crate) fn traffic(&self, worker: usize) -> &Traffic {
        &self.traffic[worker]
    }

    /// Whether the connection limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.open.load(Ordering::SeqCst) >= self.connections_max
    }

    /// Counts a new connection.
    pub(crate) fn count_open(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a closed connection.
    pub(crate) fn count_closed(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a rejected connection.
    pub(crate) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether new connections are accepted now.
    fn is_accepting(&self) -> bool {
        self.accepting.load(Ordering::SeqCst)
    }

    /// Begins a pause in accepting; repeated calls count once.
    pub(crate) fn pause(&self) {
        if self.accepting.swap(false, Ordering::SeqCst) {
            self.pauses.fetch_add(1, Ordering::Relaxed);
            self.paused().since = Some(std::time::Instant::now());
        }
    }

    /// Ends the pause, if there is one.
    pub(crate) fn resume(&self) {
        if !self.is_accepting() {
            self.accepting.store(true, Ordering::SeqCst);
            let mut paused = self.paused();
            let last = paused.since.take().map(|since| since.elapsed());
            paused.before += last.unwrap_or_default();
        }
    }

    /// The number of pauses.
    #[cfg(all(test, feature = "scheduled"))]
    pub(crate) fn pauses(&self) -> u64 {
        self.pauses.load(Ordering::Relaxed)
    }

    /// The length of all pauses until `now`.
    fn paused_for(&self, now: std::time::Instant) -> Duration {
        let paused = self.paused();
        let since = paused.since;
        paused.before + since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn paused(&self) -> MutexGuard<'_, Paused> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a client closed because its budget was exceeded.
    pub(crate) fn count_out_of_memory(&self, kept: BufferKind) {
        let counter = match kept {
            BufferKind::Input => &self.out_of_memory_input,
            BufferKind::Output => &self.out_of_memory_output,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a client closed because it was idle for too long.
    pub(crate) fn count_idle(&self) {
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an authentication; `is_valid`: whether it succeeded.
    pub(crate) fn count_authentication(&self, is_valid: bool) {
        self.authentications.fetch_add(1, Ordering::Relaxed);
        if !is_valid {
            self.authentication_failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a client closed because of invalid TLS.
    pub(crate) fn count_misunderstood(&self, is_handshake: bool) {
        let counter = if is_handshake {
            &self.handshake_failures
        } else {
            &self.record_failures
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Resets the counters that only grow.
    pub(crate) fn reset(&self) {
        for counter in [
            &self.total,
            &self.rejected,
            &self.pauses,
            &self.out_of_memory_input,
            &self.out_of_memory_output,
            &self.idle,
            &self.authentications,
            &self.authentication_failures,
            &self.handshake_failures,
            &self.record_failures,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        headroom::forget_refused();
        self.paused().before = Duration::ZERO;
        for traffic in &self.traffic {
            traffic.bytes_read.store(0, Ordering::Relaxed);
            traffic.bytes_written.store(0, Ordering::Relaxed);
            traffic.yields.store(0, Ordering::Relaxed);
            traffic.meta_commands.store(0, Ordering::Relaxed);
            traffic.turns.reset();
        }
    }

    /// The measured turns of all workers.
    pub(crate) fn turn_times(&self) -> Measured {
        let mut sum = Measured::default();
        for traffic in &self.traffic {
            sum.add(&traffic.turns);
        }
        sum
    }

    /// The `stats` lines about TLS; `since_read`: the time since the certificates were read; `not_after_unix_s`: when
    /// the first of them expires.
    pub(crate) fn tls_lines(
        &self,
        since_read: Duration,
        not_after_unix_s: Option<u64>,
    ) -> Vec<StatsLine> {
        let shown = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut lines = vec![
            line("ssl_handshake_errors", shown(&self.handshake_failures)),
            line("ssl_proto_errors", shown(&self.record_failures)),
            line("time_since_server_cert_refresh", since_read.as_secs()),
        ];
        lines.extend(not_after_unix_s.map(|end| line("server_cert_not_after", end)));
        lines
    }

    /// The lines of `stats` about connections and the process.
    pub(crate) fn general_lines(&self, config: &Config, clock: &Clock) -> Vec<StatsLine> {
        let sum = |counter: fn(&Traffic) -> &AtomicU64| {
            self.traffic
                .iter()
                .map(|t| counter(t).load(Ordering::Relaxed))
                .sum::<u64>()
        };
        let (user, system) = cpu_time();
        let uptime = clock.uptime().as_secs();
        let unix_s = clock.unix_s_at_start() + clock.now().as_millis() / 1000;
        let open = self.open.load(Ordering::Relaxed);
        vec![
            line("pid", std::process::id()),
            line("uptime", uptime),
            line("time", unix_s),
            line("version", latchd_protocol::wire::VERSION),
            line("latchd_version", env!("CARGO_PKG_VERSION")),
            line("libevent", "none"),
            line("rusage_user", seconds(user)),
            line("rusage_system", seconds(system)),
            line("max_connections", self.connections_max),
            line("curr_connections", open),
            line("total_connections", self.total.load(Ordering::Relaxed)),
            line(
                "rejected_connections",
                self.rejected.load(Ordering::Relaxed),
            ),
            line("connection_structures", open),
            line("bytes_read", sum(|traffic| &traffic.bytes_read)),
            line("bytes_written", sum(|traffic| &traffic.bytes_written)),
            line("accepting_conns", u8::from(self.is_accepting())),
            line("listen_disabled_num", self.pauses.load(Ordering::Relaxed)),
            line(
                "time_in_listen_disabled_us",
                self.paused_for(std::time::Instant::now()).as_micros(),
            ),
            line("reserved_fds", config.reserved_descriptors()),
            line("threads", config.threads),
            line("cmd_meta", sum(|traffic| &traffic.meta_commands)),
            line("conn_yields", sum(|traffic| &traffic.yields)),
            line(
                "read_buf_oom",
                self.out_of_memory_input.load(Ordering::Relaxed),
            ),
            line(
                "response_obj_oom",
                self.out_of_memory_output.load(Ordering::Relaxed),
            ),
            line("idle_kicks", self.idle.load(Ordering::Relaxed)),
            line("malloc_fails", headroom::refused()),
            line("auth_cmds", self.authentications.load(Ordering::Relaxed)),
            line(
                "auth_errors",
                self.authentication_failures.load(Ordering::Relaxed),
            ),
            line("log_dropped", config.log_dropped.load(Ordering::Relaxed)),
        ]
    }
}

/// The lines of `stats settings`.
pub(crate) fn settings_lines(config: &Config) -> Vec<StatsLine> {
    let mut lines = connection_settings(config);
    lines.extend(permission_settings(config));
    lines.extend(item_settings(config));
    lines.extend(client_settings(config));
    lines.extend(ABSENT_SETTINGS.map(|name| line(name, 0)));
    lines.extend(config.tls.iter().flat_map(tls_settings_lines));
    lines
}

/// memcached settings without a counterpart here: tools report a server without these lines as broken.
const ABSENT_SETTINGS: [&str; 27] = [
    "growth_factor",
    "chunk_size",
    "num_threads_per_udp",
    "reqs_per_event",
    "hashpower_init",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_automove_freeratio",
    "slab_chunk_max",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "tail_repair_time",
    "hot_lru_pct",
    "warm_lru_pct",
    "hot_max_factor",
    "warm_max_factor",
    "temporary_ttl",
    "worker_logbuf_size",
    "ext_item_size",
    "ext_item_age",
    "ext_low_ttl",
    "ext_recache_rate",
    "ext_wbuf_size",
    "ext_compact_under",
    "ext_drop_under",
    "ext_max_sleep",
    "ext_max_frag",
];

/// The listeners, and the limits of connections.
fn connection_settings(config: &Config) -> Vec<StatsLine> {
    let listen: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
    let unix_path = config
        .unix_socket
        .as_ref()
        .map(|unix| unix.path.display().to_string());
    let unix_mode = config.unix_socket.as_ref().map_or(0o700, |unix| unix.mode);
    let unix_mode = format!("{unix_mode:o}");
    let port = config.listen.first().map_or(0, |address| address.port);
    vec![
        line("maxconns", config.connections_max),
        line("tcpport", port),
        line("udpport", 0),
        line(
            "inter",
            if listen.is_empty() {
                "NULL".into()
            } else {
                one_word(&listen.join(","))
            },
        ),
        line("verbosity", config.verbosity),
        line("evictions", if config.evict { "on" } else { "off" }),
        line(
            "domain_socket",
            unix_path.map_or("NULL".into(), |path| one_word(&path)),
        ),
        line("num_threads", config.threads),
        line("tcp_backlog", config.backlog),
        line("item_size_max", config.value_bytes_max),
        line("maxconns_fast", yes(config.reject_past_limit)),
        line(
            "idle_timeout",
            config.idle_timeout.map_or(0, |timeout| timeout.as_secs()),
        ),
        line("read_buf_mem_limit", config.unfinished_bytes_max()),
        line("resp_obj_mem_limit", config.unsent_bytes_max()),
        line("umask", unix_mode),
        line("oldest", 0),
    ]
}

/// What clients may do, and after which login.
fn permission_settings(config: &Config) -> Vec<StatsLine> {
    vec![
        line("shutdown_command", yes(config.allowed.shutdown)),
        line("cas_enabled", "yes"),
        line(
            "binding_protocol",
            match config.allowed.protocols {
                Protocols::Text => "ascii",
                Protocols::Any if config.auth_file.is_some() && !config.sasl => "ascii",
                Protocols::Binary => "binary",
                Protocols::Any => "auto-negotiate",
            },
        ),
        line("auth_enabled_sasl", yes(config.sasl)),
        line(
            "auth_enabled_ascii",
            yes(config.auth_file.is_some() && config.allowed.protocols != Protocols::Binary),
        ),
        line("flush_enabled", yes(config.allowed.flush_all)),
        line("dump_enabled", yes(config.allowed.listing)),
    ]
}

/// The storage of items, and the texts about them.
fn item_settings(config: &Config) -> Vec<StatsLine> {
    vec![
        line("slab_reassign", "no"),
        line("slab_automove", 0),
        line("lru_crawler", "no"),
        line("lru_maintainer_thread", "no"),
        line("lru_segmented", "no"),
        line("temp_lru", "no"),
        line("track_sizes", "no"),
        line("inline_ascii_response", "no"),
        line("hash_algorithm", "siphash13"),
        line("client_flags_size", size_of::<u32>()),
        line(
            "memory_file",
            config.memory_file.as_deref().map_or_else(
                || "(null)".into(),
                |path| one_word(&path.display().to_string()),
            ),
        ),
        line("num_napi_ids", 0),
        line("watcher_logbuf_size", config.watcher_bytes_max),
        line(
            "stat_key_prefix",
            char::from(config.prefix_delimiter.unwrap_or(b':')),
        ),
    ]
}

/// The limits of each client, and its locks.
fn client_settings(config: &Config) -> Vec<StatsLine> {
    vec![
        line(
            "conns_per_peer",
            config.connections_per_peer_max.map_or(0, NonZeroUsize::get),
        ),
        line("locks_per_conn", config.locks_per_connection_max),
        line("sessions_max", config.sessions.sessions_max),
        line("sessions_per_peer", config.sessions.per_address_max),
        line(
            "locked_reply",
            match config.allowed.locked_reply {
                LockedReply::Locked => "locked",
                LockedReply::NotStored => "not_stored",
            },
        ),
        line("dead_peer", config.dead_peer.as_secs()),
        line("ssl_enabled", yes(config.tls.is_some())),
        line("ext_drop_unread", "no"),
    ]
}

const fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

/// The TLS settings, by memcached's names and numbers.
fn tls_settings_lines(tls: &TlsSettings) -> Vec<StatsLine> {
    let path = |path: &Path| one_word(&path.display().to_string());
    let or_null = |text: Option<String>| text.unwrap_or_else(|| "NULL".into());
    let mode = match tls.client_certificate {
        ClientCertificate::Unasked => 0,
        ClientCertificate::Asked => 1,
        // OpenSSL's SSL_VERIFY_PEER and SSL_VERIFY_FAIL_IF_NO_PEER_CERT.
        ClientCertificate::Required => 3,
    };
    let format = match tls.key_format {
        KeyFormat::Pem => 1,
        KeyFormat::Der => 2,
    };
    let version = match tls.min_version {
        TlsVersion::V1_2 => "tlsv1.2",
        TlsVersion::V1_3 => "tlsv1.3",
    };
    let ciphers = tls.ciphers.as_ref().map(|names| one_word(&names.join(":")));
    vec![
        line("ssl_chain_cert", path(&tls.chain_cert)),
        line("ssl_key", path(tls.key.as_ref().unwrap_or(&tls.chain_cert))),
        line("ssl_verify_mode", mode),
        line("ssl_keyformat", format),
        line("ssl_ciphers", or_null(ciphers)),
        line("ssl_ca_cert", or_null(tls.ca_cert.as_deref().map(path))),
        line(
            "ssl_session_cache",
            if tls.session_cache { "yes" } else { "no" },
        ),
        line("ssl_min_version", version),
    ]
}

/// A line of `stats`; the value without blanks.
// By value, so that a list of lines reads as one.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn line(name: impl Into<Cow<'static, str>>, value: impl Display) -> StatsLine {
    StatsLine::new(name, value)
}

/// A value of `stats` holds no blanks.
fn one_word(text: &str) -> String {
    text.replace(|c: char| c.is_whitespace() || c.is_control(), "_")
}

/// A time as in the `rusage` lines: with six digits of microseconds.
fn seconds(time: Duration) -> String {
    format!("{}.{:06}", time.as_secs(), time.subsec_micros())
}

/// The processor time of the process, in its own code and in the kernel. 0 if the kernel does not report it.
fn cpu_time() -> (Duration, Duration) {
    // Fields 14 and 15 of proc(5) `stat`, counted from behind the name, which may hold blanks.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks_per_s = rustix::param::clock_ticks_per_second().max(1);
    let mut fields = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .skip(11);
    let mut time = || {
        let ticks: u64 = fields
            .next()
            .and_then(|field| field.parse().ok())
            .unwrap_or(0);
        Duration::from_millis(ticks.saturating_mul(1000) / ticks_per_s)
    };
    (time(), time())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(lines: &[StatsLine], name: &str) -> String {
        let mut found = lines.iter().filter(|line| line.name == name);
        let value = found
            .next()
            .unwrap_or_else(|| panic!("no {name}"))
            .value
            .clone();
        assert!(found.next().is_none(), "{name} is there twice");
        value
    }

    #[test]
    fn connections_are_counted() {
        let stats = ConnectionStats::new(2, 1);
        stats.count_open();
        assert!(!stats.is_full());
        stats.count_open();
        assert!(stats.is_full());
        stats.count_closed();
        stats.count_closed();
        stats.pause();
        stats.pause();
        let lines = stats.general_lines(&Config::default(), &Clock::start());
        assert_eq!(value(&lines, "curr_connections"), "0");
        assert_eq!(value(&lines, "total_connections"), "2");
        assert_eq!(value(&lines, "accepting_conns"), "0");
        assert_eq!(value(&lines, "listen_disabled_num"), "1");
    }

    #[test]
    fn reset_keeps_the_gauges() {
        let stats = ConnectionStats::new(2, 2);
        stats.count_open();
        stats.traffic(1).count_read(10);
        stats.reset();
        let lines = stats.general_lines(&Config::default(), &Clock::start());
        assert_eq!(value(&lines, "curr_connections"), "1");
        assert_eq!(value(&lines, "bytes_read"), "0");
    }

    #[test]
    fn a_pause_is_one_until_it_ends() {
        let stats = ConnectionStats::new(2, 1);
        let shown = |name| {
            let lines = stats.general_lines(&Config::default(), &Clock::start());
            value(&lines, name)
        };
        for pauses in ["1", "2"] {
            stats.pause();
            stats.pause();
            assert_eq!(shown("accepting_conns"), "0");
            assert_eq!(shown("listen_disabled_num"), pauses);
            let since = stats.paused().since.expect("a pause");
            let before = stats.paused_for(since);
            let later = since + Duration::from_millis(7);
            assert_eq!(stats.paused_for(later), before + Duration::from_millis(7));
            stats.resume();
            stats.resume();
            assert_eq!(shown("accepting_conns"), "1");
        }
    }

    #[test]
    fn no_value_holds_a_blank() {
        let mut config = Config::default();
        let path = "/tmp/a b".into();
        config.unix_socket = Some(crate::UnixSocket { path, mode: 0o700 });
        let stats = ConnectionStats::new(2, 1);
        let general = stats.general_lines(&config, &Clock::start());
        for line in general.into_iter().chain(settings_lines(&config)) {
            assert!(
                !line.value.is_empty() && !line.value.contains(' '),
                "{line:?}"
            );
        }
    }

    #[test]
    fn time_used_is_seconds_and_six_digits() {
        assert_eq!(seconds(Duration::from_micros(1_000_042)), "1.000042");
    }

    #[test]
    fn time_used_goes_up_with_use() {
        let (user, system) = cpu_time();
        // The loop ends when the time grows; a stuck clock would hang the test.
        while cpu_time() == (user, system) {}
        let (later_user, later_system) = cpu_time();
        assert!(later_user + later_system > user + system);
    }
}

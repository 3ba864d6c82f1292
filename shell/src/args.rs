//! The command line: memcached's, so that a start script works unchanged.
//!
//! Three kinds of flags: those that mean something here; those that mean nothing here and are
//! accepted with one warning; and those that would leave the server less guarded than its caller
//! believes (authentication, TLS, no `flush_all`), which are refused.
//!
//! Source: memcached 1.6.45 `memcached.c`, `usage` and `main`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Parser};
use latchd::{Config, ListenAddress, UnixSocket};

/// The smallest and the largest `-I`, in bytes. Source: memcached 1.6.45 `memcached.c`, `main`.
const VALUE_BYTES: std::ops::RangeInclusive<usize> = 1 << 10..=1 << 30;

/// A cache server with locks that die with their client. It speaks memcached's protocols.
#[derive(Debug, Parser)]
#[command(
    name = "latchd",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) task: Option<Task>,
    /// TCP port; 0 for none (with -s), -1 for any free one
    #[arg(short, long, value_name = "PORT", default_value_t = 11211, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..=65535))]
    port: i32,
    /// Addresses to listen on, HOST or HOST:PORT, separated by commas; `*` for all of them
    #[arg(
        short,
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        default_value = "127.0.0.1"
    )]
    listen: Vec<String>,
    /// Unix socket to listen on; turns TCP off, but for what -l names
    #[arg(short = 's', long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// Who may use the Unix socket, in octal
    #[arg(short = 'a', long, value_name = "MODE", default_value = "700", value_parser = octal)]
    unix_mask: u32,
    /// Memory for items, in megabytes
    #[arg(short, long, value_name = "MB", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..))]
    memory_limit: u32,
    /// Refuse to store when memory is full, instead of evicting
    #[arg(short = 'M', long)]
    disable_evictions: bool,
    /// Connections at a time
    #[arg(short, long, value_name = "NUMBER", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..))]
    conn_limit: u32,
    /// Threads [default: 4, or as many as there are cores if that is fewer]
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// The largest value, in bytes, or with k or m
    #[arg(short = 'I', long, value_name = "SIZE", default_value = "1m", value_parser = value_bytes)]
    max_item_size: usize,
    /// Connections that may wait to be accepted
    #[arg(short = 'b', long, value_name = "NUMBER", default_value_t = 1024)]
    listen_backlog: u16,
    /// Say more: -v connections, -vv requests and answers, -vvv locks
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// Seconds until the locks of a peer are free that is gone without a word
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(2..=7200))]
    dead_peer: u32,
    /// Log there instead of to standard error; SIGHUP opens it anew
    #[arg(long, value_name = "PATH")]
    pub(crate) log_file: Option<PathBuf>,
    /// More options, separated by commas: `idle_timeout=SECONDS` closes silent connections (0, the
    /// default, does not); `no_maxconns_fast` lets connections past -c wait instead of refusing;
    /// `locks_per_conn=NUMBER` bounds the locks that one connection holds (65536);
    /// `read_buf_mem_limit=MB` and `resp_obj_mem_limit=MB` bound what all connections have not
    /// finished and not taken (0 does not)
    #[arg(short = 'o', long, value_name = "OPTIONS", value_delimiter = ',')]
    extended: Vec<String>,
    #[command(flatten)]
    ignored: Ignored,
    #[command(flatten)]
    refused: Refused,
}

/// What there is to do besides being a server.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Task {
    #[command(after_help = crate::lock::HELP)]
    Lock(crate::lock::LockArgs),
}

/// Flags of memcached that mean nothing here.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
struct Ignored {
    #[arg(short = 'd', long, hide = true)]
    daemon: bool,
    #[arg(short = 'r', long, hide = true)]
    enable_coredumps: bool,
    #[arg(short = 'k', long, hide = true)]
    lock_memory: bool,
    #[arg(short = 'L', long, hide = true)]
    enable_largepages: bool,
    #[arg(short = 'C', long, hide = true)]
    disable_cas: bool,
    #[arg(short = 'A', long, hide = true)]
    enable_shutdown: bool,
    #[arg(short = 'X', long, hide = true)]
    disable_dumping: bool,
    #[arg(short = 'W', long, hide = true)]
    disable_watch: bool,
    #[arg(short = 'u', long, hide = true)]
    user: Option<String>,
    #[arg(short = 'P', long, hide = true)]
    pidfile: Option<String>,
    #[arg(short = 'f', long, hide = true)]
    slab_growth_factor: Option<String>,
    #[arg(short = 'n', long, hide = true)]
    slab_min_size: Option<String>,
    #[arg(short = 'D', hide = true)]
    delimiter: Option<String>,
    #[arg(short = 'R', long, hide = true)]
    max_reqs_per_event: Option<String>,
    #[arg(short = 'e', long, hide = true)]
    memory_file: Option<String>,
    #[arg(short = 'N', long, hide = true)]
    napi_ids: Option<String>,
    /// Port 0 is how a start script says "no UDP", and there is none.
    #[arg(short = 'U', long, hide = true)]
    udp_port: Option<u16>,
    /// Every protocol is recognised by its first bytes.
    #[arg(short = 'B', long, hide = true,
        value_parser = PossibleValuesParser::new(["auto", "ascii", "binary"]))]
    protocol: Option<String>,
}

/// Flags of memcached that guard something latchd cannot guard yet.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // As above.
struct Refused {
    #[arg(short = 'S', long, hide = true)]
    enable_sasl: bool,
    #[arg(short = 'Y', long, hide = true)]
    auth_file: Option<String>,
    #[arg(short = 'Z', long, hide = true)]
    enable_ssl: bool,
    #[arg(short = 'F', long, hide = true)]
    disable_flush_all: bool,
}

/// Options of `-o` that memcached has and that mean nothing here, also with `no_` before them.
const IGNORED_OPTIONS: &[&str] = &[
    "chunked_items",
    "drop_privileges",
    "hash_algorithm",
    "hashexpand",
    "hashpower",
    "hot_lru_pct",
    "hot_max_factor",
    "inline_ascii_resp",
    "lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "modern",
    "slab_automove",
    "slab_automove_freeratio",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_chunk_max",
    "slab_reassign",
    "slab_sizes",
    "sock_cookie_id",
    "tail_repair_time",
    "temporary_ttl",
    "track_sizes",
    "warm_lru_pct",
    "warm_max_factor",
    "watcher_logbuf_size",
    "worker_logbuf_size",
];

impl Args {
    /// What the flags ask for, and those of them that ask for nothing.
    ///
    /// # Errors
    /// A sentence for a person.
    pub(crate) fn into_config(self) -> Result<(Config, Vec<String>), String> {
        self.refused.refuse()?;
        let mut ignored = self.ignored.given();
        let mut config = Config::default();
        config.listen = self.listen()?;
        config.unix_socket = self.unix_socket.map(|path| UnixSocket {
            path,
            mode: self.unix_mask & 0o777,
        });
        if config.listen.is_empty() && config.unix_socket.is_none() {
            return Err("with port 0 and without -s there is nowhere to listen".into());
        }
        config.backlog = self.listen_backlog;
        config.memory_bytes_max = usize::try_from(u64::from(self.memory_limit) << 20)
            .map_err(|_| "-m is more than this machine can address")?;
        config.value_bytes_max = self.max_item_size;
        if config.value_bytes_max > config.memory_bytes_max / 2 {
            return Err("-I is more than half of -m".into());
        }
        config.evict = !self.disable_evictions;
        config.connections_max = self.conn_limit as usize;
        config.dead_peer = Duration::from_secs(u64::from(self.dead_peer));
        config.verbosity = self.verbose;
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = self.threads.map_or(cores.min(4), usize::from);
        config.threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
        for option in &self.extended {
            extend(&mut config, option, &mut ignored)?;
        }
        Ok((config, ignored))
    }

    /// The TCP addresses.
    fn listen(&self) -> Result<Vec<ListenAddress>, String> {
        let is_default = self.listen == ["127.0.0.1"];
        // memcached's -s turns the network off; here -l beside it turns it on again by name.
        if self.unix_socket.is_some() && is_default {
            return Ok(Vec::new());
        }
        let port = match self.port {
            0 => None,
            -1 => Some(0),
            port => u16::try_from(port).ok(),
        };
        let mut addresses = Vec::new();
        for text in &self.listen {
            // Port 0 of -p means "none", but an address may name a port of its own.
            const UNNAMED: u16 = 0;
            let parsed = ListenAddress::parse(text, port.unwrap_or(UNNAMED))?;
            if port.is_some() || text.ends_with(&format!(":{}", parsed.port)) {
                addresses.push(parsed);
            }
        }
        Ok(addresses)
    }
}

impl Ignored {
    /// The flags that were given.
    fn given(&self) -> Vec<String> {
        let Self {
            daemon,
            enable_coredumps,
            lock_memory,
            enable_largepages,
            disable_cas,
            enable_shutdown,
            disable_dumping,
            disable_watch,
            user,
            pidfile,
            slab_growth_factor,
            slab_min_size,
            delimiter,
            max_reqs_per_event,
            memory_file,
            napi_ids,
            udp_port,
            protocol,
        } = self;
        [
            ("-d", *daemon),
            ("-r", *enable_coredumps),
            ("-k", *lock_memory),
            ("-L", *enable_largepages),
            ("-C", *disable_cas),
            ("-A", *enable_shutdown),
            ("-X", *disable_dumping),
            ("-W", *disable_watch),
            ("-u", user.is_some()),
            ("-P", pidfile.is_some()),
            ("-f", slab_growth_factor.is_some()),
            ("-n", slab_min_size.is_some()),
            ("-D", delimiter.is_some()),
            ("-R", max_reqs_per_event.is_some()),
            ("-e", memory_file.is_some()),
            ("-N", napi_ids.is_some()),
            ("-U", udp_port.is_some_and(|port| port != 0)),
            (
                "-B",
                protocol.as_ref().is_some_and(|protocol| protocol != "auto"),
            ),
        ]
        .into_iter()
        .filter(|(_, is_given)| *is_given)
        .map(|(flag, _)| flag.to_owned())
        .collect()
    }
}

impl Refused {
    fn refuse(&self) -> Result<(), String> {
        let Self {
            enable_sasl,
            auth_file,
            enable_ssl,
            disable_flush_all,
        } = self;
        if *enable_sasl || auth_file.is_some() {
            Err("latchd cannot authenticate clients yet: listen where only friends can connect")
        } else if *enable_ssl {
            Err("latchd has no TLS yet: put a proxy that has it before a Unix socket (-s)")
        } else if *disable_flush_all {
            Err("latchd cannot disable flush_all yet")
        } else {
            Ok(())
        }
        .map_err(ToOwned::to_owned)
    }
}

/// Takes one option of `-o`.
fn extend(config: &mut Config, option: &str, ignored: &mut Vec<String>) -> Result<(), String> {
    let (name, value) = option
        .split_once('=')
        .map_or((option, None), |(n, v)| (n, Some(v)));
    match (name, value) {
        ("idle_timeout", value) => {
            let seconds = number(name, value, "seconds")?;
            let timeout = Duration::from_secs(u64::from(seconds));
            config.idle_timeout = (seconds > 0).then_some(timeout);
        }
        ("locks_per_conn", value) => {
            let locks = number(name, value, "locks")?;
            config.locks_per_connection_max = usize::try_from(locks).unwrap_or(usize::MAX);
        }
        ("read_buf_mem_limit", value) => {
            config.unfinished_bytes_max = Some(megabytes(number(name, value, "megabytes")?));
        }
        ("resp_obj_mem_limit", value) => {
            config.unsent_bytes_max = Some(megabytes(number(name, value, "megabytes")?));
        }
        ("maxconns_fast", _) => config.reject_past_limit = true,
        ("no_maxconns_fast", _) => config.reject_past_limit = false,
        _ => {
            let stem = name.strip_prefix("no_").unwrap_or(name);
            if !IGNORED_OPTIONS.contains(&stem) && !stem.starts_with("ext_") {
                return Err(format!("-o {name}: no such option"));
            }
            ignored.push(format!("-o {name}"));
        }
    }
    Ok(())
}

/// The value of an option of `-o`.
fn number(name: &str, value: Option<&str>, unit: &str) -> Result<u32, String> {
    value
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("-o {name} needs a number of {unit}"))
}

/// A bound in bytes; 0 is none.
fn megabytes(number: u32) -> usize {
    match number {
        0 => usize::MAX,
        number => usize::try_from(u64::from(number) << 20).unwrap_or(usize::MAX),
    }
}

fn octal(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8).map_err(|_| "an octal number, such as 770".to_owned())
}

/// Reads a size: a number of bytes, or one with `k` or `m`.
fn value_bytes(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 10),
        None => text
            .strip_suffix(['m', 'M'])
            .map_or((text, 0), |digits| (digits, 20)),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| VALUE_BYTES.contains(bytes))
        .ok_or_else(|| "a size from 1k to 1024m".to_owned())
}

#[cfg(test)]
mod tests;

//! The command line. Its flags are memcached's, so start scripts work unchanged.
//!
//! A flag of memcached is implemented, accepted with one warning because it has no effect here ([`ignored`]),
//! or refused because the server would be less protected, or do less, than its caller expects ([`refused`]).
//!
//! Flags are also read from the environment and from a file ([`sources`]).
//!
//! Source: memcached 1.6.45 `memcached.c`, `usage` and `main`.

mod environment;
mod extended;
mod file;
mod ignored;
mod operands;
mod refused;
mod setting;
mod sources;
mod tls;
mod words;

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Parser};
use latchd_protocol::wire::Protocols;
use latchd_server::{Config, ListenAddress, ListenTls, UnixSocket};

use self::extended::extend;
use self::ignored::Ignored;
use self::refused::Refused;
pub use self::sources::command;
pub(crate) use self::sources::read;
use crate::flags::{ClusterFlags, LOGGING, NETWORK, PROCESS, Process, SECURITY, TLS};

/// The largest number of threads.
const THREADS_MAX: usize = 64;

/// The text under the options.
const HELP: &str = "\
Sources: the command line overrides the environment, which overrides the file of --config.
  environment  LATCHD_ and the long name, such as LATCHD_MEMORY_LIMIT=64
  file         options in lines, such as -m 64";

/// The list of `--help` for `-o`. Each line begins with blanks, so a manual page keeps the lines apart.
const EXTENDED: &str = "\
Set extended options, separated by commas

  idle_timeout=SECONDS     Close idle connections after SECONDS; 0 disables [default: 0]
  no_maxconns_fast         Let connections beyond -c wait instead of refusing them
  conns_per_peer=NUMBER    Limit the connections from one address; 0 is no limit [default: 0]
  locks_per_conn=NUMBER    Limit the locks that one connection holds [default: 65536]
  sessions=NUMBER          Limit the sessions; 0 turns sessions off [default: 65536]
  sessions_per_peer=NUMBER Limit the sessions from one address; 0 is no limit [default: 16384]
  locked_reply=REPLY       Reply `locked` or `not_stored` to clients without locks [default: locked]
  read_buf_mem_limit=MB    Limit memory for incomplete requests; 0 is no limit [default: from -m]
  resp_obj_mem_limit=MB    Limit memory for unsent replies; 0 is no limit [default: from -m]
  watcher_logbuf_size=KB   Limit the events buffered for one `watch` client [default: 256]

With -Z, as in memcached:
  ssl_chain_cert=PATH      Present the certificate chain in this file (PEM); required
  ssl_key=PATH             Read the private key from this file [default: ssl_chain_cert]
  ssl_keyformat=FORMAT     Read the key as PEM (1) or DER (2) [default: 1]
  ssl_ca_cert=PATH         Trust client certificates signed by these authorities (PEM)
  ssl_verify_mode=MODE     Request client certificates: 0 no, 1 optional, 2 or 3 required [default: 0]
  ssl_min_version=VERSION  Require at least TLS 1.2 (2) or TLS 1.3 (3) [default: 2]
  ssl_ciphers=NAMES        Allow only these TLS 1.2 ciphers: OpenSSL names, separated by colons
  ssl_session_cache        Let clients resume their sessions";

/// The headings of `--help` that only the server has.
const MEMORY: &str = "Memory";
const MONITORING: &str = "Monitoring";
const MORE: &str = "Extended options";

/// A cache server that speaks memcached's protocols, with locks that end with their client.
#[derive(Debug, Parser)]
#[command(
    name = "latchd",
    version,
    args_conflicts_with_subcommands = true,
    after_help = HELP
)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) task: Option<Task>,
    /// Read options from the lines of this file, as in Debian's memcached.conf
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Listen on this TCP port; 0 disables TCP, -1 picks a free port
    #[arg(short, long, value_name = "PORT", default_value_t = 11211, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..=65535), help_heading = NETWORK)]
    port: i32,
    /// Listen on these addresses, separated by commas
    ///
    /// Each is HOST or HOST:PORT; `*` is every address of the machine.
    /// With -Z, prefix an address with `notls:` (no TLS), `btls:` (TLS, no client certificate)
    /// or `mtls:` (client certificate required).
    #[arg(
        short,
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        default_value = "127.0.0.1",
        help_heading = NETWORK,
        verbatim_doc_comment
    )]
    listen: Vec<String>,
    /// Listen on this Unix socket; disables TCP unless -l is given
    #[arg(short = 's', long, value_name = "PATH", help_heading = NETWORK)]
    unix_socket: Option<PathBuf>,
    /// Set the permissions of the Unix socket, in octal
    #[arg(short = 'a', long, value_name = "MODE", default_value = "700", value_parser = octal,
        help_heading = NETWORK)]
    unix_mask: u32,
    /// Serve at most this many connections at the same time
    #[arg(short, long, value_name = "NUMBER", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..), help_heading = NETWORK)]
    conn_limit: u32,
    /// Let at most this many new connections wait to be accepted
    #[arg(short = 'b', long, value_name = "NUMBER", default_value_t = 1024, help_heading = NETWORK)]
    listen_backlog: u16,
    /// Speak only this protocol; auto speaks all of them
    #[arg(short = 'B', long, value_name = "NAME", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "ascii", "binary"]), help_heading = NETWORK)]
    protocol: String,
    /// Release the locks of an unreachable client after SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(2..=7200), help_heading = NETWORK)]
    dead_peer: u32,
    /// Use at most this much memory for items, in megabytes
    #[arg(short, long, value_name = "MB", default_value_t = 64, value_parser = megabytes,
        help_heading = MEMORY)]
    memory_limit: u32,
    /// Accept values up to this size: bytes, or with suffix k or m
    #[arg(short = 'I', long, value_name = "SIZE", default_value = "1m", value_parser = value_bytes,
        help_heading = MEMORY)]
    max_item_size: usize,
    /// Refuse to store when memory is full, instead of evicting items
    #[arg(short = 'M', long, help_heading = MEMORY)]
    disable_evictions: bool,
    /// Save items to this file at shutdown, and load them at the next start
    #[arg(short = 'e', long, value_name = "PATH", help_heading = MEMORY)]
    memory_file: Option<PathBuf>,
    /// Require clients to log in as a user of this file
    ///
    /// Each line is `name:password`. Without -S, clients can log in only by the text protocols.
    #[arg(short = 'Y', long, value_name = "PATH", help_heading = SECURITY)]
    auth_file: Option<PathBuf>,
    /// Let clients of the binary protocol log in by SASL (PLAIN); requires -Y
    #[arg(short = 'S', long, help_heading = SECURITY)]
    enable_sasl: bool,
    #[command(flatten)]
    guards: Guards,
    /// Overwrite values with zeros when their items are removed
    ///
    /// This covers items that are deleted, replaced, evicted or removed by the expiry sweep.
    #[arg(long, help_heading = SECURITY)]
    secure_erase: bool,
    /// Speak TLS on TCP; requires `-o ssl_chain_cert=PATH`
    #[arg(short = 'Z', long, help_heading = TLS)]
    enable_ssl: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Serve metrics, held locks and a status page over HTTP at this address
    ///
    /// ADDRESS is HOST or HOST:PORT; the default port is 9150.
    /// The paths are `/` (status page), `/metrics` (Prometheus), `/locks.json`, `/healthz` and `/primary`.
    #[arg(long, value_name = "ADDRESS", value_parser = status_address, help_heading = MONITORING,
        verbatim_doc_comment)]
    status: Option<ListenAddress>,
    /// Accept these host names, separated by commas, in browser requests
    ///
    /// The status page and /locks.json always accept IP addresses and the machine's own name.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = host_name,
        help_heading = MONITORING)]
    status_host: Vec<String>,
    /// Count keys by their prefix up to CHARACTER, for `stats detail dump`
    #[arg(short = 'D', value_name = "CHARACTER", value_parser = delimiter, help_heading = MONITORING)]
    prefix_delimiter: Option<u8>,
    /// Log more: -v connections, -vv requests and replies, -vvv locks
    #[arg(short, long, action = ArgAction::Count, help_heading = LOGGING)]
    verbose: u8,
    #[command(flatten)]
    pub(crate) process: Process,
    /// Run this many threads, at most 64 [default: 4, or fewer on fewer cores]
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..),
        help_heading = PROCESS)]
    threads: Option<u16>,
    /// Set extended options, separated by commas; `--help` lists them
    #[arg(short = 'o', long, value_name = "OPTIONS", value_delimiter = ',', long_help = EXTENDED,
        help_heading = MORE)]
    extended: Vec<String>,
    #[command(flatten)]
    ignored: Ignored,
    #[command(flatten)]
    refused: Refused,
    /// About words that are ignored.
    #[arg(skip)]
    pub(crate) warnings: Vec<String>,
}

/// The subcommands: everything but being a server.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Task {
    #[command(after_help = crate::lock::SHORT_HELP, after_long_help = crate::lock::HELP)]
    Lock(crate::lock::LockArgs),
    #[command(after_help = crate::locks::LOCKS_HELP)]
    Locks(crate::locks::LocksArgs),
    #[command(after_help = crate::locks::UNLOCK_HELP)]
    Unlock(crate::locks::UnlockArgs),
    #[command(after_help = crate::cli::SHORT_HELP, after_long_help = crate::cli::HELP)]
    Cli(crate::cli::CliArgs),
    #[command(after_help = crate::check::HELP)]
    Check(crate::check::CheckArgs),
    #[command(after_help = crate::cluster::HELP, disable_help_subcommand = true)]
    Cluster(crate::cluster::ClusterArgs),
    #[command(after_help = crate::bench::HELP)]
    Bench(crate::bench::BenchArgs),
}

/// The commands that clients may send.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
struct Guards {
    /// Refuse `flush_all`
    #[arg(short = 'F', long, help_heading = SECURITY)]
    disable_flush_all: bool,
    /// Refuse commands that list keys: `keys`, dumps, `stats locks`, `watch`
    #[arg(short = 'X', long, help_heading = SECURITY)]
    disable_dumping: bool,
    /// Refuse `watch`
    #[arg(short = 'W', long, help_heading = SECURITY)]
    disable_watch: bool,
    /// Let clients stop the server with `shutdown`
    #[arg(short = 'A', long, help_heading = SECURITY)]
    enable_shutdown: bool,
}

impl Args {
    /// The configuration, and the flags that have no effect. If another process has handed over `sockets`, they
    /// replace the addresses.
    ///
    /// # Errors
    /// A message for the operator.
    pub(crate) fn into_config(
        self,
        sockets: Vec<Arc<OwnedFd>>,
    ) -> Result<(Config, Vec<String>), String> {
        self.refused.refuse()?;
        let mut ignored = self.ignored.given();
        let mut config = Config::default();
        config.listen = self.listen()?;
        config.unix_socket = self.unix_socket.map(|path| UnixSocket {
            path,
            mode: self.unix_mask & 0o777,
        });
        if !sockets.is_empty() {
            config.listen = Vec::new();
            config.unix_socket = None;
            config.sockets = sockets;
        } else if config.listen.is_empty() && config.unix_socket.is_none() {
            return Err(
                "-p 0 disables TCP: the server has no address to listen on; add -s PATH or \
                 -l HOST:PORT, or remove -p 0"
                    .into(),
            );
        }
        config.backlog = self.listen_backlog;
        config.memory_bytes_max = usize::try_from(u64::from(self.memory_limit) << 20)
            .map_err(|_| "-m: more memory than this machine can address; lower -m")?;
        config.value_bytes_max = self.max_item_size;
        config.memory_file = self.memory_file;
        config.evict = !self.disable_evictions;
        config.secure_erase = self.secure_erase;
        config.connections_max = self.conn_limit as usize;
        config.dead_peer = Duration::from_secs(u64::from(self.dead_peer));
        if !self.status_host.is_empty() && self.status.is_none() {
            return Err(
                "--status-host: the server has no status port; add --status ADDRESS".into(),
            );
        }
        config.status = self.status;
        config.status_hosts = self.status_host;
        config.verbosity = self.verbose;
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = self.threads.map_or(cores.min(4), usize::from);
        if threads > THREADS_MAX {
            ignored.push(format!("-t beyond {THREADS_MAX}"));
        }
        config.threads = NonZeroUsize::new(threads.min(THREADS_MAX)).unwrap_or(NonZeroUsize::MIN);
        config.allowed.flush_all = !self.guards.disable_flush_all;
        config.allowed.listing = !self.guards.disable_dumping;
        config.allowed.watching = !self.guards.disable_watch;
        config.allowed.shutdown = self.guards.enable_shutdown;
        config.allowed.protocols = match self.protocol.as_str() {
            "ascii" => Protocols::Text,
            "binary" => Protocols::Binary,
            _ => Protocols::Any,
        };
        match config.allowed.protocols {
            Protocols::Binary if self.auth_file.is_some() && !self.enable_sasl => {
                return Err(
                    "-Y with -B binary: clients of the binary protocol log in by SASL; add -S"
                        .into(),
                );
            }
            Protocols::Text if self.enable_sasl => {
                return Err(
                    "-S with -B ascii: SASL is part of the binary protocol; remove one of them"
                        .into(),
                );
            }
            Protocols::Any | Protocols::Text | Protocols::Binary => {}
        }
        config.sasl = self.enable_sasl;
        config.auth_file = self.auth_file;
        config.prefix_delimiter = self.prefix_delimiter;
        let tls = extend(&mut config, &self.extended, &mut ignored)?;
        config.tls = tls.finish(self.enable_ssl)?;
        let state = self.cluster.state.clone();
        config.cluster = self.cluster.settings()?;
        config.state = state.filter(|_| config.cluster.is_none());
        config.check()?;
        Ok((config, ignored))
    }

    /// Checks every flag by itself, independently of the others.
    ///
    /// # Errors
    /// A message for the operator, about the first wrong flag.
    fn check_each(&self) -> Result<(), String> {
        self.refused.refuse()?;
        for text in &self.listen {
            listen_address(text, 0)?;
        }
        extend(&mut Config::default(), &self.extended, &mut Vec::new())?;
        Ok(())
    }

    /// The TCP addresses.
    fn listen(&self) -> Result<Vec<ListenAddress>, String> {
        let is_default = self.listen == ["127.0.0.1"];
        // As in memcached, -s disables TCP. Here an explicit -l enables it again.
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
            // `-p 0` disables TCP, but an address may still name its own port.
            const UNNAMED: u16 = 0;
            let parsed = listen_address(text, port.unwrap_or(UNNAMED))?;
            if port.is_some() || text.ends_with(&format!(":{}", parsed.port)) {
                addresses.push(parsed);
            }
        }
        Ok(addresses)
    }
}

/// Reads an address of `-l`, with its TLS prefix.
fn listen_address(text: &str, port: u16) -> Result<ListenAddress, String> {
    let prefixes = [
        ("notls:", ListenTls::Never),
        ("btls:", ListenTls::Basic),
        ("mtls:", ListenTls::Mutual),
    ];
    let found = prefixes
        .into_iter()
        .find_map(|(prefix, tls)| Some((text.strip_prefix(prefix)?, tls)));
    let (text, tls) = found.unwrap_or((text, ListenTls::Usual));
    if text.starts_with("proto[") || text.starts_with("tag[") {
        return Err(format!(
            "-l {text}: `proto[...]` and `tag[...]` are not supported; use -B for all addresses"
        ));
    }
    let parsed = ListenAddress::parse(text, port);
    let mut address = parsed.map_err(|why| format!("-l {why}"))?;
    address.tls = tls;
    Ok(address)
}

/// Reads the address of the status port. Its default port is that of memcached's exporter.
fn status_address(text: &str) -> Result<ListenAddress, String> {
    ListenAddress::parse(text, 9150)
}

/// Reads a host name, without a port.
fn host_name(text: &str) -> Result<String, String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.is_empty() || !text.bytes().all(is_letter) {
        return Err("expected a host name without a port, such as latchd.example".to_owned());
    }
    Ok(text.to_owned())
}

fn octal(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8).map_err(|_| "expected an octal number, such as 770".to_owned())
}

/// Reads one byte that a key can contain.
fn delimiter(text: &str) -> Result<u8, String> {
    match *text.as_bytes() {
        [byte] if byte.is_ascii_graphic() => Ok(byte),
        _ => Err("expected one character that a key can contain, such as :".to_owned()),
    }
}

/// Reads the megabytes of `-m`, with or without the unit: memcached reads `64MB` as 64. memcached also reads
/// `1g` as one megabyte; that is refused here.
fn megabytes(text: &str) -> Result<u32, String> {
    let unit = text.find(|letter: char| !letter.is_ascii_digit());
    let (digits, unit) = text.split_at(unit.unwrap_or(text.len()));
    if !matches!(unit.to_ascii_lowercase().as_str(), "" | "m" | "mb" | "mib") {
        return Err("expected megabytes, such as 64, 64m or 64MB; write 1024 for 1g".to_owned());
    }
    match digits.parse() {
        Ok(0) | Err(_) => Err("expected a number of megabytes from 1 to 4294967295".to_owned()),
        Ok(number) => Ok(number),
    }
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
        .ok_or_else(|| "expected a size such as 512k or 2m".to_owned())
}

#[cfg(test)]
mod tests;

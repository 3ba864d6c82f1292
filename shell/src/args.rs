//! The command line: memcached's, so that a start script works unchanged.
//!
//! Three kinds of flags: those that mean something here; those that mean nothing here and are accepted
//! with one warning ([`ignored`]); and those without which the server would be less guarded, or do
//! less, than its caller believes ([`refused`]).
//!
//! They also stand in the environment and in a file ([`sources`]).
//!
//! Source: memcached 1.6.45 `memcached.c`, `usage` and `main`.

mod blanks;
mod environment;
mod extended;
mod file;
mod ignored;
mod refused;
mod setting;
mod sources;
mod tls;

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Parser};
use latchd_core::wire::Protocols;
use latchd_server::{Config, ListenAddress, ListenTls, UnixSocket};

use self::extended::extend;
use self::ignored::Ignored;
use self::refused::Refused;
pub(crate) use self::sources::{command, read};
use self::tls::TlsOptions;
use crate::flags::Process;

/// The most threads a server runs.
const THREADS_MAX: usize = 64;

/// What stands under the options.
const HELP: &str = "\
Each option can also stand in the environment, as LATCHD_ and its long name (LATCHD_MEMORY_LIMIT=64), or in
a file (--config), one on a line. The command line comes before the environment, and that before the file.";

/// A cache server with locks that die with their client. It speaks memcached's protocols.
#[derive(Debug, Parser)]
#[command(
    name = "latchd",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_help = HELP
)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) task: Option<Task>,
    /// Read flags from this file, one a line, as in Debian's /etc/memcached.conf
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// TCP port; 0 for none (with -s), -1 for any free one
    #[arg(short, long, value_name = "PORT", default_value_t = 11211, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..=65535))]
    port: i32,
    /// Addresses to listen on, HOST or HOST:PORT, separated by commas; `*` for all of them. With -Z,
    /// `notls:`, `btls:` or `mtls:` before one is TLS not at all there, without and with a certificate
    /// of the client
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
    #[arg(short, long, value_name = "MB", default_value_t = 64, value_parser = megabytes)]
    memory_limit: u32,
    /// Write items to this file at the end, and read them from it at the next start
    #[arg(short = 'e', long, value_name = "PATH")]
    memory_file: Option<PathBuf>,
    /// Refuse to store when memory is full, instead of evicting
    #[arg(short = 'M', long)]
    disable_evictions: bool,
    /// Zero values when they are deleted, replaced, evicted or swept
    #[arg(long)]
    secure_erase: bool,
    /// Connections at a time
    #[arg(short, long, value_name = "NUMBER", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..))]
    conn_limit: u32,
    /// Threads, up to 64 [default: 4, or as many as there are cores if that is fewer]
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
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
    /// Tell what is counted and which locks are held over HTTP, at HOST or HOST:PORT (9150): /metrics
    /// for Prometheus, /locks.json, /healthz, and a page
    #[arg(long, value_name = "ADDRESS", value_parser = status_address)]
    status: Option<ListenAddress>,
    /// Names, separated by commas, by which a browser may ask for that page and /locks.json, besides addresses
    /// and the machine's own name
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = host_name)]
    status_host: Vec<String>,
    /// Which protocols are spoken: ascii, binary, or auto for all of them
    #[arg(short = 'B', long, value_name = "NAME", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "ascii", "binary"]))]
    protocol: String,
    /// Let in only who is in this file, a line `name:password` each; in text only, but with -S
    #[arg(short = 'Y', long, value_name = "PATH")]
    auth_file: Option<PathBuf>,
    /// Count keys by what stands before this character, from the start: `stats detail dump`
    #[arg(short = 'D', value_name = "CHARACTER", value_parser = delimiter)]
    prefix_delimiter: Option<u8>,
    /// Let clients of the binary protocol show by SASL (PLAIN) that they are in the file of -Y
    #[arg(short = 'S', long)]
    enable_sasl: bool,
    /// Speak TLS on TCP, with the certificate of `-o ssl_chain_cert`
    #[arg(short = 'Z', long)]
    enable_ssl: bool,
    #[command(flatten)]
    guards: Guards,
    /// More options, separated by commas: `idle_timeout=SECONDS` closes silent connections (0, the
    /// default, does not); `no_maxconns_fast` lets connections past -c wait instead of refusing;
    /// `conns_per_peer=NUMBER` bounds the connections from one address (0, the default, does not);
    /// `locks_per_conn=NUMBER` bounds the locks that one connection holds (65536);
    /// `locked_reply=not_stored` tells clients that use no locks of a lock in memcached's words
    /// instead of `LOCKED` (`locked`, the default);
    /// `read_buf_mem_limit=MB` and `resp_obj_mem_limit=MB` bound what all connections have not
    /// finished and not taken (0 does not); `watcher_logbuf_size=KB` bounds what waits for one who
    /// watches (256). TLS: `ssl_chain_cert=PATH`, `ssl_key=PATH`, `ssl_ca_cert=PATH`,
    /// `ssl_verify_mode=0..3`, `ssl_min_version=2..3`, `ssl_ciphers=NAMES`, `ssl_keyformat=1..2` and
    /// `ssl_session_cache`, as in memcached
    #[arg(short = 'o', long, value_name = "OPTIONS", value_delimiter = ',')]
    extended: Vec<String>,
    #[command(flatten)]
    pub(crate) process: Process,
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
    #[command(after_help = crate::cli::HELP)]
    Cli(crate::cli::CliArgs),
    #[command(after_help = crate::check::HELP)]
    Check(crate::check::CheckArgs),
    Man(crate::manual::ManArgs),
    Completions(crate::manual::CompletionsArgs),
}

/// What clients may ask for.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
struct Guards {
    /// Refuse `flush_all`
    #[arg(short = 'F', long)]
    disable_flush_all: bool,
    /// Refuse what tells the names of keys: `keys`, dumps, `stats locks`, `watch`
    #[arg(short = 'X', long)]
    disable_dumping: bool,
    /// Let clients end the server by `shutdown`
    #[arg(short = 'A', long)]
    enable_shutdown: bool,
    /// Refuse `watch`
    #[arg(short = 'W', long)]
    disable_watch: bool,
}

impl Args {
    /// What the flags ask for, and those of them that ask for nothing. If there are `sockets` that listen
    /// already, they are instead of the addresses.
    ///
    /// # Errors
    /// A sentence for a person.
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
                "-p 0 turns TCP off, and there is no Unix socket: nowhere to listen; add -s PATH, or \
                 -l HOST:PORT, or leave -p out"
                    .into(),
            );
        }
        config.backlog = self.listen_backlog;
        config.memory_bytes_max = usize::try_from(u64::from(self.memory_limit) << 20)
            .map_err(|_| "-m is more than this machine can address")?;
        config.value_bytes_max = self.max_item_size;
        config.memory_file = self.memory_file;
        config.evict = !self.disable_evictions;
        config.secure_erase = self.secure_erase;
        config.connections_max = self.conn_limit as usize;
        config.dead_peer = Duration::from_secs(u64::from(self.dead_peer));
        if !self.status_host.is_empty() && self.status.is_none() {
            return Err("--status-host is for a server with a status port: add --status".into());
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
                    "-Y authenticates clients in text, and -B binary does not speak it: add -S"
                        .into(),
                );
            }
            Protocols::Text if self.enable_sasl => {
                return Err(
                    "-S: SASL is for the binary protocol, and -B ascii does not speak it".into(),
                );
            }
            Protocols::Any | Protocols::Text | Protocols::Binary => {}
        }
        config.sasl = self.enable_sasl;
        config.auth_file = self.auth_file;
        config.prefix_delimiter = self.prefix_delimiter;
        let mut tls = TlsOptions::default();
        for option in self.extended.iter().map(|option| option.trim()) {
            if !tls.take(option, &mut ignored)? {
                extend(&mut config, option, &mut ignored)?;
            }
        }
        config.tls = tls.finish(self.enable_ssl)?;
        config.check()?;
        Ok((config, ignored))
    }

    /// Looks at every flag by itself, whatever the others are.
    ///
    /// # Errors
    /// The first that is wrong; a sentence for a person.
    fn check_each(&self) -> Result<(), String> {
        self.refused.refuse()?;
        for text in &self.listen {
            listen_address(text, 0)?;
        }
        let (mut config, mut ignored) = (Config::default(), Vec::new());
        let mut tls = TlsOptions::default();
        for option in self.extended.iter().map(|option| option.trim()) {
            if !tls.take(option, &mut ignored)? {
                extend(&mut config, option, &mut ignored)?;
            }
        }
        Ok(())
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
            let parsed = listen_address(text, port.unwrap_or(UNNAMED))?;
            if port.is_some() || text.trim().ends_with(&format!(":{}", parsed.port)) {
                addresses.push(parsed);
            }
        }
        Ok(addresses)
    }
}

/// Reads an address of `-l`, with what stands before it.
fn listen_address(text: &str, port: u16) -> Result<ListenAddress, String> {
    let text = text.trim();
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
            "-l {text}: an address has no protocol or tag of its own; -B is for all of them"
        ));
    }
    let mut address = ListenAddress::parse(text, port)?;
    address.tls = tls;
    Ok(address)
}

/// Reads the address of the status port. Its own port is that of memcached's exporter.
fn status_address(text: &str) -> Result<ListenAddress, String> {
    ListenAddress::parse(text, 9150)
}

/// Reads a host name, without a port.
fn host_name(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.is_empty() || !text.bytes().all(is_letter) {
        return Err("a host name without a port, such as latchd.example".to_owned());
    }
    Ok(text.to_owned())
}

fn octal(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8).map_err(|_| "an octal number, such as 770".to_owned())
}

/// Reads one byte that can stand in a key.
fn delimiter(text: &str) -> Result<u8, String> {
    match *text.as_bytes() {
        [byte] if byte.is_ascii_graphic() => Ok(byte),
        _ => Err("one character that can stand in a key, such as :".to_owned()),
    }
}

/// Reads the number of megabytes of `-m`, with or without its unit: memcached reads `64MB` as 64. It reads
/// `1g` as one megabyte, which nobody can want.
fn megabytes(text: &str) -> Result<u32, String> {
    let unit = text.find(|letter: char| !letter.is_ascii_digit());
    let (digits, unit) = text.split_at(unit.unwrap_or(text.len()));
    if !matches!(unit.to_ascii_lowercase().as_str(), "" | "m" | "mb" | "mib") {
        return Err(
            "-m takes megabytes and no other unit: 64, 64m or 64MB; 1024 for 1g".to_owned(),
        );
    }
    match digits.parse() {
        Ok(0) | Err(_) => Err("a number of megabytes from 1 to 4294967295".to_owned()),
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
        .ok_or_else(|| "a size such as 512k or 2m".to_owned())
}

#[cfg(test)]
mod tests;

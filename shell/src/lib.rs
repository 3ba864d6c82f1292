//! A cache server with locks that die with their client: [`latchd_core`] behind real sockets.
//!
//! The program `latchd` is a thin wrapper around this library, and a test or another program can
//! run the same server inside its own process:
//!
//! ```
//! use std::io::{Read, Write};
//!
//! let mut config = latchd::Config::default();
//! config.listen = vec!["127.0.0.1:0".parse()?]; // port 0: any free one
//! let server = latchd::Server::start(config)?;
//!
//! let latchd::Address::Tcp(address) = server.addresses()[0] else { unreachable!() };
//! let mut client = std::net::TcpStream::connect(address)?;
//! client.write_all(b"set greeting 0 0 5\r\nhello\r\n")?;
//! let mut answer = [0; 8];
//! client.read_exact(&mut answer)?;
//! assert_eq!(&answer, b"STORED\r\n");
//!
//! server.shutdown();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Sockets, threads, clocks and logs are here and nowhere else. This crate never looks inside the
//! bytes it moves: what they mean is [`latchd_core::connection`]'s business, and what is done about
//! it is the core's.
//!
//! The server runs on Linux: each thread waits in an epoll of its own.
//!
//! What is not wanted can be left out: `default-features = false, features = ["server"]` is the server as a library;
//! `program`, which is on unless that is said, is the program as well.

#[cfg(feature = "server")]
mod acceptor;
#[cfg(feature = "server")]
mod backend;
#[cfg(feature = "server")]
mod budget;
#[cfg(feature = "server")]
mod clock;
#[cfg(feature = "server")]
mod config;
#[cfg(feature = "server")]
mod connection;
#[cfg(feature = "server")]
mod connection_stats;
#[cfg(feature = "server")]
mod dead_peer;
#[cfg(feature = "server")]
mod executor;
#[cfg(feature = "server")]
mod headroom;
#[cfg(feature = "server")]
mod health;
#[cfg(feature = "server")]
mod input;
#[cfg(feature = "server")]
mod lingering;
#[cfg(feature = "server")]
mod listen;
#[cfg(feature = "server")]
mod listen_address;
#[cfg(feature = "server")]
mod lock_log;
#[cfg(feature = "server")]
mod mailbox;
#[cfg(feature = "server")]
mod memory_file;
#[cfg(feature = "server")]
mod outbox;
#[cfg(feature = "server")]
mod pages;
#[cfg(feature = "server")]
mod passwords;
#[cfg(feature = "server")]
mod replaced;
#[cfg(feature = "server")]
mod roster;
#[cfg(feature = "server")]
mod saved;
#[cfg(test)]
#[cfg(all(feature = "server", feature = "scheduled"))]
mod scheduled;
#[cfg(feature = "server")]
mod send;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod shards;
#[cfg(feature = "server")]
mod shared;
#[cfg(feature = "verify")]
pub mod simulated;
#[cfg(feature = "server")]
mod socket;
#[cfg(feature = "server")]
mod status;
#[cfg(feature = "server")]
mod sync;
#[cfg(feature = "server")]
mod time_keeper;
#[cfg(all(feature = "server", feature = "tls"))]
mod tls;
#[cfg(all(feature = "server", not(feature = "tls")))]
#[path = "without_tls.rs"]
mod tls;
#[cfg(feature = "server")]
mod tls_settings;
#[cfg(feature = "server")]
mod transport;
#[cfg(feature = "server")]
mod turn;
#[cfg(feature = "server")]
mod turn_times;
#[cfg(feature = "server")]
mod waiters;
#[cfg(feature = "server")]
mod watch;
#[cfg(feature = "server")]
mod worker;

#[cfg(feature = "server")]
pub use config::{Config, UnixSocket};
#[cfg(feature = "server")]
pub use listen::Address;
#[cfg(feature = "server")]
pub use listen_address::{ListenAddress, ListenTls};
#[cfg(feature = "server")]
pub use replaced::may_replace;
#[cfg(feature = "server")]
pub use server::Server;
#[cfg(feature = "server")]
pub use tls_settings::{ClientCertificate, KeyFormat, TlsSettings, TlsVersion};

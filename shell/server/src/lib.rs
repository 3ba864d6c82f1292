//! A cache server with locks that die with their client: [`latchd_core`] behind real sockets.
//!
//! The program `latchd` is a thin wrapper around this library, and a test or another program can
//! run the same server inside its own process:
//!
//! ```
//! use std::io::{Read, Write};
//!
//! let mut config = latchd_server::Config::default();
//! config.listen = vec!["127.0.0.1:0".parse()?]; // port 0: any free one
//! let server = latchd_server::Server::start(config)?;
//!
//! let latchd_server::Address::Tcp(address) = server.addresses()[0] else { unreachable!() };
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

mod acceptor;
mod backend;
mod budget;
mod clock;
mod config;
mod connection;
mod connection_stats;
mod dead_peer;
mod executor;
mod headroom;
mod health;
mod input;
mod lingering;
mod listen;
mod listen_address;
mod lock_log;
mod mailbox;
mod memory_file;
mod outbox;
mod pages;
mod passwords;
mod replaced;
mod roster;
mod saved;
#[cfg(all(test, feature = "scheduled"))]
mod scheduled;
mod send;
mod server;
mod shards;
mod shared;
#[cfg(feature = "verify")]
pub mod simulated;
mod socket;
mod status;
mod sync;
mod time_keeper;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;
mod tls_settings;
mod transport;
mod turn;
mod turn_times;
mod waiters;
mod watch;
mod worker;

pub use config::{Config, UnixSocket};
pub use listen::Address;
pub use listen_address::{ListenAddress, ListenTls};
pub use replaced::may_replace;
pub use server::Server;
pub use tls_settings::{ClientCertificate, KeyFormat, TlsSettings, TlsVersion};

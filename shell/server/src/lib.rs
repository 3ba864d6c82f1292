//! A cache server with locks that end with their client: [`latchd_core`] behind real sockets.
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
//! This crate has the sockets, threads, clocks and logs. It never interprets the bytes that it moves:
//! [`latchd_protocol::connection`] parses them, and the core executes the commands. With the feature `cluster`,
//! `latchd-cluster` decides when the server serves, and has the way to etcd.
//!
//! The server runs on Linux: each thread waits in an epoll of its own.

mod acceptor;
mod beliefs;
mod clients;
mod cluster;
mod config;
#[cfg(feature = "cluster")]
mod election;
#[cfg(not(feature = "cluster"))]
#[path = "election/without_cluster.rs"]
mod election;
mod memory_file;
mod net;
mod os;
mod saved;
mod server;
mod server_state;
mod shards;
mod stats;
mod status;
mod sync;
mod time_keeper;
#[cfg(any(test, feature = "verify"))]
#[path = "../verify/mod.rs"]
pub mod verify;
mod worker;

pub use config::listen_address::{ListenAddress, ListenTls};
pub use config::tls_settings::{ClientCertificate, KeyFormat, TlsSettings, TlsVersion};
pub use config::{Config, UnixSocket};
pub use net::listen::Address;
pub use os::replaced::may_replace;
pub use os::threads::{cannot_start, spawn_thread, start_reactor};
pub use server::{Ended, Server};

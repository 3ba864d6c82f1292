//! The server over real sockets, as a library and as the program: answers, authentication, and
//! clients that vanish, ask for too much, or stop the server.

#![allow(clippy::unwrap_used)]

#[path = "../common/certificates.rs"]
mod certificates;
mod client;
#[path = "../common/etcd.rs"]
mod etcd_process;
#[path = "../common/port.rs"]
mod port;

mod cluster;
mod common_bounds;
mod death;
mod erase;
mod etcd;
mod members;
mod operator;
mod process;
mod program;
mod server;
mod sessions;
mod slow_way;
mod start;
mod status;
mod tls;
mod waits;
mod watch;
mod win_waits;

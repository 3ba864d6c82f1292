//! Ports for the servers of tests.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, socket};

/// Below the ports that Linux takes for clients.
const PORTS: Range<u16> = 16_000..32_000;

/// A port without a listener at this moment, that this process has not given out lately.
///
/// It is tried without listening: a process that another test starts just then has a copy of our socket for a
/// moment, and would seem to be the server that is to listen there.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);

    let ports = u32::from(PORTS.end - PORTS.start);
    // Processes that begin at different places do not meet soon.
    let start = std::process::id().wrapping_mul(509);
    for _ in 0..ports {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % ports;
        let port = PORTS.start + u16::try_from(offset).expect("the range is of ports");
        let probe = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        set_socket_reuseaddr(&probe, true).expect("any socket takes it");
        if bind(&probe, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("there is no free port");
}

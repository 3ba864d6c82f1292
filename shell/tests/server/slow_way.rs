//! A way to a server that can hold back requests.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A forwarder on a free port. Its threads end with the process.
pub(crate) struct SlowWay {
    address: SocketAddr,
    delay_ms: Arc<AtomicU64>,
}

impl SlowWay {
    /// A way to the server at this port.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let delay_ms = Arc::new(AtomicU64::new(0));
        let shared = Arc::clone(&delay_ms);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
                let replies = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let delay_ms = Arc::clone(&shared);
                thread::spawn(move || hold_back(client, server, &delay_ms));
                thread::spawn(move || {
                    let (mut from, mut to) = replies;
                    // Its end is the end of the connection.
                    let _ = io::copy(&mut from, &mut to);
                });
            }
        });
        Self { address, delay_ms }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on every request takes this long, and one whose sender ends meanwhile is lost.
    pub(crate) fn delay(&self, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap();
        self.delay_ms.store(delay_ms, Ordering::SeqCst);
    }
}

/// Passes on requests, each with all its bytes that have arrived meanwhile.
fn hold_back(mut client: TcpStream, mut server: TcpStream, delay_ms: &AtomicU64) {
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = client.read(&mut chunk) {
        let mut request = chunk[..length].to_vec();
        thread::sleep(Duration::from_millis(delay_ms.load(Ordering::SeqCst)));
        if has_ended(&mut client, &mut request) || server.write_all(&request).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

/// Reads the bytes that have arrived. Returns whether the sender has closed its connection.
fn has_ended(client: &mut TcpStream, request: &mut Vec<u8>) -> bool {
    client
        .set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    let end = client.read_to_end(request);
    client.set_read_timeout(None).unwrap();
    // It fails once all bytes are read, unless they end.
    end.map_or_else(
        |error| !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        |_| true,
    )
}

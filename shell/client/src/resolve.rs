//! Looks up the addresses of a host, on threads of its own: the system's look-up blocks.
//!
//! - N1: At most [`THREADS_MAX`] look-ups run at once. The others wait in order.
//! - N2: A look-up whose caller is gone does not begin, and a new one removes such look-ups from the queue.
//!   So the queue has at most one for each connection that is being opened.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Mutex;
use std::thread;

use async_channel::{Sender, bounded};

use super::mutex::lock;

/// The most look-ups that run at once in a process.
const THREADS_MAX: usize = 64;

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    threads: 0,
    waiting: VecDeque::new(),
});

struct Queue {
    /// At most [`THREADS_MAX`] (N1).
    threads: usize,
    /// Empty while another thread may be started.
    waiting: VecDeque<LookUp>,
}

struct LookUp {
    address: String,
    caller: Sender<io::Result<Vec<SocketAddr>>>,
}

/// The addresses of `HOST:PORT`, in the order of the system.
///
/// # Errors
/// The system's, of the look-up or of a thread for it.
pub(super) async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let (caller, answer) = bounded(1);
    let address = address.to_owned();
    begin(LookUp { address, caller })?;
    let gone = |_| io::Error::other("the look-up of a host has ended without an answer");
    answer.recv().await.map_err(gone)?
}

fn begin(look_up: LookUp) -> io::Result<()> {
    let mut queue = lock(&QUEUE);
    queue.waiting.retain(|waiting| !waiting.caller.is_closed());
    if queue.threads == THREADS_MAX {
        queue.waiting.push_back(look_up);
        return Ok(());
    }
    let thread = thread::Builder::new().name("latchd-resolve".into());
    thread.spawn(|| serve(look_up))?;
    queue.threads += 1;
    Ok(())
}

/// Does look-ups until the queue is empty.
fn serve(first: LookUp) {
    let mut next = Some(first);
    while let Some(LookUp { address, caller }) = next {
        let addresses = address.to_socket_addrs().map(Iterator::collect);
        // If the caller does not receive it, the caller is gone.
        let _ = caller.try_send(addresses);
        let mut queue = lock(&QUEUE);
        next = loop {
            match queue.waiting.pop_front() {
                Some(look_up) if look_up.caller.is_closed() => {}
                found => break found,
            }
        };
        if next.is_none() {
            queue.threads -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use async_io::block_on;
    use futures_lite::future;

    use super::*;

    #[test]
    fn more_lookups_than_threads_are_all_answered() {
        block_on(async {
            let mut lookups: Vec<_> = (0..3 * THREADS_MAX)
                .map(|_| Box::pin(resolve("localhost:80")))
                .collect();
            for lookup in &mut lookups {
                // Each is in the queue or in a thread before the first result is awaited.
                let begun = future::poll_once(lookup.as_mut()).await;
                assert!(begun.is_none_or(|found| found.is_ok()));
                assert!(lock(&QUEUE).threads <= THREADS_MAX, "N1");
            }
        });
        // Callers that are gone do not delay others.
        for _ in 0..2 * THREADS_MAX {
            let found = block_on(resolve("localhost:80")).unwrap();
            assert!(
                found
                    .iter()
                    .all(|address| address.ip().is_loopback() && address.port() == 80)
            );
            assert!(!found.is_empty());
        }
        assert!(lock(&QUEUE).waiting.len() <= THREADS_MAX, "N2");
    }

    #[test]
    fn addresses_resolve_and_wrong_hosts_fail() {
        let address = block_on(resolve("[::1]:7")).unwrap();
        assert_eq!(address, ["[::1]:7".parse().unwrap()]);
        assert!(block_on(resolve("localhost:port")).is_err());
    }
}

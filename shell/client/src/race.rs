//! Connects to a host that has several addresses.
//!
//! - R1: The addresses are tried in the resolver's order, alternating IPv6 and IPv4. A try begins when the
//!   previous one has failed, or has been silent for [`HEAD_START`]; the earlier ones continue. The first
//!   connection wins.
//! - R2: Each address gets a try within the time to connect, however short that is.
//!
//! Source: RFC 8305, "Happy Eyeballs Version 2", sections 4 and 5.

use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use async_io::{Async, Timer};
use futures_lite::future::FutureExt;

use super::resolve::resolve;

/// The time after which the next try begins beside a silent one. Source: RFC 8305, section 8.
const HEAD_START: Duration = Duration::from_millis(250);

/// Connects to `HOST:PORT`, within the caller's time limit.
///
/// # Errors
/// The system's, also of the look-up; with several addresses, that of the first.
pub(super) async fn connect(address: &str, within: Duration) -> io::Result<Async<TcpStream>> {
    let addresses = in_turn(resolve(address).await?);
    let parts = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    // R2: the last one still gets its share.
    let head_start = HEAD_START.min(within / parts.saturating_add(1));
    race(addresses, head_start, Async::<TcpStream>::connect).await
}

/// The same addresses, alternating between the two families, starting with that of the first one.
fn in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (VecDeque<_>, VecDeque<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == is_v6);
    let mut queues = [first, second];
    let mut mixed = Vec::new();
    while queues.iter().any(|queue| !queue.is_empty()) {
        mixed.extend(queues.iter_mut().filter_map(VecDeque::pop_front));
    }
    mixed
}

/// The first success of `connect` (R1).
async fn race<A, T, F: Future<Output = io::Result<T>>>(
    addresses: Vec<A>,
    head_start: Duration,
    connect: impl Fn(A) -> F,
) -> io::Result<T> {
    let mut left = VecDeque::from(addresses);
    let mut tries: Vec<Pin<Box<F>>> = Vec::new();
    let mut problem = None;
    loop {
        match left.pop_front() {
            Some(address) => tries.push(Box::pin(connect(address))),
            None if tries.is_empty() => {
                let no_address = || io::Error::other("the host has no address");
                return Err(problem.unwrap_or_else(no_address));
            }
            None => {}
        }
        let is_last = left.is_empty();
        let next = async {
            if is_last {
                return pending().await;
            }
            Timer::after(head_start).await;
            None
        };
        match first(&mut tries).or(next).await {
            Some(Ok(connected)) => return Ok(connected),
            Some(Err(error)) => problem = problem.or(Some(error)),
            None => {}
        }
    }
}

/// Waits for the end of a try.
async fn first<T, F: Future<Output = io::Result<T>>>(
    tries: &mut Vec<Pin<Box<F>>>,
) -> Option<io::Result<T>> {
    poll_fn(|context| {
        for place in 0..tries.len() {
            if let Poll::Ready(result) = tries[place].as_mut().poll(context) {
                drop(tries.swap_remove(place));
                return Poll::Ready(Some(result));
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use async_io::block_on;

    use super::*;

    #[test]
    fn a_silent_address_does_not_delay_the_next() {
        let tried = RefCell::new(Vec::new());
        // In order: silent, refused, late, and one that is not needed.
        let connect = |number: u64| {
            tried.borrow_mut().push(number);
            async move {
                match number {
                    0 => pending().await,
                    1 => Err(io::ErrorKind::ConnectionRefused.into()),
                    _ => {
                        Timer::after(Duration::from_millis(1)).await;
                        Ok(number)
                    }
                }
            }
        };
        let won = block_on(race(vec![0, 1, 2, 3], Duration::from_millis(200), connect));
        assert_eq!(won.ok(), Some(2));
        assert_eq!(*tried.borrow(), [0, 1, 2]);
        let refused = block_on(race(vec![1, 1], HEAD_START, connect));
        let kind = refused.map_err(|error| error.kind());
        assert_eq!(kind, Err(io::ErrorKind::ConnectionRefused));
        assert!(block_on(race(Vec::new(), HEAD_START, connect)).is_err());
    }

    #[test]
    fn families_take_turns() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        assert_eq!(
            in_turn(addresses(&[
                "[::1]:1",
                "[::2]:1",
                "1.0.0.1:1",
                "1.0.0.2:1",
                "[::3]:1"
            ])),
            addresses(&["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "[::3]:1"])
        );
    }
}

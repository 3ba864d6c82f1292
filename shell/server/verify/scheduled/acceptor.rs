//! The acceptor rests at the connection limit, and continues as soon as a client has left (J1, J2).

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use shuttle::future::block_on;
use shuttle::thread;
use smol::future::FutureExt;

use super::{Seen, in_many_orders, server};
use crate::acceptor::{Acceptor, Endpoint};
use crate::clients::mailbox::Message;
use crate::net::transport::Security;
use crate::sync::channel::bounded;

/// The number of clients that connect, one after the other.
const COMING: usize = 3;

/// Clients that have connected already.
#[derive(Debug)]
struct Queue {
    left: AtomicUsize,
    inside: Arc<AtomicUsize>,
}

impl Endpoint for Queue {
    fn security(&self) -> Security {
        Security::Plain
    }

    fn take(&self) -> rustix::io::Result<(OwnedFd, Option<SocketAddrAny>)> {
        let left = self.left.load(Ordering::SeqCst);
        self.left.store(left.saturating_sub(1), Ordering::SeqCst);
        if left == 0 {
            return Err(Errno::AGAIN);
        }
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        assert_eq!(inside, 1, "J1: one at a time");
        Ok((UnixStream::pair().unwrap().0.into(), None))
    }

    async fn client_waits(&self) {
        smol::future::pending::<()>().await;
    }

    fn place(&self) -> &dyn std::fmt::Display {
        &"here"
    }
}

/// Three clients connect to a server with a limit of one. Each leaves as soon as it is served.
fn lets_in(seen: &Arc<Seen>) {
    let (shared, _) = server(1, |config| {
        config.connections_max = 1;
        config.reject_past_limit = false;
    });
    let inside = Arc::new(AtomicUsize::new(0));
    let (stop, stopped) = bounded::<()>(1);
    let acceptor = {
        let (shared, inside) = (Arc::clone(&shared), Arc::clone(&inside));
        thread::spawn(move || {
            let queue = Queue {
                left: AtomicUsize::new(COMING),
                inside,
            };
            let acceptor = Acceptor::new(&shared);
            let stop = async {
                let _ = stopped.recv().await;
            };
            let accepting = async {
                acceptor.accept_on(0, &queue).await;
            };
            block_on(stop.or(accepting));
        })
    };
    let mut served = 0;
    while served < COMING {
        shared.mailbox(0).hear();
        for message in shared.mailbox(0).take() {
            let Message::Adopt(arrival) = message else {
                panic!("nobody has sent {message:?}");
            };
            shared.connection_table.remove(arrival.conn.number());
            drop(arrival);
            inside.fetch_sub(1, Ordering::SeqCst);
            shared.count_closed(0);
            served += 1;
        }
    }
    drop(stop);
    acceptor.join().unwrap();
    seen.note(match shared.connection_stats.pauses() {
        0 => "nobody had to wait",
        1 => "one had to wait",
        _ => "more had to wait",
    });
}

#[test]
fn waiting_client_is_accepted_after_another_leaves() {
    let witnesses = ["nobody had to wait", "one had to wait", "more had to wait"];
    in_many_orders(&witnesses, lets_in);
}

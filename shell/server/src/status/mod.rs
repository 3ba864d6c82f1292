//! The status port: what is counted and who holds which lock, for monitoring and for people, over HTTP.
//!
//! The folder holds all pages of the port. It uses `shared`, `clients`, `config`, `stats` and `sync`.
//!
//! It is off unless it is asked for ([`Config::status`](crate::Config::status)), only reads, and lets in
//! whoever reaches it.
//!
//! - U1: it holds nobody up. It has a thread of its own; at most [`CONNECTIONS_MAX`] are open at a time, each for one
//!   request of [`REQUEST_BYTES_MAX`] and for [`PATIENCE`] altogether; [`ACCEPTED_AT_ONCE`] are let in every [`PAUSE`]; a
//!   text that is long is written every [`PAUSE`] and for [`ANSWERED_MAX`] at a time; and what it tells is looked at anew
//!   after [`FRESH`](watch::FRESH) only.
//! - U4: whoever comes is let in and heard: when all places are taken, one gives way ([`Places`]), a connection that has
//!   not asked for anything before one that has, of the address that has most of them the one that came first.
//! - U2: a page of another site cannot read keys or the page: the name that a browser asks for must be an
//!   address, `localhost`, this machine's, or one that was configured ([`Request`]). `/metrics` and `/healthz`
//!   tell no keys and answer every name: a scraper has the name of a service.
//! - U3: a page of ours loads nothing and runs nothing, and what clients have named is shown as text.
//!
//! HTTP as RFC 9112 has it, as far as a GET needs it: one request a connection.

pub(crate) mod health;
mod history;
mod locks;
mod metrics;
mod page;
mod places;
mod process;
mod request;
mod response;
mod snapshot;
mod watch;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use async_io::{Async, Timer};
use smol::LocalExecutor;
use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::lock::Mutex;

use self::places::Places;
use self::request::{Hosts, Refusal, Request};
use self::response::{Kind, response};
use self::watch::Watch;
use crate::config::STATUS_CONNECTIONS_MAX as CONNECTIONS_MAX;
use crate::config::listen_address::ListenAddress;
use crate::shared::Shared;
use crate::sync::channel::{Receiver, Sender, bounded};

/// How many of them are sent a text that is long (U1).
const ANSWERED_MAX: usize = 16;

/// How many are let in one behind the other (U1).
const ACCEPTED_AT_ONCE: usize = 16;

/// How many may wait to be let in. One more would have to ask again after a second.
const BACKLOG: i32 = 1024;

/// The longest request, in bytes (U1).
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// How long one may take from the first byte of its request to the last one of its answer (U1).
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it is from some that are let in to the next, and from one long text to the next (U1).
const PAUSE: Duration = Duration::from_millis(5);

/// How long an answer to `/healthz` is good for: asking for it wakes every thread.
const HEALTH_FRESH: Duration = Duration::from_millis(50);

/// Sockets that listen, and the name they were asked for by.
#[derive(Debug)]
pub(crate) struct StatusPort {
    listeners: Vec<TcpListener>,
    hosts: Hosts,
}

impl StatusPort {
    /// Listens on every address of a name. Besides it, `hosts` are names of the server.
    ///
    /// # Errors
    /// The first that cannot be had, by name.
    pub(crate) fn listen(wanted: &ListenAddress, hosts: &[String]) -> io::Result<Self> {
        let explain = |error: io::Error| io::Error::new(error.kind(), format!("--status: {error}"));
        let listeners = wanted.bind().map_err(explain)?;
        for listener in &listeners {
            rustix::net::listen(listener, BACKLOG)?;
        }
        Ok(Self {
            listeners,
            hosts: Hosts::new(&wanted.host, hosts),
        })
    }

    /// Where it can be reached.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Answers until `stopped` is closed.
    ///
    /// # Errors
    /// The kernel's, if it cannot wait.
    pub(crate) async fn serve(self, shared: &Shared, stopped: Receiver<()>) -> io::Result<()> {
        let desk = Desk {
            shared,
            hosts: self.hosts,
            watch: RefCell::new(Watch::new(shared)),
            open: RefCell::new(Places::new(CONNECTIONS_MAX)),
            answered: RefCell::new(Places::new(ANSWERED_MAX)),
            writing: Mutex::new(()),
            health: Cell::new(None),
        };
        let listeners = self
            .listeners
            .into_iter()
            .map(Async::new)
            .collect::<io::Result<Vec<_>>>()?;
        let (let_in, came) = bounded(1);
        let executor = LocalExecutor::new();
        for listener in &listeners {
            executor
                .spawn(desk.accept_on(listener, let_in.clone()))
                .detach();
        }
        let attending = async {
            while let Ok((socket, peer)) = came.recv().await {
                executor.spawn(desk.attend(socket, peer)).detach();
            }
        };
        let sampling = async {
            loop {
                Timer::after(history::INTERVAL).await;
                desk.watch.borrow_mut().sample(shared);
            }
        };
        let stop = async {
            // Nothing is ever sent: an error says that the other side has gone.
            let _ = stopped.recv().await;
        };
        executor.run(stop.or(sampling).or(attending)).await;
        Ok(())
    }
}

/// What all requests have in common.
struct Desk<'a> {
    shared: &'a Shared,
    hosts: Hosts,
    watch: RefCell<Watch>,
    /// Those that are open.
    open: RefCell<Places>,
    /// Those of them that are sent a long text.
    answered: RefCell<Places>,
    /// Whoever has it may have a long text written.
    writing: Mutex<()>,
    /// Whether the server was well, and when that was.
    health: Cell<Option<(Instant, bool)>>,
}

/// A place, until it is dropped.
struct Seat<'a> {
    places: &'a RefCell<Places>,
    number: u64,
}

impl<'a> Seat<'a> {
    /// As [`Places::take`].
    fn take(places: &'a RefCell<Places>, host: IpAddr) -> (Self, Receiver<()>) {
        let (number, given_up) = places.borrow_mut().take(host);
        (Self { places, number }, given_up)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.places.borrow_mut().leave(self.number);
    }
}

/// A connection and where it comes from.
type Arrival = (Async<TcpStream>, SocketAddr);

impl Desk<'_> {
    async fn accept_on(&self, listener: &Async<TcpListener>, let_in: Sender<Arrival>) {
        loop {
            for _ in 0..ACCEPTED_AT_ONCE {
                match listener.accept().await {
                    // Somebody attends for as long as this goes on.
                    Ok(arrival) => drop(let_in.send(arrival).await),
                    // Who cannot be let in is no worse off than before.
                    Err(_) => break,
                }
            }
            Timer::after(PAUSE).await;
        }
    }

    /// Hears one request and answers it, unless it has to give way (U4).
    async fn attend(&self, mut socket: Async<TcpStream>, peer: SocketAddr) {
        let host = peer.ip().to_canonical();
        let (place, given_up) = Seat::take(&self.open, host);
        let answer = async {
            let head = read_head(&mut socket).await?;
            self.open.borrow_mut().has_asked(place.number);
            let (bytes, is_long) = match head {
                Some(head) => self.answer(&head).await,
                None => (response(Kind::Refused(Refusal::TooLong), true, ""), false),
            };
            let write = async {
                socket.write_all(&bytes).await?;
                socket.close().await
            };
            if is_long {
                let (_place, given_up) = Seat::take(&self.answered, host);
                write.or(gives_way(given_up)).await
            } else {
                write.await
            }
        };
        let patience = async {
            Timer::after(PATIENCE).await;
            Err(io::ErrorKind::TimedOut.into())
        };
        // It is the peer's loss.
        let _ = answer.or(gives_way(given_up)).or(patience).await;
    }

    /// The answer to a request, and whether it is long.
    async fn answer(&self, head: &[u8]) -> (Vec<u8>, bool) {
        let request = match Request::parse(head, &self.hosts) {
            Ok(request) => request,
            Err(refusal) => return (response(Kind::Refused(refusal), true, ""), false),
        };
        let (kind, text) = match request.path {
            "/" | "/locks.json" if !request.is_ours => {
                (Kind::Refused(Refusal::WrongHost), String::new())
            }
            "/healthz" if self.is_well().await => (Kind::Text, "ok\n".into()),
            "/healthz" => (Kind::Unwell, "a thread does not answer\n".into()),
            "/" | "/locks.json" | "/metrics" => {
                let _turn = self.writing.lock().await;
                Timer::after(PAUSE).await;
                let mut watch = self.watch.borrow_mut();
                let (kind, text) = match request.path {
                    "/metrics" => (Kind::Metrics, watch.metrics(self.shared)),
                    "/locks.json" => (Kind::Json, watch.locks(self.shared)),
                    _ => (Kind::Page, watch.page(self.shared)),
                };
                return (response(kind, request.wants_body, &text), true);
            }
            _ => (Kind::Refused(Refusal::NoSuchPath), String::new()),
        };
        (response(kind, request.wants_body, &text), false)
    }

    /// Whether the server is well, or was a moment ago.
    async fn is_well(&self) -> bool {
        let known = self.health.get();
        if let Some((at, is_well)) = known
            && at.elapsed() < HEALTH_FRESH
        {
            return is_well;
        }
        let is_well = health::is_well(self.shared).await;
        self.health.set(Some((Instant::now(), is_well)));
        is_well
    }
}

/// Ends when a place is given up.
async fn gives_way(given_up: Receiver<()>) -> io::Result<()> {
    // Nothing is ever sent: an error says that the place is somebody else's.
    let _ = given_up.recv().await;
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// The head of a request; `None` if it is too long.
async fn read_head(socket: &mut Async<TcpStream>) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while head.len() < REQUEST_BYTES_MAX {
        let length = socket.read(&mut chunk).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&chunk[..length]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

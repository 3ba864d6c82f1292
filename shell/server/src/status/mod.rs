//! The status port: counters, locks and their holders over HTTP, for monitoring systems and people.
//!
//! The folder holds all pages of the port. It uses `server_state`, `clients`, `config`, `stats` and `sync`.
//!
//! The port is off unless [`Config::status`](crate::Config::status) is set. It is read-only and has no
//! authentication.
//!
//! - U1: The port does not delay the cache. It has a thread of its own. At most [`CONNECTIONS_MAX`]
//!   connections are open at a time, each for one request of at most [`REQUEST_BYTES_MAX`] and for at most
//!   [`PATIENCE`]. It accepts [`ACCEPTED_AT_ONCE`] connections every [`PAUSE`]. It writes one long reply
//!   every [`PAUSE`], and [`ANSWERED_MAX`] at a time. It takes a new snapshot only after
//!   [`FRESH`](watch::FRESH).
//! - U4: Every client is accepted and heard. If all places are taken, one connection gives way ([`Places`]).
//!   A connection without a request gives way before one with a request. Among these, the host with most of
//!   them gives way with its oldest one.
//! - U2: A page of another site cannot read keys or the page. The host name that a browser requests must be
//!   an address, `localhost`, this machine's name, or a configured one ([`Request`]). `/metrics`,
//!   `/healthz` and `/primary` show no keys and accept every name: a scraper uses the name of a service.
//! - U3: The page loads nothing and runs nothing, and text that comes from clients is escaped.
//!
//! HTTP as in RFC 9112, as far as a GET needs it: one request per connection.

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
use crate::server_state::ServerState;
use crate::sync::channel::{Receiver, Sender, bounded};

/// The most long replies in progress at a time (U1).
const ANSWERED_MAX: usize = 16;

/// The most connections accepted in a row (U1).
const ACCEPTED_AT_ONCE: usize = 16;

/// The backlog. A client beyond it has to retry after a second.
const BACKLOG: i32 = 1024;

/// The longest request, in bytes (U1).
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// The most time from the first byte of a request to the last one of its reply (U1).
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause after a group of accepted connections, and after a long reply (U1).
const PAUSE: Duration = Duration::from_millis(5);

/// The age limit of a `/healthz` result: a check wakes every thread.
const HEALTH_FRESH: Duration = Duration::from_millis(50);

/// The listening sockets, and the names of the server.
#[derive(Debug)]
pub(crate) struct StatusPort {
    listeners: Vec<TcpListener>,
    hosts: Hosts,
}

impl StatusPort {
    /// Listens on every address of a name. In addition, `hosts` are names of the server.
    ///
    /// # Errors
    /// The first address that fails, by name.
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

    /// The addresses of the port.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves requests until `stopped` is closed.
    ///
    /// # Errors
    /// The kernel's, if it cannot wait.
    pub(crate) async fn serve(self, shared: &ServerState, stopped: Receiver<()>) -> io::Result<()> {
        let service = StatusService {
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
                .spawn(service.accept_on(listener, let_in.clone()))
                .detach();
        }
        let attending = async {
            while let Ok((socket, peer)) = came.recv().await {
                executor.spawn(service.attend(socket, peer)).detach();
            }
        };
        let sampling = async {
            loop {
                Timer::after(history::INTERVAL).await;
                service.watch.borrow_mut().sample(shared);
            }
        };
        let stop = async {
            // Nothing is ever sent: an error means that the sender was dropped.
            let _ = stopped.recv().await;
        };
        executor.run(stop.or(sampling).or(attending)).await;
        Ok(())
    }
}

/// The state that all requests share.
struct StatusService<'a> {
    shared: &'a ServerState,
    hosts: Hosts,
    watch: RefCell<Watch>,
    /// The open connections.
    open: RefCell<Places>,
    /// The connections that receive a long reply.
    answered: RefCell<Places>,
    /// Its holder may write a long reply.
    writing: Mutex<()>,
    /// The last health result, and its time.
    health: Cell<Option<(Instant, bool)>>,
}

/// A place of a connection, until it is dropped.
struct HeldPlace<'a> {
    places: &'a RefCell<Places>,
    number: u64,
}

impl<'a> HeldPlace<'a> {
    /// As [`Places::take`].
    fn take(places: &'a RefCell<Places>, host: IpAddr) -> (Self, Receiver<()>) {
        let (number, given_up) = places.borrow_mut().take(host);
        (Self { places, number }, given_up)
    }
}

impl Drop for HeldPlace<'_> {
    fn drop(&mut self) {
        self.places.borrow_mut().leave(self.number);
    }
}

/// A connection and where it comes from.
type Arrival = (Async<TcpStream>, SocketAddr);

impl StatusService<'_> {
    async fn accept_on(&self, listener: &Async<TcpListener>, let_in: Sender<Arrival>) {
        loop {
            for _ in 0..ACCEPTED_AT_ONCE {
                match listener.accept().await {
                    // The receiver lives as long as this loop.
                    Ok(arrival) => drop(let_in.send(arrival).await),
                    // The client retries, as it would without this connection.
                    Err(_) => break,
                }
            }
            Timer::after(PAUSE).await;
        }
    }

    /// Reads one request and replies, unless the connection has to give way (U4).
    async fn attend(&self, mut socket: Async<TcpStream>, peer: SocketAddr) {
        let host = peer.ip().to_canonical();
        let (place, given_up) = HeldPlace::take(&self.open, host);
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
                let (_place, given_up) = HeldPlace::take(&self.answered, host);
                write.or(gives_way(given_up)).await
            } else {
                write.await
            }
        };
        let patience = async {
            Timer::after(PATIENCE).await;
            Err(io::ErrorKind::TimedOut.into())
        };
        // A failure here concerns only the peer.
        let _ = answer.or(gives_way(given_up)).or(patience).await;
    }

    /// The reply to a request, and whether it is long.
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
            "/healthz" => (Kind::Unwell, "a thread does not respond\n".into()),
            "/primary" if self.shared.serves() => (Kind::Text, "primary\n".into()),
            "/primary" => (Kind::Unwell, "not primary\n".into()),
            "/" | "/locks.json" | "/metrics" => {
                let _turn = self.writing.lock().await;
                Timer::after(PAUSE).await;
                let mut watch = self.watch.borrow_mut();
                let (kind, text) = match request.path {
                    "/metrics" => (Kind::Metrics, watch.metrics(self.shared)),
                    "/locks.json" => (Kind::Json, watch.locks(self.shared)),
                    _ => {
                        let prefix = request.field("prefix");
                        (Kind::Page, watch.page(self.shared, &prefix))
                    }
                };
                return (response(kind, request.wants_body, &text), true);
            }
            _ => (Kind::Refused(Refusal::NoSuchPath), String::new()),
        };
        (response(kind, request.wants_body, &text), false)
    }

    /// Whether the server is healthy, or was a moment ago.
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

/// Ends when another connection takes the place.
async fn gives_way(given_up: Receiver<()>) -> io::Result<()> {
    // Nothing is ever sent: an error means that the place was taken.
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
        if Request::is_complete(&head) {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

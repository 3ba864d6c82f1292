//! The status port: what is counted and who holds which lock, for monitoring and for people, over HTTP.
//!
//! The folder holds all pages of the port. It uses `shared`, `clients`, `config`, `stats` and `sync`.
//!
//! It is off unless it is asked for ([`Config::status`](crate::Config::status)), only reads, and lets in
//! whoever reaches it.
//!
//! - U1: it holds nobody up. It has a thread of its own; at most [`CONNECTIONS_MAX`] at a time are
//!   listened to, each for one request of [`REQUEST_BYTES_MAX`] and for [`PATIENCE`] altogether; one is
//!   let in every [`PAUSE`]; and what it tells is looked at anew after [`FRESH`](watch::FRESH) only.
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
mod process;
mod request;
mod response;
mod snapshot;
mod watch;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use async_io::{Async, Timer};
use smol::LocalExecutor;
use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};

use self::request::{Hosts, Refusal, Request};
use self::response::{Kind, response};
use self::watch::Watch;
use crate::config::listen_address::ListenAddress;
use crate::shared::Shared;
use crate::sync::channel::{Receiver, Sender, bounded};

/// How many are listened to at a time (U1). One more is closed.
const CONNECTIONS_MAX: usize = 16;

/// The longest request, in bytes (U1).
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// How long one may take from the first byte of its request to the last one of its answer (U1).
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it is from one that is let in to the next (U1).
const PAUSE: Duration = Duration::from_millis(5);

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
            open: Cell::new(0),
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
            while let Ok(socket) = came.recv().await {
                executor.spawn(desk.attend(socket)).detach();
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
    open: Cell<usize>,
}

impl Desk<'_> {
    async fn accept_on(&self, listener: &Async<TcpListener>, let_in: Sender<Async<TcpStream>>) {
        loop {
            // Who is not let in, or cannot be, is no worse off than before.
            if let Ok((socket, _)) = listener.accept().await
                && self.open.get() < CONNECTIONS_MAX
            {
                self.open.set(self.open.get() + 1);
                // Somebody attends for as long as this goes on.
                let _ = let_in.send(socket).await;
            }
            Timer::after(PAUSE).await;
        }
    }

    /// Hears one request and answers it.
    async fn attend(&self, mut socket: Async<TcpStream>) {
        let answer = async {
            let bytes = match read_head(&mut socket).await? {
                Some(head) => self.answer(&head).await,
                None => response(Kind::Refused(Refusal::TooLong), true, ""),
            };
            socket.write_all(&bytes).await?;
            socket.close().await
        };
        let patience = async {
            Timer::after(PATIENCE).await;
            Err(io::ErrorKind::TimedOut.into())
        };
        // It is the peer's loss.
        let _ = answer.or(patience).await;
        self.open.set(self.open.get() - 1);
    }

    async fn answer(&self, head: &[u8]) -> Vec<u8> {
        let request = match Request::parse(head, &self.hosts) {
            Ok(request) => request,
            Err(refusal) => return response(Kind::Refused(refusal), true, ""),
        };
        let (kind, text) = match request.path {
            "/" | "/locks.json" if !request.is_ours => {
                (Kind::Refused(Refusal::WrongHost), String::new())
            }
            "/healthz" if health::is_well(self.shared).await => (Kind::Text, "ok\n".into()),
            "/healthz" => (Kind::Unwell, "a thread does not answer\n".into()),
            "/metrics" => (Kind::Metrics, self.watch.borrow_mut().metrics(self.shared)),
            "/locks.json" => (Kind::Json, self.watch.borrow_mut().locks(self.shared)),
            "/" => (Kind::Page, self.watch.borrow_mut().page(self.shared)),
            _ => (Kind::Refused(Refusal::NoSuchPath), String::new()),
        };
        response(kind, request.wants_body, &text)
    }
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

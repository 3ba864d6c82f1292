//! latchd under a transport of your own: one thread, sockets that do not block, this machine's clocks.
//! `cargo run -p latchd-core --example embed` serves on 127.0.0.1:11299.
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind::Interrupted, ErrorKind::WouldBlock, Read, Result, Write};
use std::time::{Duration, Instant, SystemTime};

use latchd_core::{Action, Config, ConnId, Output, Progress, Server};
use mio::{Events, Interest, Poll, Token, net::TcpListener};

fn main() -> Result<()> {
    serve(TcpListener::bind(([127, 0, 0, 1], 11299).into())?)
}

pub(crate) fn serve(mut listener: TcpListener) -> Result<()> {
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(256));
    let (mut server, started) = (Server::new(Config::default()), Instant::now());
    let (mut peers, mut ready, mut input) = (BTreeMap::new(), BTreeSet::new(), [0; 4096]);
    let both = Interest::READABLE | Interest::WRITABLE;
    poll.registry().register(&mut listener, Token(0), both)?;
    loop {
        let deadline = loop {
            let action = server.poll();
            ready.extend(action.conn());
            match action {
                Action::Send(conn, mut more) => {
                    let (_, out) = peers.get_mut(&conn).expect("it is open");
                    server.unsent(conn, more.len());
                    Output::append(out, &mut more);
                }
                Action::Read(_) | Action::Close(_) => {}
                Action::Wait(deadline) => break deadline,
            }
        };
        let left = deadline.map(|at| at.saturating_since(started.elapsed().into()));
        let left = if ready.is_empty() {
            left
        } else {
            Some(Duration::ZERO)
        };
        if let Err(error) = poll.poll(&mut events, left)
            && error.kind() != Interrupted
        {
            return Err(error);
        }
        let now = started.elapsed().into();
        server.advance(now, SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
        ready.extend(
            events
                .iter()
                .map(|event| ConnId::from_number(event.token().0 as u64)),
        );
        while let Ok((mut socket, _)) = listener.accept() {
            let conn = server.open(now);
            let token = Token(usize::try_from(conn.number()).expect("64 bits"));
            poll.registry().register(&mut socket, token, both)?;
            peers.insert(conn, (socket, Output::new()));
        }
        // Each connection sends or reads once in its turn.
        for conn in std::mem::take(&mut ready) {
            let Some((socket, out)) = peers.get_mut(&conn) else {
                continue;
            };
            let done = if !out.is_empty() {
                socket.write(out.chunk()).inspect(|sent| {
                    out.advance(*sent);
                    server.sent(conn, *sent);
                })
            } else if server.wants_input(conn) {
                let read = socket.read(&mut input);
                read.inspect(|read| server.receive(now, conn, &input[..*read]))
            } else if server.progress(conn) == Progress::Close {
                Ok(0)
            } else {
                continue;
            };
            match done {
                Ok(1..) => _ = ready.insert(conn),
                Err(error) if error.kind() == Interrupted => _ = ready.insert(conn),
                Err(error) if error.kind() == WouldBlock => {}
                Ok(0) | Err(_) => {
                    server.close(now, conn);
                    peers.remove(&conn);
                }
            }
        }
    }
}

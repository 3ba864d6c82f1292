//! latchd under a transport of your own: one thread, sockets that do not block, this machine's clocks.
//! `cargo run -p latchd-core --example embed` serves on 127.0.0.1:11299.
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind::WouldBlock, Read, Result, Write};
use std::time::{Instant, SystemTime};

use latchd_core::{Action, Config, ConnId, Output, Progress, Server};
use mio::{Events, Interest, Poll, Token, net::TcpListener};

fn main() -> Result<()> {
    serve(TcpListener::bind(([127, 0, 0, 1], 11299).into())?)
}

pub(crate) fn serve(mut listener: TcpListener) -> Result<()> {
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(256));
    let (mut server, started) = (Server::new(Config::default()), Instant::now());
    let (mut peers, mut touched, mut input) = (BTreeMap::new(), BTreeSet::new(), [0; 4096]);
    let both = Interest::READABLE | Interest::WRITABLE;
    poll.registry().register(&mut listener, Token(0), both)?;
    loop {
        let left = server.deadline().saturating_since(started.elapsed().into());
        let is_idle = touched.is_empty();
        poll.poll(&mut events, Some(left * u32::from(is_idle)))?;
        let now = started.elapsed().into();
        server.set_wall_clock(now, SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
        server.advance(now);
        for event in &events {
            touched.insert(ConnId::from_number(event.token().0 as u64));
        }
        while let Ok((mut socket, _)) = listener.accept() {
            let conn = server.open(now);
            let token = Token(usize::try_from(conn.number()).expect("64 bits"));
            poll.registry().register(&mut socket, token, both)?;
            peers.insert(conn, (socket, Output::new()));
        }
        // Each connection sends or reads once in its turn.
        for conn in std::mem::take(&mut touched) {
            let Some((socket, out)) = peers.get_mut(&conn) else {
                continue;
            };
            let done = if server.wants_input(conn) && out.is_empty() {
                let read = socket.read(&mut input);
                read.inspect(|read| server.receive(now, conn, &input[..*read]))
            } else if out.is_empty() && server.progress(conn) != Progress::Close {
                continue;
            } else {
                // 0 once everything is sent and the connection is closed.
                let sent = socket.write(out.chunk());
                let _ = sent.as_ref().map(|sent| out.advance(*sent));
                sent.inspect(|sent| server.sent(conn, *sent))
            };
            match done {
                Ok(1..) => _ = touched.insert(conn),
                Err(error) if error.kind() == WouldBlock => {}
                Ok(0) | Err(_) => {
                    server.close(now, conn);
                    peers.remove(&conn);
                }
            }
        }
        while let Some(action) = server.poll() {
            touched.insert(action.conn());
            if let Action::Send(conn, mut more) = action {
                let _ = peers.get_mut(&conn).map(|(_, out)| out.append(&mut more));
            }
        }
    }
}

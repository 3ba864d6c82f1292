//! latchd under tokio: a task for each connection, one for the time, and the server behind a mutex.
//! `cargo run -p latchd-core --example embed_tokio` serves on 127.0.0.1:11299.
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use latchd_core::{Action, Config, ConnId, Instant, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::{self, timeout_at};

struct Shared {
    started: time::Instant,
    server: Mutex<(Server, BTreeMap<ConnId, mpsc::UnboundedSender<Action>>)>,
    /// The deadline has moved closer.
    is_nearer: Notify,
}

impl Shared {
    /// Calls the server, and hands the actions to the tasks of their connections.
    fn call<T>(&self, call: impl FnOnce(&mut Server, Instant) -> T) -> T {
        let (server, peers) = &mut *self.server.lock().expect("no task has panicked");
        let before = server.deadline();
        let result = call(server, self.started.elapsed().into());
        while let Some(action) = server.poll() {
            let _ = peers.get(&action.conn()).map(|peer| peer.send(action));
        }
        if server.deadline() < before {
            self.is_nearer.notify_one();
        }
        result
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    serve(TcpListener::bind("127.0.0.1:11299").await?).await
}

pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    let shared = Arc::new(Shared {
        started: time::Instant::now(),
        server: Mutex::new((Server::new(Config::default()), BTreeMap::new())),
        is_nearer: Notify::new(),
    });
    tokio::spawn(advance(shared.clone()));
    loop {
        let (mut socket, _) = listener.accept().await?;
        let shared = shared.clone();
        tokio::spawn(async move {
            let (send, actions) = mpsc::unbounded_channel();
            let conn = shared.call(Server::open);
            shared
                .server
                .lock()
                .expect("no task has panicked")
                .1
                .insert(conn, send);
            let _ = carry(&shared, conn, &mut socket, actions).await; // an error ends the connection like any other end
            shared
                .server
                .lock()
                .expect("no task has panicked")
                .1
                .remove(&conn);
            shared.call(|server, now| server.close(now, conn));
        });
    }
}

async fn advance(shared: Arc<Shared>) {
    loop {
        let deadline = shared.call(|server, now| {
            server.set_wall_clock(now, SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
            server.advance(now);
            server.deadline()
        });
        let deadline = shared.started + Duration::from_millis(deadline.as_millis());
        let _ = timeout_at(deadline, shared.is_nearer.notified()).await;
    }
}

async fn carry(
    shared: &Shared,
    conn: ConnId,
    socket: &mut TcpStream,
    mut actions: mpsc::UnboundedReceiver<Action>,
) -> io::Result<()> {
    let mut input = [0; 4096];
    loop {
        let reads = shared.call(|server, _| server.wants_input(conn));
        tokio::select! {
            biased;
            action = actions.recv() => match action {
                Some(Action::Send(_, mut out)) => {
                    let bytes = out.len();
                    socket.write_all_buf(&mut out).await?;
                    shared.call(|server, _| server.sent(conn, bytes));
                }
                Some(Action::Read(_)) => {}
                Some(Action::Close(_)) | None => return Ok(()),
            },
            read = socket.read(&mut input), if reads => match read? {
                0 => return Ok(()),
                read => shared.call(|server, now| server.receive(now, conn, &input[..read])),
            },
        }
    }
}

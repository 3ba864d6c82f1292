//! latchd under tokio: a task for each connection, one for the time, and the server behind a mutex.
//! `cargo run -p latchd-core --example embed_tokio` serves on 127.0.0.1:11299.
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use latchd_core::{Action, Config, ConnId, Instant, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time;

type Peers = BTreeMap<ConnId, mpsc::UnboundedSender<Action>>;

struct Shared {
    started: time::Instant,
    server: Mutex<(Server, Peers)>,
    deadline: watch::Sender<Option<Instant>>,
}

impl Shared {
    /// Calls the server, and hands its actions to the tasks.
    fn call<T>(&self, call: impl FnOnce(&mut Server, &mut Peers, Instant) -> T) -> T {
        let (server, peers) = &mut *self.server.lock().expect("no task has panicked");
        let now = self.started.elapsed().into();
        server.advance(now, SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
        let result = call(server, peers, now);
        loop {
            let action = server.poll();
            match &action {
                Action::Send(conn, out) => server.unsent(*conn, out.len()),
                Action::Read(_) | Action::Close(_) => {}
                Action::Wait(at) => {
                    let replace = |old: &mut _| std::mem::replace(old, *at) != *at;
                    self.deadline.send_if_modified(replace);
                    return result;
                }
            }
            let peer = action.conn().and_then(|conn| peers.get(&conn));
            let _ = peer.map(|peer| peer.send(action));
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    serve(TcpListener::bind("127.0.0.1:11299").await?).await
}

pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    let shared = Arc::new(Shared {
        started: time::Instant::now(),
        server: Mutex::new((Server::new(Config::default()), Peers::new())),
        deadline: watch::Sender::new(None),
    });
    tokio::spawn(advance(shared.clone()));
    loop {
        let (mut socket, _) = listener.accept().await?;
        let shared = shared.clone();
        tokio::spawn(async move {
            let (send, actions) = mpsc::unbounded_channel();
            let conn = shared.call(|server, peers, now| {
                let conn = server.open(now);
                peers.insert(conn, send);
                conn
            });
            // An error ends the connection as any other end does.
            let _ = carry(&shared, conn, &mut socket, actions).await;
            shared.call(|server, peers, now| {
                server.close(now, conn);
                peers.remove(&conn);
            });
        });
    }
}

async fn advance(shared: Arc<Shared>) {
    let mut deadlines = shared.deadline.subscribe();
    loop {
        let at = match *deadlines.borrow_and_update() {
            Some(at) => shared.started + Duration::from_millis(at.as_millis()),
            None => time::Instant::now() + Duration::from_secs(3600),
        };
        if time::timeout_at(at, deadlines.changed()).await.is_err() {
            shared.call(|_, _, _| ());
        }
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
        let reads = shared.call(|server, _, _| server.wants_input(conn));
        tokio::select! {
            biased;
            action = actions.recv() => match action {
                Some(Action::Send(_, mut out)) => {
                    let bytes = out.len();
                    socket.write_all_buf(&mut out).await?;
                    shared.call(|server, _, _| server.sent(conn, bytes));
                }
                Some(Action::Close(_)) | None => return Ok(()),
                Some(Action::Read(_) | Action::Wait(_)) => {}
            },
            read = socket.read(&mut input), if reads => match read? {
                0 => return Ok(()),
                read => shared.call(|server, _, now| server.receive(now, conn, &input[..read])),
            },
        }
    }
}

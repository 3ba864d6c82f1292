//! The driver on a server that the test plays: it decides when, and in which pieces, a reply arrives.

mod locks;
mod reuse;

use std::convert::Infallible;
use std::future::Future;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use async_io::{Timer, block_on};
use futures_lite::future;

use super::{Client, ClientOptions, ComputeOptions, ErrorKind, pending_release};

/// Longer than anything takes, even on a busy machine.
pub(super) const DUE: Duration = Duration::from_secs(60);

/// So long that no renewal comes between the requests of a test.
const TTL: Duration = Duration::from_secs(36_000);

/// The releases that are pending are those of the process, so one of these tests runs at a time.
static TURN: Mutex<()> = Mutex::new(());

/// A server that the test plays, and a client with one shared connection to it.
pub(super) struct Played {
    listener: TcpListener,
    pub(super) client: Client,
    _turn: MutexGuard<'static, ()>,
}

impl Played {
    pub(super) fn new() -> Self {
        // The failure of another test is no failure of this one.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let options = ClientOptions::new().connections(1).reply_timeout(DUE);
        let client = Client::new(&address, options).unwrap();
        Self {
            listener,
            client,
            _turn: turn,
        }
    }

    /// The result of a call for which the client opens a connection, on which the server plays these turns.
    fn first<T>(&self, call: impl Future<Output = T>, turns: &[(&str, &str)]) -> (T, Side) {
        beside(call, || {
            let mut side = self.accept();
            side.play(turns);
            side
        })
    }

    /// The next connection of the client.
    pub(super) fn accept(&self) -> Side {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DUE)).unwrap();
        Side(BufReader::new(stream))
    }
}

/// The server's side of a connection.
pub(super) struct Side(BufReader<TcpStream>);

impl Side {
    /// The next lines.
    pub(super) fn hear(&mut self, lines: usize) -> Vec<String> {
        let mut line = || {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        (0..lines).map(|_| line()).collect()
    }

    /// The result of a call, while the server plays these turns.
    fn during<T>(&mut self, call: impl Future<Output = T>, turns: &[(&str, &str)]) -> T {
        beside(call, || self.play(turns)).0
    }

    /// Hears requests that begin so, one after the other, and sends the line of each reply.
    fn play(&mut self, turns: &[(&str, &str)]) {
        for (request, reply) in turns {
            let heard = self.hear(1).remove(0) + "\r\n";
            assert!(heard.starts_with(request), "{heard:?} for {request:?}");
            if heard.starts_with("ms ") {
                self.hear(1);
            }
            self.say(format!("{reply}\r\n").as_bytes(), 100);
        }
    }

    /// Sends in pieces of at most so many bytes.
    pub(super) fn say(&mut self, bytes: &[u8], piece: usize) {
        for piece in bytes.chunks(piece) {
            self.0.get_mut().write_all(piece).unwrap();
        }
    }
}

/// The reply to a request for a key: its value is the key.
fn echo(request: &str) -> String {
    let key = request.split(' ').nth(1).unwrap();
    format!("VA {} f7 c9 t-1\r\n{key}\r\n", key.len())
}

fn wait_for(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DUE, "it is overdue");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The result of a call, which is due.
fn due<T>(call: impl Future<Output = T>) -> T {
    let overdue = async {
        Timer::after(DUE).await;
        panic!("it is overdue");
    };
    block_on(future::or(call, overdue))
}

/// The result of a call, and that of the server's part in it. The server plays when the call has done all that it does
/// without a reply.
fn beside<T, S: Send>(call: impl Future<Output = T>, server: impl FnOnce() -> S + Send) -> (T, S) {
    let mut call = pin!(call);
    for _ in 0..3 {
        assert!(block_on(future::poll_once(call.as_mut())).is_none());
    }
    thread::scope(|scope| {
        let server = scope.spawn(server);
        (due(call), server.join().unwrap())
    })
}

/// Callers that ask for several keys each, from threads of their own. All requests are at the server before the first
/// reply leaves it, and some callers have left by then.
#[test]
fn replies_reach_their_callers() {
    const CALLERS: usize = 4;
    const KEYS: usize = 5;
    let played = Played::new();
    let (tell, told): (Sender<Vec<String>>, Receiver<_>) = channel();
    for caller in 0..CALLERS {
        let (client, tell) = (played.client.clone(), tell.clone());
        thread::spawn(move || {
            for round in 0..8 {
                let keys: Vec<_> = (0..KEYS)
                    .map(|key| format!("k{round}.{caller}.{key}"))
                    .collect();
                let found = block_on(client.get_many(&keys)).unwrap();
                let values = found.into_iter().map(|item| item.unwrap().value.to_vec());
                let values: Vec<_> = values
                    .map(|value| String::from_utf8(value).unwrap())
                    .collect();
                assert_eq!(values, keys);
                tell.send(values).unwrap();
                // The next round begins when all callers have their replies.
                while block_on(client.get("go")).unwrap().unwrap().value != format!("go{round}") {}
            }
        });
    }
    let mut side = played.accept();
    for (round, piece) in [1, 2, 3, 7, 20, 33, 100, 10_000].into_iter().enumerate() {
        let mut requests = side.hear(CALLERS * KEYS);
        if round % 2 == 1 {
            // It leaves before the reply comes.
            let left = block_on(future::poll_once(Box::pin(played.client.get("left"))));
            assert!(left.is_none());
            requests.extend(side.hear(1));
        }
        let replies: String = requests.iter().map(|request| echo(request)).collect();
        side.say(replies.as_bytes(), piece);
        for _ in 0..CALLERS {
            told.recv_timeout(DUE).expect("each caller has its replies");
        }
        assert_eq!(side.hear(CALLERS), ["mg go v f c t"; CALLERS]);
        let go = format!(
            "VA {} f0 c1 t-1\r\ngo{round}\r\n",
            format!("go{round}").len()
        );
        side.say(go.repeat(CALLERS).as_bytes(), piece);
    }
}

/// The end of a connection is the end of every request on it, and the next one gets its own replies (H2).
#[test]
fn broken_connection_ends_its_requests() {
    let played = Played::new();
    let calls = ["a", "b"].map(|key| {
        let client = played.client.clone();
        thread::spawn(move || block_on(client.get_many([key, "c"])))
    });
    let mut side = played.accept();
    let requests = side.hear(4);
    // One whole reply and a part of the next.
    let replies: String = requests.iter().map(|request| echo(request)).collect();
    side.say(&replies.as_bytes()[..25], 100);
    drop(side);
    for call in calls {
        let error = call.join().unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unreachable(_)), "{error}");
    }
    let client = played.client.clone();
    let call = thread::spawn(move || block_on(client.get("d")));
    let mut side = played.accept();
    let request = side.hear(1);
    side.say(echo(&request[0]).as_bytes(), 100);
    let found = call.join().unwrap().unwrap();
    assert_eq!(found.unwrap().value, "d");
}

/// A reader that wins and leaves gives back its win in the background. An ending thread waits until that is done.
#[test]
fn left_win_is_pending_until_given_back() {
    let played = Played::new();
    let client = played.client.clone();
    let (leave, left) = channel::<()>();
    let reader = thread::spawn(move || {
        let options = ComputeOptions::new(DUE);
        let hangs = async |_| -> Result<Vec<u8>, Infallible> { future::pending().await };
        let read = client.compute("k", &options, hangs);
        let mut read = Box::pin(read);
        while left.try_recv().is_err() {
            assert!(block_on(future::poll_once(read.as_mut())).is_none());
        }
    });
    let mut side = played.accept();
    assert!(side.hear(1)[0].starts_with("mg k v c "));
    side.say(b"VA 0 c5 W\r\n\r\n", 100);
    wait_for(|| *pending_release::pending() == 0);
    leave.send(()).unwrap();
    assert_eq!(side.hear(1), ["md k C5"]);
    assert_eq!(*pending_release::pending(), 1);
    side.say(b"HD\r\n", 100);
    wait_for(|| *pending_release::pending() == 0);
    reader.join().unwrap();
}

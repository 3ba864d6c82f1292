//! Servers for the tests of the client: latchd in this process, memcached in its own.

pub(crate) mod terminal;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

pub(crate) use crate::port::free_port;
use latchd_server::{Address, Config, Server};

/// How long a due event may take, on a busy machine.
pub(crate) const DUE: Duration = Duration::from_secs(20);

/// A server that stops when the value is dropped.
pub(crate) enum Started {
    Latchd(Option<Server>, SocketAddr),
    Memcached(Child, SocketAddr, PathBuf),
}

impl Started {
    /// A latchd on a free port.
    pub(crate) fn latchd() -> Self {
        Self::latchd_at(0)
    }

    /// A latchd on this port, which another server may have left a moment ago.
    pub(crate) fn latchd_at(port: u16) -> Self {
        Self::latchd_with(port, |_| {})
    }

    /// A latchd on this port; `change` sets values that differ from the default.
    pub(crate) fn latchd_with(port: u16, change: impl Fn(&mut Config)) -> Self {
        let server = eventually(|| {
            let mut config = Config::default();
            config.listen = vec![latchd_server::ListenAddress::loopback(port)];
            change(&mut config);
            Server::start(config).ok()
        });
        let Address::Tcp(address) = server.addresses()[0].clone() else {
            unreachable!("it was asked for TCP");
        };
        Self::Latchd(Some(server), address)
    }

    /// A memcached on a free port; `None` if there is no such program here.
    pub(crate) fn memcached() -> Option<Self> {
        Self::memcached_at(free_port())
    }

    /// A memcached on this port.
    pub(crate) fn memcached_at(port: u16) -> Option<Self> {
        Self::memcached_with(port, &[])
    }

    /// A memcached on this port; `more` are further flags.
    pub(crate) fn memcached_with(port: u16, more: &[&str]) -> Option<Self> {
        Some(Self::memcached_of(&memcached_program()?, port, more))
    }

    /// A memcached of this program.
    fn memcached_of(program: &Path, port: u16, more: &[&str]) -> Self {
        let child = Command::new(program)
            .args(["-l", "127.0.0.1", "-U", "0", "-u", "root", "-p"])
            .arg(port.to_string())
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let started = Self::Memcached(child, address, program.into());
        // A listener on the port is not enough: a process that another test has just started holds
        // a copy of the socket that found the port free, for a moment.
        eventually(|| started.is_there().then_some(()));
        started
    }

    /// Whether it answers.
    fn is_there(&self) -> bool {
        let Ok(mut socket) = TcpStream::connect(self.address()) else {
            return false;
        };
        let mut answer = [0; 8];
        let asked = socket
            .set_read_timeout(Some(DUE))
            .and_then(|()| socket.write_all(b"version\r\n"));
        // The other message is that of a server that requires a login.
        let answers = [*b"VERSION ", *b"CLIENT_E"];
        asked.and_then(|()| socket.read_exact(&mut answer)).is_ok() && answers.contains(&answer)
    }

    /// Both servers, or latchd alone.
    pub(crate) fn all() -> Vec<Self> {
        std::iter::once(Self::latchd())
            .chain(Self::memcached())
            .collect()
    }

    /// Both servers, and the memcached that `TEST_MEMCACHED` names, if it names one.
    pub(crate) fn every() -> Vec<Self> {
        let named = std::env::var_os("TEST_MEMCACHED").map(PathBuf::from);
        let named = named.map(|program| Self::memcached_of(&program, free_port(), &[]));
        Self::all().into_iter().chain(named).collect()
    }

    pub(crate) fn address(&self) -> String {
        match self {
            Self::Latchd(_, address) | Self::Memcached(_, address, _) => address.to_string(),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Latchd(_, address) | Self::Memcached(_, address, _) => address.port(),
        }
    }

    /// Starts a server of the same kind at the same port, once this one has ended.
    pub(crate) fn successor(&self) -> impl FnOnce() -> Self + use<> {
        let port = self.port();
        let program = match self {
            Self::Latchd(..) => None,
            Self::Memcached(_, _, program) => Some(program.clone()),
        };
        move || match program {
            None => Self::latchd_at(port),
            Some(program) => Self::memcached_of(&program, port, &[]),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Latchd(..) => "latchd",
            Self::Memcached(..) => "memcached",
        }
    }

    /// Its version: `VERSION` and its own.
    pub(crate) fn version(&self) -> String {
        self.ask("version\r\n", "\r\n").trim_end().to_owned()
    }

    /// The server's answer to a request, up to this end.
    pub(crate) fn ask(&self, request: &str, end: &str) -> String {
        let mut socket = TcpStream::connect(self.address()).unwrap();
        socket.set_read_timeout(Some(DUE)).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let mut byte = [0];
        while !answer.ends_with(end) {
            socket.read_exact(&mut byte).unwrap();
            answer.push(char::from(byte[0]));
        }
        answer
    }

    /// Removes the item of a lease that another client holds, as an operator does: on a latchd in the right of its
    /// grant, which the server shows.
    pub(crate) fn end_lease(&self, key: &str) {
        let shown = self.ask(&format!("me {key}\r\n"), "\r\n");
        let fence = shown
            .split(' ')
            .find_map(|word| word.strip_prefix("fence="));
        let right = fence.map_or(String::new(), |fence| format!(" G{fence} U"));
        let removed = self.ask(&format!("md {key}{right}\r\n"), "\r\n");
        assert_eq!(removed, "HD\r\n");
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        match self {
            Self::Latchd(server, _) => {
                if let Some(server) = server.take() {
                    server.shutdown();
                }
            }
            Self::Memcached(child, ..) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The program on PATH, or where Debian puts servers. A test that needs it and does not find it
/// passes silently, unless `TEST_REQUIRE_PEERS` is set, as in CI; `tests/suite/transcripts.rs`
/// reports that it is missing.
fn memcached_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join("memcached"))
        .find(|program| program.is_file());
    assert!(
        found.is_some() || std::env::var_os("TEST_REQUIRE_PEERS").is_none(),
        "there is no memcached on PATH"
    );
    found
}

/// A process that holds the lock of `k` for as long as it lives: `latchd lock` with these options.
pub(crate) fn holder_process(server: &Started, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latchd"));
    command
        .args(["lock", "--server", &server.address()])
        .args(options)
        .args(["k", "--", "sleep", "100"]);
    command
}

/// Asks until there is an answer.
pub(crate) fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < DUE, "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A proxy between a client and a server that can do to them all that a network does.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    /// Bytes are dropped, in either direction, and no connection is closed.
    is_silent: AtomicBool,
    /// Whether new connections get to the server, and not into the void.
    admits: AtomicBool,
    /// How long every piece takes on its way, in milliseconds.
    delay_ms: AtomicU64,
    /// The sockets of both sides. The threads that read them own them.
    sockets: Mutex<Vec<Weak<TcpStream>>>,
}

impl Proxy {
    /// A proxy of the server at this address, on a free port. Its threads end with the process.
    pub(crate) fn start(server: String) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(ProxyState::default());
        state.admits.store(true, Ordering::SeqCst);
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let client = shared.keep(client);
                if !shared.admits.load(Ordering::SeqCst) {
                    std::thread::spawn(move || ignore(&client));
                    continue;
                }
                let Ok(server) = TcpStream::connect(&server) else {
                    continue;
                };
                let server = shared.keep(server);
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (Arc::clone(from), Arc::clone(to));
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || shared.pass(&from, &to));
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Closes every connection, on both sides.
    pub(crate) fn cut(&self) {
        self.state.close(|_| true);
    }

    /// From now on nothing is forwarded, and new connections are accepted and never answered.
    pub(crate) fn silence(&self) {
        self.state.is_silent.store(true, Ordering::SeqCst);
        self.state.admits.store(false, Ordering::SeqCst);
    }

    /// From now on everything is forwarded again, the bytes held back included.
    pub(crate) fn speak(&self) {
        self.state.is_silent.store(false, Ordering::SeqCst);
        self.state.admits.store(true, Ordering::SeqCst);
    }

    /// From now on all bytes take this long in each direction.
    pub(crate) fn delay(&self, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap();
        self.state.delay_ms.store(delay_ms, Ordering::SeqCst);
    }

    /// Closes every connection on the server's side alone; its client does not notice.
    pub(crate) fn cut_behind(&self) {
        self.silence();
        self.state
            .close(|socket| socket.local_addr().ok() != Some(self.address));
    }
}

impl ProxyState {
    fn keep(&self, socket: TcpStream) -> Arc<TcpStream> {
        let socket = Arc::new(socket);
        let mut sockets = self.sockets.lock().unwrap();
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Arc::downgrade(&socket));
        socket
    }

    /// Closes these sockets.
    fn close(&self, which: impl Fn(&TcpStream) -> bool) {
        let sockets = self.sockets.lock().unwrap();
        for socket in sockets.iter().filter_map(Weak::upgrade) {
            if which(&socket) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }

    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            std::thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::SeqCst)));
            while self.is_silent.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if to.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
        // The end of the stream is held back like the bytes before it.
        while self.is_silent.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// Reads until the client closes its connection, and never answers.
fn ignore(mut client: &TcpStream) {
    let mut chunk = [0; 4096];
    while let Ok(1..) = client.read(&mut chunk) {}
}

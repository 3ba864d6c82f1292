//! A server behind a TCP address, and servers started for a test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use crate::peer::{Patience, Peer, Received};
use crate::transcript::{Dialect, End};

/// How long bytes that are due may take: far more than any server needs, so that only a wrong
/// answer fails.
const DUE: Duration = Duration::from_secs(10);
/// How long we listen for bytes that should not come.
const NOT_DUE: Duration = Duration::from_millis(60);
/// The pause between two questions whether the server has seen the end of a connection, or a request.
const ASKED_EACH: Duration = Duration::from_millis(1);
/// The time for yrmcds to release the locks of a closed connection. No reply of it shows when it
/// has.
const YRMCDS_UNLOCKS: Duration = Duration::from_secs(1);
/// How long a started server may take to listen.
const START: Duration = Duration::from_secs(10);

/// The most by which the end of a span may be late, on a server that counts milliseconds.
const LATE: Duration = Duration::from_millis(5);

/// A server behind an address; each name of a connection is a TCP connection. The guard that keeps
/// the server running is dropped with the peer, if no other peer uses it.
#[derive(Debug)]
pub struct SocketPeer<K = ()> {
    address: SocketAddr,
    streams: BTreeMap<char, TcpStream>,
    /// The connections with a half that we have closed.
    half_closed: BTreeSet<char>,
    /// The connections with an unanswered request that waits (flag `w`).
    waiting: BTreeSet<char>,
    due: Duration,
    /// The time for the server to see the end of a connection, if its count of connections does not
    /// tell.
    notice: Option<Duration>,
    _keeper: K,
}

impl<K> SocketPeer<K> {
    /// Plays against the server at `address`, which runs as long as `keeper` is held.
    #[must_use]
    pub fn new(address: SocketAddr, keeper: K) -> Self {
        Self {
            address,
            streams: BTreeMap::new(),
            half_closed: BTreeSet::new(),
            waiting: BTreeSet::new(),
            due: DUE,
            notice: None,
            _keeper: keeper,
        }
    }

    /// The same with another limit for bytes that are due.
    #[must_use]
    pub const fn with_due(mut self, due: Duration) -> Self {
        self.due = due;
        self
    }

    /// The same with a fixed time for the server to see the end of a connection, instead of a count
    /// of its connections.
    #[must_use]
    pub const fn with_notice(mut self, notice: Duration) -> Self {
        self.notice = Some(notice);
        self
    }

    /// Waits until the server counts no connection but ours that are open: it has seen the end of all others.
    ///
    /// # Errors
    /// It cannot be asked, or counts more for longer than bytes may be due.
    fn await_ends(&self) -> io::Result<()> {
        if let Some(notice) = self.notice {
            std::thread::sleep(notice);
            return Ok(());
        }
        let open = self.streams.len() - self.half_closed.len();
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(self.due))?;
        let deadline = Instant::now() + self.due;
        loop {
            let counted = count_connections(&mut stream)?;
            // Our own connection is counted, too.
            if counted <= open + 1 {
                return Ok(());
            }
            if Instant::now() > deadline {
                let what =
                    format!("the server counts {counted} connections, of which {open} are open");
                return Err(io::Error::other(what));
            }
            std::thread::sleep(ASKED_EACH);
        }
    }

    /// Waits until the server has answered a connection, has closed it, or shows that it waits, at most as long as
    /// bytes may be due. On a busy machine silence shows nothing: the server may not have read the request yet.
    fn await_wait(&mut self, conn: char) -> io::Result<()> {
        let client = self.stream(conn)?.local_addr()?;
        let deadline = Instant::now() + self.due;
        let mut asked = TcpStream::connect(self.address)?;
        asked.set_read_timeout(Some(self.due))?;
        loop {
            if has_come(self.stream(conn)?)?
                || is_waiting(&mut asked, client)?
                || Instant::now() > deadline
            {
                return Ok(());
            }
            std::thread::sleep(ASKED_EACH);
        }
    }

    fn stream(&mut self, conn: char) -> io::Result<&mut TcpStream> {
        match self.streams.entry(conn) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(self.due))?;
                Ok(entry.insert(stream))
            }
        }
    }
}

/// Whether a line has the flag to wait, `w` and a number of milliseconds.
fn waits(line: &[u8]) -> bool {
    let mut words = line.trim_ascii_end().split(|byte| *byte == b' ');
    words.any(|word| matches!(word, [b'w', ms @ ..] if !ms.is_empty() && ms.iter().all(u8::is_ascii_digit)))
}

/// Whether bytes or the end of the stream can be read without waiting.
fn has_come(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let come = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    Ok(come.is_ok())
}

/// Asks the server whether the connection of `client` waits.
fn is_waiting(stream: &mut TcpStream, client: SocketAddr) -> io::Result<bool> {
    let said = ask_stats(stream, "stats conns\r\n")?;
    let address = format!(":addr tcp:{client}");
    let mut numbers = said.lines().filter_map(|line| {
        let name = line.strip_prefix("STAT ")?;
        name.strip_suffix(&address)
    });
    let Some(number) = numbers.next() else {
        return Ok(false);
    };
    let state = format!("STAT {number}:state conn_waiting");
    Ok(said.lines().any(|line| line == state))
}

/// Asks the server how many connections there are.
fn count_connections(stream: &mut TcpStream) -> io::Result<usize> {
    let said = ask_stats(stream, "stats\r\n")?;
    said.lines()
        .find_map(|line| line.strip_prefix("STAT curr_connections ")?.parse().ok())
        .ok_or_else(|| io::Error::other("the server does not say how many connections there are"))
}

/// The lines that answer a request for statistics.
fn ask_stats(stream: &mut TcpStream, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let (mut said, mut chunk) = (Vec::new(), [0; 16 << 10]);
    while !said.ends_with(b"END\r\n") {
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => said.extend_from_slice(&chunk[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

impl<K> Peer for SocketPeer<K> {
    fn send(&mut self, conn: char, bytes: &[u8]) -> io::Result<()> {
        if bytes.split(|byte| *byte == b'\n').any(waits) {
            self.waiting.insert(conn);
        }
        // A server that has closed takes no more; the bytes that it sent before can still be read.
        let _ = self.stream(conn)?.write_all(bytes);
        Ok(())
    }

    fn receive(
        &mut self,
        conn: char,
        buffer: &mut Vec<u8>,
        patience: Patience,
    ) -> io::Result<Received> {
        let limit = match patience {
            Patience::Due => self.due,
            Patience::NotDue if self.waiting.contains(&conn) => {
                self.await_wait(conn)?;
                NOT_DUE
            }
            Patience::NotDue => NOT_DUE,
        };
        let stream = self.stream(conn)?;
        stream.set_read_timeout(Some(limit))?;
        let mut chunk = [0; 16 << 10];
        match stream.read(&mut chunk) {
            Ok(0) => Ok(Received::Closed),
            Ok(length) => {
                buffer.extend_from_slice(&chunk[..length]);
                self.waiting.remove(&conn);
                Ok(Received::Bytes)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                Ok(Received::Nothing)
            }
            Err(_) => Ok(Received::Closed),
        }
    }

    fn end(&mut self, conn: char, how: End) -> io::Result<()> {
        match how {
            End::Close => drop(self.streams.remove(&conn)),
            End::HalfClose => {
                // The server may have closed before us.
                drop(self.stream(conn)?.shutdown(Shutdown::Write));
                self.half_closed.insert(conn);
            }
            End::Reset => {
                if let Some(stream) = self.streams.remove(&conn) {
                    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
                }
            }
        }
        self.waiting.remove(&conn);
        if how != End::HalfClose {
            self.half_closed.remove(&conn);
        } else if self.streams.len() == 1 {
            // No other client sees the effects of the end.
            return Ok(());
        }
        self.await_ends()
    }

    fn wait(&mut self, span: Duration) {
        std::thread::sleep(span + LATE);
    }

    fn owns_time(&self) -> bool {
        false
    }

    /// memcached's clock is a number that a timer raises once a second, later on a busy machine: between two replies
    /// within a second it may go on by two.
    fn late_s(&self) -> u64 {
        1
    }
}

/// A server process on a free port of the loopback interface; it is stopped when the value is
/// dropped.
#[derive(Debug)]
pub struct ServerProcess {
    /// Its address.
    pub address: SocketAddr,
    child: Child,
    /// Its own folder, if it needs one; removed with the value.
    folder: Option<PathBuf>,
    /// See [`SocketPeer::with_notice`].
    notice: Option<Duration>,
}

impl ServerProcess {
    /// Starts a memcached.
    ///
    /// # Errors
    /// It cannot be started, or does not listen.
    pub fn memcached(program: &Path) -> io::Result<Self> {
        Self::memcached_with(program, &[])
    }

    /// Starts a memcached with more options.
    ///
    /// # Errors
    /// It cannot be started, or does not listen.
    pub fn memcached_with(program: &Path, options: &[&str]) -> io::Result<Self> {
        Self::start(|port| {
            let mut command = Command::new(program);
            // memcached refuses to run as root without this flag, and ignores it otherwise.
            command.args([
                "-l",
                "127.0.0.1",
                "-U",
                "0",
                "-u",
                "root",
                "-p",
                &port.to_string(),
            ]);
            command.args(options);
            Ok((command, None))
        })
    }

    /// Starts a yrmcds, with a folder of its own.
    ///
    /// # Errors
    /// It cannot be started, or does not listen.
    pub fn yrmcds(program: &Path) -> io::Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);

        let mut server = Self::start(|port| {
            let number = STARTED.fetch_add(1, Ordering::Relaxed);
            let name = format!("latchd-tests-yrmcds-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder)?;
            let config = folder.join("yrmcds.conf");
            let text = format!(
                "port = {port}\nrepl_port = {}\ntemp_dir = {:?}\nbuckets = 10000\nworkers = 2\n\
                 max_data_size = 1M\nmemory_limit = 64M\nlog.threshold = error\n",
                free_port()?,
                folder.display().to_string(),
            );
            std::fs::write(&config, text)?;
            let mut command = Command::new(program);
            command.arg("-f").arg(config);
            Ok((command, Some(folder)))
        })?;
        server.notice = Some(YRMCDS_UNLOCKS);
        Ok(server)
    }

    fn start(
        mut command: impl FnMut(u16) -> io::Result<(Command, Option<PathBuf>)>,
    ) -> io::Result<Self> {
        let port = free_port()?;
        let (mut command, folder) = command(port)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("{}: {error}", command.get_program().display()),
                )
            })?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self {
            address,
            child,
            folder,
            notice: None,
        };
        let deadline = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(io::Error::other(format!("the server has ended: {status}")));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("the server does not listen"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// The server as a peer for transcripts; it is stopped with the peer.
    #[must_use]
    pub fn into_peer(self) -> SocketPeer<Self> {
        let notice = self.notice;
        SocketPeer {
            notice,
            ..SocketPeer::new(self.address, self)
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // A server that has already ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// A port without a listener at this moment, that this process has not given out lately.
///
/// Not a port that the system chooses: it gives the same one out again as soon as it is free, also
/// to a client, and then two tests would talk to one server. And tried without listening: a process
/// that another test starts just then holds a copy of our socket for a moment, and would look like
/// the server that is to listen there.
///
/// # Errors
/// There is none, or the kernel gives no socket.
pub fn free_port() -> io::Result<u16> {
    // Below the ports that Linux takes for clients.
    const PORTS: std::ops::Range<u16> = 16_000..32_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);

    let ports = u32::from(PORTS.end - PORTS.start);
    // Processes that begin at different places do not meet soon.
    let start = std::process::id().wrapping_mul(509);
    for _ in 0..ports {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % ports;
        let port = PORTS.start + u16::try_from(offset).expect("the range is of ports");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        if socket.bind(&address.into()).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::other("there is no free port"))
}

/// The program of this name on PATH.
#[must_use]
pub fn on_path(name: &str) -> Option<PathBuf> {
    // Debian's folder for servers is not on every user's PATH.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// The self-description of a memcached program: its name, and its version.
///
/// # Errors
/// It cannot be started.
pub fn memcached_version(program: &Path) -> io::Result<String> {
    let said = Command::new(program).arg("-V").output()?.stdout;
    Ok(String::from_utf8_lossy(&said).trim().to_owned())
}

/// The dialect of a memcached program.
///
/// # Errors
/// It cannot be started.
pub fn memcached_dialect(program: &Path) -> io::Result<Dialect> {
    let version = memcached_version(program)?;
    let patch = version.strip_prefix("memcached 1.6.").unwrap_or_default();
    Ok(match patch.parse::<u32>() {
        Ok(patch) if patch < 40 => Dialect::Memcached1618,
        _ => Dialect::Memcached1645,
    })
}

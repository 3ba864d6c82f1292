//! The file of a Unix socket: its owner, and its removal.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::super::{Attack, Outcome, Stage};

/// How long a second server may take to find the first one.
const REFUSE_MAX: Duration = Duration::from_secs(2);

/// A second server is started on the path of a server that is too busy to answer.
pub(super) const SECOND_SERVER: Attack = Attack {
    name: "second-server",
    about: "a second server where the first has a full backlog",
    has_peer: false,
    play: second_server,
};

fn second_server(stage: &Stage<'_>) -> io::Result<Outcome> {
    let path = socket_path();
    let first = OnPath::start(stage, &path)?;
    first.signal(Signal::STOP)?;
    // It accepts until it has stopped.
    thread::sleep(Duration::from_millis(100));
    // The backlog is full when a connection would have to wait.
    let mut waiting = Vec::new();
    for _ in 0..64 {
        match connect_now(&path) {
            Ok(socket) => waiting.push(socket),
            Err(_) => break,
        }
    }
    let mut second = OnPath::spawn(stage, &path)?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = second.child.try_wait()? {
            break Some(status);
        }
        if begun.elapsed() > Duration::from_secs(8) {
            break None;
        }
        thread::sleep(Duration::from_millis(2));
    };
    let mut outcome = Outcome::default();
    outcome.span("refused", begun.elapsed(), REFUSE_MAX);
    outcome.must(
        status.is_some_and(|status| status.code() == Some(71)),
        format!("the second: {status:?}"),
    );
    first.signal(Signal::CONT)?;
    outcome.must(path.exists(), "the file of the first is gone");
    Ok(outcome)
}

/// The path belongs to another server by now.
pub(super) const SOCKET_FILE: Attack = Attack {
    name: "socket-file",
    about: "a server ends after another one has taken its path",
    has_peer: false,
    play: |stage| {
        let path = socket_path();
        let first = OnPath::start(stage, &path)?;
        std::fs::remove_file(&path)?;
        let second = OnPath::start(stage, &path)?;
        first.end()?;
        let mut outcome = Outcome::default();
        outcome.must(path.exists(), "the first removes the second's file");
        second.end()?;
        outcome.must(!path.exists(), "the second leaves its file behind");
        Ok(outcome)
    },
};

fn socket_path() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("latchd-abuse-{}-{number}.sock", std::process::id()))
}

/// A connection, if the server accepts one without waiting.
fn connect_now(path: &Path) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&socket2::SockAddr::unix(path)?)?;
    Ok(socket)
}

/// A server on a Unix socket; its file is removed with the value.
struct OnPath {
    child: Child,
    path: PathBuf,
}

impl OnPath {
    fn spawn(stage: &Stage<'_>, path: &Path) -> io::Result<Self> {
        let child = Command::new(stage.program()?)
            .args(["-t", "1", "-b", "4", "-s"])
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            child,
            path: path.to_owned(),
        })
    }

    fn start(stage: &Stage<'_>, path: &Path) -> io::Result<Self> {
        let started = Self::spawn(stage, path)?;
        let begun = Instant::now();
        while UnixStream::connect(path).is_err() {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(io::Error::other("the server does not listen"));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(started)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("no process"))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Ends it by SIGTERM and leaves the file alone.
    fn end(mut self) -> io::Result<()> {
        self.signal(Signal::TERM)?;
        self.child.wait()?;
        self.path = PathBuf::new();
        Ok(())
    }
}

impl Drop for OnPath {
    fn drop(&mut self) {
        // The child may have ended already, and the file may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}

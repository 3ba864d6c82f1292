//! Running servers: each on a port of its own, and stopped when its value is dropped.
//!
//! - A server never outlives the program: it is stopped by drop, which a panic does too, and, when
//!   a signal ends the program, by a thread that stops all servers. A thread that starts or stops
//!   one locks the list of them, so that none is missing from it at that moment.
//! - A server is stopped by its process id, so that no other process is.

pub(crate) mod control;
pub(crate) mod cores;
pub(crate) mod others;
pub(crate) mod peer;
pub(crate) mod perf;
pub(crate) mod usage;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use rustix::process::{Pid, Signal, kill_process};

use crate::server::cores::Cores;
use crate::server::peer::{Allowance, Peer};

/// How long a server may take to listen: under valgrind it takes seconds.
const START: Duration = Duration::from_secs(30);
/// How long a server may take to end when it is asked to.
const END: Duration = Duration::from_secs(30);

/// Every process that was started and not yet stopped, and the folder that goes with it.
static RUNNING: Mutex<BTreeMap<u32, PathBuf>> = Mutex::new(BTreeMap::new());

/// A server on the loopback interface.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) peer: Peer,
    pub(crate) address: SocketAddr,
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts `peer` and waits until it listens.
    ///
    /// # Errors
    /// It does not start, or ends at once; then with its last words.
    pub(crate) fn start(peer: &Peer, allowance: Allowance, cores: &Cores) -> Result<Self> {
        Self::start_under(|_| Vec::new(), peer, allowance, cores)
    }

    /// The same, as an argument of the program that `wrapper` names, which becomes the server. It is
    /// given a folder that is there as long as the server.
    pub(crate) fn start_under(
        wrapper: impl FnOnce(&Path) -> Vec<String>,
        peer: &Peer,
        allowance: Allowance,
        cores: &Cores,
    ) -> Result<Self> {
        cores
            .start(|| Self::spawn(wrapper, peer, allowance))
            .with_context(|| peer.label.clone())
    }

    fn spawn(
        wrapper: impl FnOnce(&Path) -> Vec<String>,
        peer: &Peer,
        allowance: Allowance,
    ) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);

        let mut running = running();
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("latchd-bench-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let port = free_port()?;
        let words = peer.words(port, allowance, &folder)?;
        let mut words = wrapper(&folder).into_iter().chain(words);
        let program = words.next().context("there is a program to start")?;
        let child = Command::new(&program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("stderr"))?)
            .spawn()
            .with_context(|| program.clone())?;
        running.insert(child.id(), folder.clone());
        drop(running);
        let mut server = Self {
            peer: peer.clone(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            child,
            folder,
        };
        let deadline = Instant::now() + START;
        while TcpStream::connect(server.address).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("has ended ({status}): {}", server.last_words());
            }
            if Instant::now() > deadline {
                bail!("does not listen: {}", server.last_words());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it may keep files while it runs.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it still runs; with its last words if not.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} has ended ({status}): {}",
                self.peer.label,
                self.last_words()
            ),
        }
    }

    /// Asks it to end, as an operator would, and waits until it has.
    ///
    /// # Errors
    /// It does not end.
    pub(crate) fn end(&mut self) -> Result<()> {
        signal(self.pid(), Signal::TERM);
        let deadline = Instant::now() + END;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("{} does not end: {}", self.peer.label, self.last_words());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The last line that it wrote.
    fn last_words(&self) -> String {
        let text = fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
        let line = text.lines().last().unwrap_or("it said nothing");
        line.to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut running = running();
        // A server that has already ended cannot be killed, and that is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
        running.remove(&self.child.id());
    }
}

/// Stops every server when a signal ends this program.
///
/// # Errors
/// Signals cannot be waited for.
pub(crate) fn stop_all_at_signals() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(number) = signals.forever().next() {
            // Held to the end, so that nothing is started any more.
            let running = running();
            for (pid, folder) in running.iter() {
                signal(*pid, Signal::KILL);
                let _ = fs::remove_dir_all(folder);
            }
            // As a shell says that a signal ended a program.
            std::process::exit(128 + number);
        }
    });
    Ok(())
}

fn running() -> MutexGuard<'static, BTreeMap<u32, PathBuf>> {
    // Nothing panics while it is held; and if something did, the list would still be true.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a signal to a process of ours; one that has ended hears nothing.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// A port without a listener at this moment, and the one after it neither.
///
/// Tried without listening, so that no client can take us for the server.
fn free_port() -> Result<u16> {
    // Below the ports that Linux takes for clients.
    const PORTS: std::ops::Range<u16> = 16_000..32_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);

    let pairs = u32::from(PORTS.end - PORTS.start) / 2;
    // Processes that begin at different places do not meet soon.
    let start = std::process::id().wrapping_mul(509);
    for _ in 0..pairs {
        let pair = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % pairs;
        let port = PORTS.start + u16::try_from(2 * pair)?;
        if is_free(port)? && is_free(replication_port(port))? {
            return Ok(port);
        }
    }
    bail!("there is no free port");
}

/// The second port of a server that needs two.
pub(crate) fn replication_port(port: u16) -> u16 {
    port + 1
}

fn is_free(port: u16) -> Result<bool> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_are_given_out_are_free_and_differ() {
        let (one, two) = (free_port().expect("one"), free_port().expect("another"));
        assert_ne!(one, two);
        assert_ne!(replication_port(one), two);
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, one)).expect("free");
        assert!(!is_free(one).expect("no error"));
        drop(listener);
        assert!(is_free(one).expect("no error"));
    }
}

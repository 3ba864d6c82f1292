//! The server under attack: a process of its own, which ends with the value.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use latchd_harness::socket::free_port;
use rustix::process::{Pid, Signal, kill_process};

use super::client::Client;

/// How long a started server may take to listen.
const START: Duration = Duration::from_secs(10);

/// The kind of server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// latchd.
    Latchd,
    /// memcached, for comparison.
    Memcached,
}

impl Kind {
    /// Its name, as the table has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latchd => "latchd",
            Self::Memcached => "memcached",
        }
    }
}

/// The destination of the server's log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Log {
    /// Discarded.
    Dropped,
    /// Into a pipe, which the attack may read, or not, or close.
    Piped,
    /// To a device that is full.
    Full,
    /// Standard error is closed.
    None,
}

/// The start of a server.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Its flags, except for its address.
    pub flags: &'a [&'a str],
    /// The destination of its log.
    pub log: Log,
    /// A limit for the shell to set first, as `ulimit` has it: `-n 40`.
    pub ulimit: Option<&'a str>,
    /// Its address; the port is chosen.
    pub host: Ipv4Addr,
}

impl<'a> Start<'a> {
    /// With these flags, on loopback, and defaults otherwise.
    #[must_use]
    pub const fn new(flags: &'a [&'a str]) -> Self {
        Self {
            flags,
            log: Log::Dropped,
            ulimit: None,
            host: Ipv4Addr::LOCALHOST,
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    child: Child,
}

impl Target {
    /// Starts a server and waits until it listens.
    ///
    /// # Errors
    /// It cannot be started, or does not listen.
    pub fn start(kind: Kind, program: &Path, start: &Start<'_>) -> io::Result<Self> {
        let address = SocketAddr::from((start.host, free_port()?));
        Self::start_at(kind, program, start, address)
    }

    /// The same on an address that another server has used: a restart.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_at(
        kind: Kind,
        program: &Path,
        start: &Start<'_>,
        address: SocketAddr,
    ) -> io::Result<Self> {
        let port = address.port();
        let mut command = match start.ulimit {
            None => Command::new(program),
            Some(limit) => {
                let mut shell = Command::new("sh");
                shell
                    .args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")])
                    .arg(program);
                shell
            }
        };
        match kind {
            Kind::Latchd => command.args(["-l", &address.to_string()]),
            Kind::Memcached => command
                .args(["-l", &start.host.to_string(), "-p", &port.to_string()])
                .args(["-U", "0", "-u", "root"]),
        };
        command
            .args(start.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        match start.log {
            Log::Dropped => command.stderr(Stdio::null()),
            Log::Piped => command.stderr(Stdio::piped()),
            Log::Full => {
                let full = std::fs::OpenOptions::new().write(true).open("/dev/full")?;
                command.stderr(full)
            }
            Log::None => {
                let mut shell = Command::new("sh");
                shell
                    .args(["-c", "exec 2>&-; exec \"$0\" \"$@\""])
                    .arg(command.get_program())
                    .args(command.get_args())
                    .stdin(Stdio::null())
                    .stdout(Stdio::null());
                command = shell;
                &mut command
            }
        };
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", program.display()))
        })?;
        let mut target = Self { address, child };
        let deadline = Instant::now() + START;
        loop {
            match Client::connect(address).and_then(|mut client| client.ask("mn")) {
                Ok(_) => return Ok(target),
                Err(error) => {
                    if let Some(status) = target.child.try_wait()? {
                        return Err(io::Error::other(format!("it has ended: {status}")));
                    }
                    if Instant::now() > deadline {
                        return Err(error);
                    }
                }
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The pipe of its log. Dropping it closes it.
    pub fn take_log(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its peak memory, in MiB.
    ///
    /// # Errors
    /// It has ended.
    pub fn peak_mib(&self) -> io::Result<u64> {
        Ok(self.status_kib("VmHWM:")? / 1024)
    }

    /// Its memory now (RSS), in KiB.
    ///
    /// # Errors
    /// It has ended.
    pub fn resident_kib(&self) -> io::Result<u64> {
        self.status_kib("VmRSS:")
    }

    /// A line of its status in the kernel, in KiB.
    fn status_kib(&self, name: &str) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.trim().strip_suffix(" kB"))
            .and_then(|kib| kib.parse().ok())
            .ok_or_else(|| io::Error::other("it has ended"))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("no process"))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends SIGTERM and waits. Returns the exit status and how long that took; `None` if it did
    /// not end in `patience`.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub fn terminate(&mut self, patience: Duration) -> io::Result<Option<(ExitStatus, Duration)>> {
        let asked = Instant::now();
        if self.child.try_wait()?.is_none() {
            self.signal(Signal::TERM)?;
        }
        while asked.elapsed() < patience {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some((status, asked.elapsed())));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(None)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // A server that has already ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! etcd processes for tests: Debian's etcd-server, started on free ports and stopped by process id.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::port::free_port;

/// An etcd that is not ready after this long does not start.
const PATIENCE: Duration = Duration::from_secs(30);

/// An etcd of one member, with a folder of its own; both go with the value.
pub(crate) struct EtcdProcess {
    command: Command,
    child: Child,
    folder: PathBuf,
    scheme: &'static str,
    port: u16,
    health: u16,
}

impl EtcdProcess {
    /// Starts an etcd and waits until it is ready; `None` without the program, unless `TEST_REQUIRE_PEERS` is set.
    pub(crate) fn start(flags: &[&str]) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let is_there = Command::new("etcd")
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if is_there.is_err() {
            eprintln!("there is no etcd on PATH: nothing is tried with it");
            assert!(std::env::var_os("TEST_REQUIRE_PEERS").is_none());
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("latchd-etcd-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let is_secure = flags.iter().any(|flag| flag.starts_with("--cert-file"));
        let scheme = if is_secure { "https" } else { "http" };
        let (port, health, peer) = (free_port(), free_port(), free_port());
        let client = format!("{scheme}://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new("etcd");
        command
            .args(["--name", "one", "--unsafe-no-fsync", "--log-level", "error"])
            .args([
                "--heartbeat-interval",
                "20",
                "--election-timeout",
                "200",
                "--data-dir",
            ])
            .arg(folder.join("data"))
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("one={peer}")])
            .args([
                "--initial-cluster-token",
                &format!("{}-{number}", std::process::id()),
            ])
            .args([
                "--listen-metrics-urls",
                &format!("http://127.0.0.1:{health}"),
            ])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let mut etcd = Self {
            command,
            child,
            folder,
            scheme,
            port,
            health,
        };
        etcd.wait_until_ready();
        Some(etcd)
    }

    /// The URL for clients.
    pub(crate) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// The port for clients.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Kills it and starts it again, with the same data.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.child = self.command.spawn().unwrap();
        self.wait_until_ready();
    }

    /// Kills it.
    pub(crate) fn stop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it, until it gets the signal CONT.
    pub(crate) fn pause(&self) {
        pause(self.child.id());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Adds the user `latchd` with the password `secret` for the records of latchd alone, and requires users.
    pub(crate) fn add_users(&self) {
        for (path, text) in [
            ("user/add", r#"{"name":"root","password":"root"}"#),
            ("user/grant", r#"{"user":"root","role":"root"}"#),
            ("user/add", r#"{"name":"latchd","password":"secret"}"#),
            ("role/add", r#"{"name":"latchd"}"#),
            // "/latchd/" to "/latchd0".
            (
                "role/grant",
                r#"{"name":"latchd","perm":{"permType":"READWRITE","key":"L2xhdGNoZC8=","range_end":"L2xhdGNoZDA="}}"#,
            ),
            ("user/grant", r#"{"user":"latchd","role":"latchd"}"#),
            ("enable", "{}"),
        ] {
            let (status, reply) = self.post(&format!("/v3/auth/{path}"), text);
            assert!(status.contains("200"), "{path}: {status} {reply}");
        }
    }

    /// Sends a request to the gateway without TLS; returns the status line and the rest of the reply.
    fn post(&self, path: &str, text: &str) -> (String, String) {
        let length = text.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{text}"
        );
        asked(self.port, &request).unwrap()
    }

    fn wait_until_ready(&mut self) {
        let begun = Instant::now();
        let request = "GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n";
        while !asked(self.health, request)
            .is_ok_and(|(_, text)| text.contains("\"health\":\"true\""))
        {
            assert_eq!(self.child.try_wait().unwrap(), None, "etcd has ended");
            assert!(begun.elapsed() < PATIENCE, "etcd is not ready");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Stops a process, and waits until every thread of it stands.
pub(crate) fn pause(process: u32) {
    let pid = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let stands = |task: std::io::Result<std::fs::DirEntry>| {
        let state = std::fs::read_to_string(task.unwrap().path().join("stat"));
        // The state follows the name, which is in brackets.
        state.is_ok_and(|text| {
            let rest = text.rsplit(')').next();
            rest.is_some_and(|rest| rest.starts_with(" T"))
        })
    };
    let tasks = format!("/proc/{process}/task");
    let begun = Instant::now();
    while !std::fs::read_dir(&tasks).unwrap().all(stands) {
        assert!(begun.elapsed() < PATIENCE, "process {process} goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn asked(port: u16, request: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (status, rest) = reply.split_once("\r\n").unwrap_or_default();
    Ok((status.to_owned(), rest.to_owned()))
}

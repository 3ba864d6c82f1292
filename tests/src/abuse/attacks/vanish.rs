//! A peer that vanishes: its machine has lost power, or its cable.
//!
//! A network namespace of its own is the other machine, a pair of virtual interfaces is the cable.
//! That takes `ip` and the rights to do it; without them the row says so.

use std::io::{self, BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::client::Client;
use super::super::target::Start;
use super::super::{Attack, Outcome, Stage, fill};

/// The default of `--dead-peer` (10 s), and the time that detection may take beside it.
const FREE_MAX: Duration = Duration::from_secs(11);

/// How long to wait for a server that does not find out: some do only after hours.
const PATIENCE: Duration = Duration::from_secs(20);

/// The holder has nothing in flight: only keepalive can find out.
pub(super) const VANISH: Attack = Attack {
    name: "vanish",
    about: "the link of a silent holder goes down",
    has_peer: false,
    play: |stage| vanish(stage, "silent"),
};

/// The holder has replies in flight that are not acknowledged.
pub(super) const VANISH_UNREAD: Attack = Attack {
    name: "vanish-unread",
    about: "the link of a holder goes down while it reads",
    has_peer: false,
    play: |stage| vanish(stage, "reading"),
};

fn vanish(stage: &Stage<'_>, how: &str) -> io::Result<Outcome> {
    let cable = Cable::new()?;
    let target = stage.start(&Start {
        host: cable.here,
        ..Start::new(&["-t", "4"])
    })?;
    fill(&target, 1)?;
    let mut holder = Command::new("ip")
        .args(["netns", "exec", &cable.namespace])
        .arg(&stage.setting.holder)
        .args(["--hold", &target.address.to_string(), how])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Killed)?;
    let mut said = String::new();
    if let Some(stdout) = holder.0.stdout.take() {
        BufReader::new(stdout).read_line(&mut said)?;
    }
    if said.trim() != "OK" {
        return Err(io::Error::other(format!("the holder: {said:?}")));
    }
    let mut waiter = Client::connect(target.address)?;
    let held = waiter.ask("lock k0")?;
    cable.cut()?;
    let cut = Instant::now();
    obtain_in_time(&mut waiter)?;
    let mut outcome = Outcome::default();
    outcome.must(held == "LOCKED", format!("lock k0: {held}"));
    outcome.span("free", cut.elapsed(), FREE_MAX);
    Ok(outcome)
}

/// Requests the lock until it is granted, or until the time limit.
fn obtain_in_time(waiter: &mut Client) -> io::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE && waiter.ask("lock k0")? != "OK" {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Holds the lock of `k0` until the process ends. This program runs it in the network namespace.
///
/// # Errors
/// The lock is not free.
pub fn hold_elsewhere(address: &str, how: &str) -> io::Result<()> {
    let address = address
        .parse()
        .map_err(|_| io::Error::other("not an address"))?;
    let mut client = Client::connect(address)?;
    if how == "reading" {
        let value = "v".repeat(500_000);
        client.send(format!("set big 0 0 500000\r\n{value}\r\n"))?;
        client.line()?;
    }
    println!("{}", client.ask("lock k0")?);
    loop {
        if how == "reading" {
            client.send("get big\r\n")?;
            client.read_until("END")?;
        } else {
            std::thread::park();
        }
    }
}

/// A process that is killed when the value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another machine and the cable to it; both are removed with the value.
struct Cable {
    namespace: String,
    near: String,
    here: Ipv4Addr,
}

impl Cable {
    fn new() -> io::Result<Self> {
        let id = std::process::id();
        let octet = u8::try_from(id % 250).unwrap_or(0);
        let here = Ipv4Addr::new(10, 213, octet, 1);
        let there = Ipv4Addr::new(10, 213, octet, 2);
        let cable = Self {
            namespace: format!("latchd-abuse-{id}"),
            near: format!("lta{}", id % 1_000_000),
            here,
        };
        let far = format!("ltb{}", id % 1_000_000);
        let Self {
            namespace, near, ..
        } = &cable;
        // An earlier one may have been left by a run that was killed.
        let _ = ip(&format!("netns del {namespace}"));
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("link add {near} type veth peer name {far}"))?;
        ip(&format!("link set {far} netns {namespace}"))?;
        ip(&format!("addr add {here}/24 dev {near}"))?;
        ip(&format!("link set {near} up"))?;
        ip(&format!("-n {namespace} addr add {there}/24 dev {far}"))?;
        ip(&format!("-n {namespace} link set {far} up"))?;
        Ok(cable)
    }

    /// The other end goes down: nothing arrives there any more, and nothing comes from there.
    fn cut(&self) -> io::Result<()> {
        let far = self.near.replacen("lta", "ltb", 1);
        ip(&format!("-n {} link set {far} down", self.namespace))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // Removing either end removes the pair.
        let _ = ip(&format!("link del {}", self.near));
        let _ = ip(&format!("netns del {}", self.namespace));
    }
}

fn ip(arguments: &str) -> io::Result<()> {
    let unsupported = |why: String| io::Error::new(io::ErrorKind::Unsupported, why);
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .map_err(|error| unsupported(format!("no network namespaces: ip: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(unsupported(format!(
        "no network namespaces: ip {arguments}: {}",
        said.trim()
    )))
}

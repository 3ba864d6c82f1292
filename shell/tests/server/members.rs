//! Members of a cluster, as processes with a real etcd: who serves a partition, and the end of a term.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::client::TestClient;
use crate::etcd_process::EtcdProcess;
use crate::port::free_port;
use crate::process::{self, eventually, latchd, pid};
use crate::slow_way::SlowWay;
use crate::status::get;

/// A change of the role takes seconds, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A hold that a busy machine does not miss.
const TIMES: [&str; 4] = ["--hold", "5000", "--wait", "5700"];

/// A wait that no other delay is confused with.
const LONG_TIMES: [&str; 4] = ["--hold", "10000", "--wait", "11100"];

/// A hold that a test can wait for, and a wait that shows whether a process has waited.
const SHORT_HOLD: [&str; 4] = ["--hold", "3000", "--wait", "11100"];

/// Adds the item of a lease.
const LEASE: &str = "ms lease 5 ME F1818583411 T5\r\ntoken";

/// The name of the only partition.
const PARTITION: &str = "cache-a:11211";

/// A cluster with its etcd, and a folder for the files of its members.
struct Cluster {
    etcd: EtcdProcess,
    folder: PathBuf,
}

impl Cluster {
    /// A cluster with these partitions; `None` without etcd.
    fn start(partitions: &[&str]) -> Option<Self> {
        Self::with(&TIMES, partitions)
    }

    fn with(times: &[&str], partitions: &[&str]) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let etcd = EtcdProcess::start(&[])?;
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("latchd-members-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let cluster = Self { etcd, folder };
        let mut init = latchd(&["cluster", "init"]);
        init.args(["--authority", &cluster.etcd.url(), "--cluster", "shop"]);
        let output = init.args(times).args(partitions).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Some(cluster)
    }

    /// The flags of a member at this address.
    fn flags(&self, address: SocketAddr) -> Vec<String> {
        Self::flags_by(&self.etcd.url(), address)
    }

    /// The same, with another way to etcd.
    fn flags_by(url: &str, address: SocketAddr) -> Vec<String> {
        let address = address.to_string();
        let flags = [
            "-l",
            &address,
            "--authority",
            url,
            "--cluster",
            "shop",
            "--partition",
            PARTITION,
        ];
        flags.map(str::to_owned).to_vec()
    }

    /// A member with more flags.
    fn member(&self, flags: &[&str]) -> Member {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut all = self.flags(address);
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Member::start(address, all)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A process, which is killed with the value.
struct Member {
    child: Child,
    address: SocketAddr,
    flags: Vec<String>,
}

impl Member {
    fn start(address: SocketAddr, flags: Vec<String>) -> Self {
        let child = latchd(&flags).spawn().unwrap();
        Self {
            child,
            address,
            flags,
        }
    }

    fn restart(&mut self) {
        self.child = latchd(&self.flags).spawn().unwrap();
    }

    /// Waits until it serves.
    fn serves(&self) -> TestClient {
        eventually("it does not serve", || self.is_primary());
        TestClient::connect(self.address)
    }

    fn is_primary(&self) -> bool {
        let Ok(stream) = TcpStream::connect(self.address) else {
            return false;
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = TestClient::new(stream);
        client.ask("mn") == "MN"
    }

    fn signal(&self, signal: Signal) {
        kill_process(pid(self.child.id()), signal).unwrap();
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The fence of a new lock.
fn fence(client: &mut TestClient, key: &str) -> u64 {
    let reply = client.ask(&format!("ml {key} F"));
    let number = reply.strip_prefix("HD F").expect("a lock with its fence");
    number.parse().unwrap()
}

#[test]
fn restart_with_its_state_serves_at_once() {
    let Some(cluster) = Cluster::with(&SHORT_HOLD, &[PARTITION]) else {
        return;
    };
    let state = cluster.path("state");
    fs::create_dir(&state).unwrap();
    let mut first = cluster.member(&["--state", &state]);
    let mut client = first.serves();
    let before = fence(&mut client, "k");
    let output = cluster_output(&cluster, &["--state", &state]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(71), "{said}");
    assert!(said.contains("in use by another process"), "{said}");
    first.child.kill().unwrap();
    first.exit_code();
    first.restart();
    let mut client = first.serves();
    // A client may still believe in a promise of the first process.
    assert_eq!(client.ask("ml k"), "LK h0 a0 n0", "X2");
    assert_eq!(client.ask(LEASE), "LK", "X2");
    assert_eq!(client.ask("set k 0 0 1\r\nx"), "STORED");
    let granted = client.ask("ml k F w600000");
    let granted = granted.strip_prefix("HD F").unwrap().parse::<u64>();
    assert!(granted.unwrap() > before, "X3");
    let uptime = client.stat("uptime").parse::<u64>().unwrap();
    assert!(
        (2..9).contains(&uptime),
        "E9: it has waited for 2.6 s, and not for 11.1 s, but {uptime} s"
    );
}

/// The copy shows the id of a primary that lives.
#[test]
fn a_copied_state_is_refused() {
    let Some(cluster) = Cluster::start(&[PARTITION]) else {
        return;
    };
    let (state, copy) = (cluster.path("state"), cluster.path("copy"));
    fs::create_dir(&state).unwrap();
    let primary = cluster.member(&["--state", &state]);
    drop(primary.serves());
    let cp = Command::new("cp").args(["-a", &state, &copy]).status();
    assert!(cp.unwrap().success());
    for _ in 0..2 {
        let output = cluster_output(&cluster, &["--state", &copy]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(71), "{said}");
        let why = format!("--state {copy}: latchd.id is a copy, ");
        assert!(said.contains(&why), "{said}");
    }
    assert!(primary.is_primary(), "X1");
}

#[test]
fn leaving_primary_grants_nothing() {
    let Some(cluster) = Cluster::with(&SHORT_HOLD, &[PARTITION]) else {
        return;
    };
    let mut primary = cluster.member(&[]);
    let (mut holder, mut waiter) = (primary.serves(), primary.serves());
    assert!(holder.ask("ml k F").starts_with("HD F"));
    waiter.send("ml k w600000\r\n");
    // It serves on for as long as it has promised.
    assert!(holder.ask("mn H").starts_with("MN H"));
    primary.signal(Signal::TERM);
    eventually("it does not leave", || {
        let reply = holder.ask("ml other");
        holder.ask("mu other");
        reply == "LK h0 a0 n0"
    });
    assert_eq!(holder.ask("set j 0 0 1\r\nx"), "STORED");
    assert_eq!(holder.ask(LEASE), "LK");
    assert_eq!(holder.ask("ml k T60000"), "HD", "it renews");
    assert_eq!(holder.ask("mu k"), "HD");
    assert_eq!(holder.ask("ml k"), "LK h0 a0 n1");
    assert_eq!(
        waiter.rest(),
        b"",
        "it gets no lock from a process that leaves"
    );
    assert_eq!(primary.exit_code(), Some(0));
}

#[test]
fn slow_etcd_learns_of_a_free_partition() {
    let Some(cluster) = Cluster::with(&LONG_TIMES, &[PARTITION]) else {
        return;
    };
    let way = SlowWay::to(cluster.etcd.port());
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut primary = Member::start(address, Cluster::flags_by(&way.url(), address));
    drop(primary.serves());
    way.delay(Duration::from_millis(800));
    primary.signal(Signal::TERM);
    assert_eq!(primary.exit_code(), Some(0));
    let mut status = latchd(&["cluster", "status", "--json", "--cluster", "shop"]);
    status.args(["--authority", &cluster.etcd.url()]);
    let output = status.stdout(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("\"state\":\"free\""), "E12: {said}");
}

#[test]
fn only_the_next_term_reads_the_file() {
    let Some(cluster) = Cluster::start(&[PARTITION]) else {
        return;
    };
    let file = cluster.path("items");
    let mut first = cluster.member(&["-e", &file]);
    assert_eq!(first.serves().ask("set k 0 0 1\r\nx"), "STORED");
    // A standby on the same machine.
    let mut second = cluster.member(&["-e", &file]);
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code(), Some(0));
    let mut client = second.serves();
    assert_eq!(client.ask("mg k v"), "VA 1", "E12");
    assert_eq!(client.line(), "x");
    drop(client);
    second.signal(Signal::TERM);
    assert_eq!(second.exit_code(), Some(0));
    assert!(fs::exists(&file).unwrap());
    // A term in between.
    let mut between = cluster.member(&[]);
    drop(between.serves());
    between.signal(Signal::TERM);
    assert_eq!(between.exit_code(), Some(0));
    first.restart();
    assert_eq!(first.serves().ask("mg k v"), "EN", "X4");
}

#[test]
fn locks_of_another_partition_are_refused() {
    // `user:8` belongs to the second one (the example of `RingRecord`).
    let Some(cluster) = Cluster::start(&[PARTITION, "cache-b:11211"]) else {
        return;
    };
    let member = cluster.member(&[]);
    let mut client = member.serves();
    assert_eq!(client.ask("ml user:8"), "SERVER_ERROR key of cache-b:11211");
    assert_eq!(client.ask("set user:8 0 0 1\r\nx"), "STORED");
}

/// The version and the servers of `config get cluster`.
fn servers(client: &mut TestClient) -> (u64, String) {
    assert!(
        client
            .ask("config get cluster")
            .starts_with("CONFIG cluster 0 ")
    );
    let version = client.line().parse().expect("a version");
    let servers = client.line();
    assert_eq!([client.line(), client.line()], ["", "END"]);
    (version, servers)
}

#[test]
fn all_processes_show_the_same_servers() {
    let other = "cache-b:11211";
    let Some(cluster) = Cluster::start(&[PARTITION, other]) else {
        return;
    };
    let mut a = cluster.member(&[]);
    let b = cluster.member(&["--partition", other]);
    let mut clients = [a.serves(), b.serves()];
    let standby = cluster.member(&["--partition", other]);
    let form = |a: &Member, b: &Member| {
        let [a, b] =
            [a, b].map(|member| format!("{}|{}", member.address.ip(), member.address.port()));
        format!("cache-a|{a} cache-b|{b}")
    };
    // All show these servers, with one version above an earlier one.
    let same = |clients: &mut [TestClient; 2], expected: &str, before: u64| {
        let mut shown = 0;
        eventually("they show other servers", || {
            let [one, two] = clients.each_mut().map(servers);
            shown = one.0;
            one == two && one.1 == expected && shown > before
        });
        shown
    };
    let first = same(&mut clients, &form(&a, &b), 0);
    clients[0].send("stats cluster\r\n");
    let lines = std::iter::from_fn(|| Some(clients[0].line()).filter(|line| line != "END"));
    let ring: Vec<_> = lines
        .filter(|line| line.starts_with("STAT ring:"))
        .collect();
    assert_eq!(
        ring,
        ["STAT ring:cache-a:11211 1", "STAT ring:cache-b:11211 1"]
    );
    // A failover.
    drop(b);
    clients[1] = standby.serves();
    let second = same(&mut clients, &form(&a, &standby), first);
    // A new process knows no earlier version.
    a.child.kill().unwrap();
    a.exit_code();
    a.restart();
    clients[0] = a.serves();
    same(&mut clients, &form(&a, &standby), second);
}

/// Runs a member that is expected to end.
fn cluster_output(cluster: &Cluster, flags: &[&str]) -> Output {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut command = latchd(&cluster.flags(address));
    command.args(flags).stderr(Stdio::piped());
    command.output().unwrap()
}

#[test]
fn wrong_settings_end_with_their_reason() {
    let Some(cluster) = Cluster::start(&["cache-b:11211", "cache-c:11211"]) else {
        return;
    };
    let with = |flags: &[&str]| {
        let output = cluster_output(&cluster, flags);
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    let (code, said) = with(&[]);
    assert_eq!(code, Some(71), "{said}");
    assert!(
        said.contains("not a partition of shop; its ring is cache-b:11211, cache-c:11211"),
        "{said}"
    );
    let (code, said) = with(&["--advertise", "nowhere"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("expected HOST:PORT"), "{said}");
    let (code, said) = with(&["--advertise", "0.0.0.0:11211"]);
    assert_eq!(code, Some(71), "{said}");
    assert!(said.contains("cannot reach this address"), "{said}");
    let (code, said) = with(&["--state", "/nonexistent/latchd"]);
    assert_eq!(code, Some(71), "{said}");
    assert!(said.contains("--state /nonexistent/latchd: "), "{said}");
    let Some(other) = EtcdProcess::start(&[]) else {
        return;
    };
    let (code, said) = with(&["--authority", &other.url()]);
    assert_eq!(code, Some(71), "{said}");
    assert!(said.contains("belongs to another etcd cluster"), "{said}");
    let alone = latchd(&["--partition", PARTITION])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(alone.status.code(), Some(2));
    let said = String::from_utf8(alone.stderr).unwrap();
    assert!(
        said.contains("there is no authority; add --authority"),
        "{said}"
    );
}

#[test]
fn daemon_reports_that_its_ring_refuses_it() {
    let Some(cluster) = Cluster::start(&["cache-b:11211"]) else {
        return;
    };
    let (url, pid_file) = (cluster.etcd.url(), cluster.path("pid"));
    let start = |authority: &str, partition: &str| {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port())).to_string();
        let flags = [
            "-d",
            "-l",
            &address,
            "-P",
            &pid_file,
            "--authority",
            authority,
        ];
        let mut command = latchd(&flags);
        command.args(["--cluster", "shop", "--partition", partition]);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    let (code, said) = start(&url, PARTITION);
    assert_eq!(code, Some(71), "{said}");
    assert!(said.contains("not a partition of shop"), "{said}");
    // The ring has this one; and an etcd that does not answer refuses nothing.
    let nobody = format!("http://127.0.0.1:{}", free_port());
    for authority in [&url, &nobody] {
        let (code, said) = start(authority, "cache-b:11211");
        assert_eq!(code, Some(0), "{said}");
        stop(&pid_file);
    }
}

/// Ends a daemon, and waits for it.
fn stop(pid_file: &str) {
    let pid = fs::read_to_string(pid_file).unwrap();
    let pid = process::pid(pid.trim().parse().unwrap());
    kill_process(pid, Signal::TERM).unwrap();
    eventually("it does not end", || !fs::exists(pid_file).unwrap());
}

#[test]
fn check_asks_every_endpoint() {
    let Some(cluster) = Cluster::start(&[PARTITION]) else {
        return;
    };
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let check = |cluster_name: &str, endpoints: &str, state: &str| {
        let listen = address.to_string();
        let flags = [
            "check",
            "-l",
            &listen,
            "--authority",
            endpoints,
            "--cluster",
            cluster_name,
            "--partition",
            PARTITION,
            "--state",
            state,
        ];
        let output = latchd(&flags).stdout(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), said)
    };
    let (url, folder) = (cluster.etcd.url(), cluster.path(""));
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let (code, said) = check("shop", &format!("{url},{nobody}"), &folder);
    assert_eq!(code, Some(0), "{said}");
    for line in [
        format!("ok       --authority {url} answers"),
        format!("warning  --authority {nobody}: unreachable"),
        format!("ok       {PARTITION} is a partition of shop"),
        format!("ok       --state {folder} is writable"),
    ] {
        assert!(said.contains(&line), "{line} in {said}");
    }
    let (code, said) = check("shop", &nobody, &folder);
    assert_eq!(code, Some(71), "{said}");
    let (code, said) = check("other", &url, "/nonexistent");
    assert_eq!(code, Some(71), "{said}");
    assert!(
        said.contains("the authority has no cluster other"),
        "{said}"
    );
    assert!(
        said.contains("failure  --state /nonexistent is not writable"),
        "{said}"
    );
}

#[test]
fn member_shows_its_role() {
    let Some(cluster) = Cluster::start(&[PARTITION]) else {
        return;
    };
    let status = [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let primary = cluster.member(&["--status", &status[0].to_string()]);
    let mut client = primary.serves();
    let _standby = cluster.member(&["--status", &status[1].to_string()]);
    eventually("it has no status port", || {
        TcpStream::connect(status[1]).is_ok()
    });
    let paths = |path: &str| status.map(|address| get(address, path));
    let [serves, stands] = paths("/primary");
    assert_eq!(serves, ("200".to_owned(), "primary\n".to_owned()));
    assert_eq!(stands, ("503".to_owned(), "not primary\n".to_owned()));
    let [serves, stands] = paths("/healthz");
    assert_eq!((&*serves.0, &*stands.0), ("200", "200"));
    let [(_, serves), (_, stands)] = paths("/metrics");
    for name in ["primary", "term"] {
        let line = |value: u8| format!("\nlatchd_cluster_{name} {value}\n");
        assert!(serves.contains(&line(1)) && stands.contains(&line(0)));
    }
    for name in ["resumed", "unanswered", "answered"] {
        assert!(stands.contains(&format!("\nlatchd_cluster_{name}_total ")));
    }
    let answers = "latchd_cluster_answer_seconds_bucket{le=\"0.4\"} ";
    assert!(stands.contains(answers), "{stands}");
    let hold = |metrics: &str| -> f64 {
        let (_, rest) = metrics
            .split_once("\nlatchd_cluster_hold_seconds ")
            .unwrap();
        rest.lines().next().unwrap().parse().unwrap()
    };
    assert!(hold(&serves) > 0.0 && hold(&serves) <= 5.0, "{serves}");
    assert!(hold(&stands).abs() < f64::EPSILON, "{stands}");
    for (name, value) in [("primary", "1"), ("term", "1"), ("resumed", "0")] {
        assert_eq!(client.stat(&format!("cluster_{name}")), value);
    }
    assert!(client.stat("cluster_hold_ms").parse::<u64>().unwrap() <= 5000);
    assert!(client.stat("cluster_answered").parse::<u64>().unwrap() > 0);
    assert!(client.stat("cluster_answer_ms").parse::<u64>().unwrap() <= 1200);
    let mut status = latchd(&["cluster", "status", "--json", "--cluster", "shop"]);
    status.args(["--authority", &cluster.etcd.url()]);
    let output = status.stdout(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let (_, hold_left) = said.split_once("\"hold_left_ms\":").expect(&said);
    let hold_left: u64 = hold_left
        .split(['}', ','])
        .next()
        .unwrap()
        .parse()
        .expect(&said);
    assert!(hold_left > 0 && hold_left <= 4600, "{said}");
    client.send("stats cluster\r\n");
    let lines = [(); 4].map(|()| client.line());
    let address = format!("STAT address {}", primary.address);
    let partition = format!("STAT partition {PARTITION}");
    let expected = [
        "STAT cluster shop",
        &partition,
        &address,
        "STAT role primary",
    ];
    assert_eq!(lines, expected);
}

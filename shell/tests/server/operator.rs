//! The operator's settings: the user of the process, its life as a service, and the permissions of
//! clients.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::client::{TestClient, address, start};
use crate::port::free_port;
use crate::process::{eventually, latchd, pid};
use rustix::process::{Signal, kill_process, test_kill_process};

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("latchd-operator-{}-{name}", std::process::id()))
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// A server at an address of its own, which stops when the value is dropped.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Running {
    fn start(flags: &[&str]) -> Self {
        let address = free_address();
        let mut child = latchd(&["-l", &address.to_string()])
            .args(flags)
            .spawn()
            .unwrap();
        while TcpStream::connect(address).is_err() {
            assert_eq!(child.try_wait().unwrap(), None, "it has ended");
            std::thread::sleep(Duration::from_millis(2));
        }
        Self { child, address }
    }

    fn client(&self) -> TestClient {
        TestClient::connect(self.address)
    }

    fn signal(&self, signal: Signal) {
        kill_process(pid(self.child.id()), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ended(output: &Output) -> (Option<i32>, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn a_daemon_serves_and_writes_its_pid_file() {
    let (pid_file, ports) = (temporary("pid"), temporary("ports"));
    let address = free_address();
    let flags = ["-d", "-l", &address.to_string(), "-P"];
    let status = latchd(&flags)
        .arg(&pid_file)
        .env("MEMCACHED_PORT_FILENAME", &ports)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(TestClient::connect(address).ask("mn"), "MN");
    let number = std::fs::read_to_string(&pid_file).unwrap();
    let number = number.strip_suffix('\n').unwrap().parse().unwrap();
    let session = rustix::process::getsid(Some(pid(number))).unwrap();
    assert_eq!(session, pid(number), "it has a session of its own");
    let link = |what: &str| std::fs::read_link(format!("/proc/{number}/{what}")).unwrap();
    assert_eq!(link("cwd"), std::env::current_dir().unwrap());
    assert_eq!(link("fd/2"), PathBuf::from("/dev/null"));
    let written = std::fs::read_to_string(&ports).unwrap();
    assert_eq!(written, format!("TCP INET: {}\n", address.port()));
    std::fs::remove_file(&ports).unwrap();

    let mut second = latchd(&flags);
    second.arg(temporary("pid2")).stderr(Stdio::piped());
    let (code, said) = ended(&second.output().unwrap());
    assert_eq!(code, Some(71), "{said}");
    assert!(said.contains("in use"), "{said}");
    let mut third = latchd(&["-d", "-C", "-l", &free_address().to_string(), "-P"]);
    let pid_file3 = temporary("pid3");
    let (code, said) = ended(
        &third
            .arg(&pid_file3)
            .stderr(Stdio::piped())
            .output()
            .unwrap(),
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("without effect: -C"), "{said}");
    let number3 = std::fs::read_to_string(&pid_file3).unwrap();
    kill_process(pid(number3.trim().parse().unwrap()), Signal::TERM).unwrap();
    eventually("the third file is left behind", || !pid_file3.exists());

    kill_process(pid(number), Signal::TERM).unwrap();
    eventually("the file is left behind", || !pid_file.exists());
    eventually("it does not end", || {
        test_kill_process(pid(number)).is_err() || is_zombie(number)
    });
}

#[test]
fn pid_file_and_root_warning_work_undaemonized() {
    let (pid_file, log) = (temporary("pid-here"), temporary("root.log"));
    let mut server = Running::start(&[
        "-P",
        pid_file.to_str().unwrap(),
        "--log-file",
        log.to_str().unwrap(),
    ]);
    let number = server.child.id().to_string();
    eventually("there is no pid file", || {
        std::fs::read_to_string(&pid_file).is_ok_and(|written| written.trim() == number)
    });
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(!pid_file.exists(), "it is left behind");
    let said = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    let is_warned = said.contains("running as root, which is not needed");
    assert_eq!(is_warned, rustix::process::geteuid().is_root(), "{said}");
}

/// Whether a process has ended and was not waited for: its parent has ended.
fn is_zombie(number: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn root_becomes_the_user_for_good() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("only root can become nobody: not tried");
    }
    let mut unknown = latchd(&["-u", "no-such-user"]);
    let (code, said) = ended(&unknown.stderr(Stdio::piped()).output().unwrap());
    assert_eq!(code, Some(67), "{said}");
    let server = Running::start(&["-u", "nobody"]);
    assert_eq!(server.client().ask("mn"), "MN");
    let status = format!("/proc/{}/status", server.child.id());
    let status = std::fs::read_to_string(status).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let id = |flag| {
        let output = Command::new("id").args([flag, "nobody"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(field("Uid:"), vec![id("-u"); 4]);
    assert_eq!(field("Gid:"), vec![id("-g"); 4]);
    assert!(field("Groups:").is_empty());
    // Every thread has lost the capability, or one of them could be made to use it.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        assert!(uid.unwrap().split_whitespace().all(|uid| uid == id("-u")));
    }
}

/// A chart gives `-u` to a container that does not run as root, and `-k` to one that may lock 8 MiB.
#[test]
fn failures_of_u_and_k_are_warnings() {
    let is_root = rustix::process::geteuid().is_root();
    let as_nobody = if is_root {
        "setpriv --reuid=65534 --clear-groups"
    } else {
        ""
    };
    for (run_as, flags, said) in [
        (
            as_nobody,
            "-u no-such-user",
            "ignoring -u no-such-user: only root",
        ),
        // Root raises the limit if possible, and is not warned then.
        ("", if is_root { "-u nobody -k" } else { "-k" }, ""),
    ] {
        let (address, log) = (free_address(), temporary("ignored.log"));
        let program = env!("CARGO_BIN_EXE_latchd");
        // The program may be in a folder that the user cannot read: it is run by its descriptor.
        let script = format!(
            "ulimit -l 8192; exec {run_as} /proc/self/fd/3 -l {address} {flags} 3<{program} 2>{}",
            log.display()
        );
        let child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let mut server = Running { child, address };
        eventually("it does not serve", || TcpStream::connect(address).is_ok());
        assert_eq!(server.client().ask("set k 0 0 1\r\nx"), "STORED");
        server.signal(Signal::TERM);
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        assert!(text.contains(said), "{text}");
    }
}

/// Debian's file is all that its start script reads; the places of files differ here, and the port.
#[test]
fn debians_configuration_starts_it_as_it_is() {
    let address = free_address();
    let (config, pid_file, log) = (
        temporary("debian.conf"),
        temporary("debian.pid"),
        temporary("debian.log"),
    );
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { "nobody" } else { &current_user() };
    let text = include_str!("debian/memcached.conf")
        .replace(
            "/var/run/memcached/memcached.pid",
            pid_file.to_str().unwrap(),
        )
        .replace("/var/log/memcached.log", log.to_str().unwrap())
        .replace("-p 11211", &format!("-p {}", address.port()))
        .replace("-u memcache", &format!("-u {user}"));
    std::fs::write(&config, text).unwrap();
    let mut started = latchd(&["--config", config.to_str().unwrap()]);
    assert_eq!(started.status().unwrap().code(), Some(0), "-d returns");
    let mut client = TestClient::connect(address);
    assert_eq!(client.stat("limit_maxbytes"), "67108864");
    let number: u32 = client.stat("pid").parse().unwrap();
    let written = std::fs::read_to_string(&pid_file).unwrap();
    assert_eq!(written.trim(), number.to_string());
    kill_process(pid(number), Signal::TERM).unwrap();
    eventually("the stop is not in the log", || {
        std::fs::read_to_string(&log)
            .unwrap()
            .contains("server stopped: SIGTERM")
    });
    eventually("it does not end", || {
        test_kill_process(pid(number)).is_err() || is_zombie(number)
    });
    for path in [config, pid_file, log] {
        let _ = std::fs::remove_file(path);
    }
}

#[test]
fn check_reports_problems_and_starts_no_server() {
    let address = free_address();
    let flags = ["check", "-l", &address.to_string(), "-c", "100"];
    let output = latchd(&flags).stdout(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains(&format!("ok       {address} is free")),
        "{said}"
    );
    assert!(said.contains("descriptors for 100 connections"), "{said}");

    let _taken = std::net::TcpListener::bind(address).unwrap();
    let file = temporary("no-socket");
    std::fs::write(&file, "").unwrap();
    let output = latchd(&flags)
        .arg("-s")
        .arg(&file)
        .args([
            "-u",
            "no-such-user",
            "-b",
            "65535",
            "--log-file",
            "/nowhere/log",
            "-Z",
        ])
        .arg("-Y")
        .arg(&file)
        .args(["-o", &format!("ssl_chain_cert={}", file.display())])
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(71), "{said}");
    let shown = file.display();
    for line in [
        format!("failure  -l: cannot listen on {address}: address in use; stop the other server"),
        format!("failure  -s: cannot listen on {shown}: the file exists and is not a socket"),
        format!("failure  -Y {shown}: the file has no users"),
        format!("failure  cannot use the certificates of -Z: {shown}: "),
        "failure  -u no-such-user: no such user".into(),
        "failure  --log-file /nowhere/log is not writable".into(),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(
        latchd(&["check", "-m", "much"]).status().unwrap().code(),
        Some(2)
    );
}

/// Paths that are needed at the end, or by SIGHUP, are checked before clients are served, and as
/// the server's user.
#[test]
fn paths_are_checked_as_the_servers_user() {
    let folder = temporary("folder");
    std::fs::create_dir(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let folder_path = folder.to_str().unwrap();
    let address = free_address().to_string();
    let check = |flags: &[&str]| {
        let mut check = latchd(&["check", "-l", &address]);
        let output = check.args(flags).stdout(Stdio::piped()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let file = path("log");
    std::fs::write(&file, "").unwrap();
    let (code, said) = check(&[
        "-e",
        folder_path,
        "-P",
        folder_path,
        "--log-file",
        folder_path,
    ]);
    assert_eq!(code, Some(71), "{said}");
    for line in ["failure  -e ", "warning  -P ", "failure  --log-file "] {
        let is_it = |shown: &str| shown.starts_with(line) && shown.contains("irectory");
        assert!(said.lines().any(is_it), "{line}: {said}");
    }
    let (code, said) = ended(
        &latchd(&["-l", &address, "-e", folder_path])
            .stderr(Stdio::piped())
            .output()
            .unwrap(),
    );
    assert_eq!(code, Some(71), "{said}");
    assert!(said.contains("is a directory; name a file"), "{said}");
    let flags = [
        "-e",
        &path("items"),
        "-P",
        &path("pid"),
        "--log-file",
        &file,
    ];
    let (code, said) = check(&flags);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!("ok       --log-file {file} is writable")),
        "{said}"
    );
    if rustix::process::geteuid().is_root() {
        let (code, said) = check(&[&["-u", "nobody"], &flags[..]].concat());
        assert_eq!(code, Some(71), "{said}");
        for line in ["failure  -e ", "warning  -P ", "warning  --log-file "] {
            let is_it = |shown: &str| shown.starts_with(line) && shown.contains("denied");
            assert!(said.lines().any(is_it), "{line}: {said}");
        }
        // The server logs its missing permissions, and serves.
        let mut server = Running::start(&["-u", "nobody", "--log-file", &file]);
        server.signal(Signal::TERM);
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        let said = std::fs::read_to_string(&file).unwrap();
        assert!(
            said.contains("SIGHUP cannot reopen the log after a rotation"),
            "{said}"
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The messages of a service, as `sd_notify(3)` has them.
#[test]
fn systemd_is_notified_of_readiness_and_health() {
    let path = temporary("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let heard = || {
        let mut bytes = [0; 200];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let address = free_address();
    let mut child = latchd(&["-l", &address.to_string()])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000")
        .spawn()
        .unwrap();
    assert!(heard().starts_with("READY=1\n"));
    assert_eq!(
        TestClient::connect(address).ask("mn"),
        "MN",
        "it serves by then"
    );
    assert_eq!(heard(), "WATCHDOG=1\n");
    assert_eq!(heard(), "WATCHDOG=1\n");
    kill_process(pid(child.id()), Signal::HUP).unwrap();
    let said = std::iter::from_fn(|| Some(heard())).find(|said| said != "WATCHDOG=1\n");
    assert!(said.unwrap().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(heard().starts_with("READY=1\n"));
    kill_process(pid(child.id()), Signal::TERM).unwrap();
    let said = std::iter::from_fn(|| Some(heard())).find(|said| said != "WATCHDOG=1\n");
    assert!(said.unwrap().starts_with("STOPPING=1\n"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    std::fs::remove_file(&path).unwrap();
}

fn current_user() -> String {
    let user = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(user.stdout).unwrap().trim().to_owned()
}

#[test]
fn an_option_error_names_its_source() {
    let config = temporary("mistaken.conf");
    std::fs::write(&config, "-m 64\n-t much\n").unwrap();
    let mut from_file = latchd(&["--config", config.to_str().unwrap()]);
    let (code, said) = ended(&from_file.stderr(Stdio::piped()).output().unwrap());
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("mistaken.conf:2: invalid value 'much'"),
        "{said}"
    );
    std::fs::remove_file(&config).unwrap();
    let mut from_environment = latchd::<&str>(&[]);
    from_environment.env("LATCHD_AUTHFILE", "/etc/passwords");
    let (code, said) = ended(&from_environment.stderr(Stdio::piped()).output().unwrap());
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("LATCHD_AUTHFILE in the environment"),
        "{said}"
    );
}

#[test]
fn shutdown_and_sigusr1_stop_the_server() {
    let mut server = Running::start(&["-A"]);
    assert_eq!(server.client().ask("shutdown"), "");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let mut server = Running::start(&[]);
    let refused = "SERVER_ERROR: shutdown not enabled";
    assert_eq!(server.client().ask("shutdown"), refused);
    server.signal(Signal::USR1);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn commands_disabled_by_flags_are_refused() {
    let server = Running::start(&["-F", "-X", "-W"]);
    let mut client = server.client();
    for (request, answer) in [
        ("flush_all", "CLIENT_ERROR flush_all not allowed"),
        ("keys", "CLIENT_ERROR keys not allowed"),
        ("stats locks", "CLIENT_ERROR stats locks not allowed"),
        (
            "stats cachedump 1 1",
            "CLIENT_ERROR stats cachedump not allowed",
        ),
        ("lru_crawler metadump all", "ERROR metadump not allowed"),
        ("watch", "CLIENT_ERROR watch commands not allowed"),
        ("mn", "MN"),
    ] {
        assert_eq!(client.ask(request), answer);
    }
}

#[test]
fn users_in_the_reloaded_file_may_log_in() {
    let path = temporary("passwords");
    std::fs::write(&path, "fred:pass\n").unwrap();
    let server = Running::start(&["-Y", path.to_str().unwrap()]);
    let login = |password: &str| {
        let mut client = server.client();
        let bytes = "fred ".len() + password.len();
        let answer = client.ask(&format!("set x 0 0 {bytes}\r\nfred {password}"));
        (answer, client.ask("version"))
    };
    let refused = (
        "CLIENT_ERROR authentication failure".to_owned(),
        "CLIENT_ERROR unauthenticated".to_owned(),
    );
    assert_eq!(
        server.client().ask("get foo"),
        "CLIENT_ERROR unauthenticated"
    );
    assert_eq!(login("wrong"), refused);
    // There are no packets here: bytes that begin like one are a line.
    let mut binary = server.client();
    binary.send([&packet(0x0b, "", "")[..], b"\r\n"].concat());
    assert_eq!(binary.line(), "CLIENT_ERROR unauthenticated");
    let (answer, version) = login("pass");
    assert_eq!(answer, "STORED");
    assert!(version.starts_with("VERSION"), "{version}");
    std::fs::write(&path, "fred:changed\n").unwrap();
    server.signal(Signal::HUP);
    eventually("it is not read anew", || login("changed").0 == "STORED");
    assert_eq!(login("pass"), refused);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_client_that_is_wrong_too_often_is_closed() {
    let path = temporary("guessed");
    std::fs::write(&path, "fred:pass\n").unwrap();
    let server = start(|config| config.auth_file = Some(path.clone()));
    std::fs::remove_file(&path).unwrap();
    let mut client = TestClient::connect(address(&server));
    client.send("set x 0 0 6\r\nfred x\r\n".repeat(100));
    let answers = client.rest();
    let failures = answers.split(|byte| *byte == b'\n').count() - 1;
    assert_eq!(failures, 8);
}

/// A packet of the binary protocol without extras.
fn packet(opcode: u8, key: &str, value: &str) -> Vec<u8> {
    let mut packet = vec![0; 24];
    (packet[0], packet[1]) = (0x80, opcode);
    packet[3] = u8::try_from(key.len()).unwrap();
    packet[11] = u8::try_from(key.len() + value.len()).unwrap();
    packet.extend_from_slice(key.as_bytes());
    packet.extend_from_slice(value.as_bytes());
    packet
}

#[test]
fn sasl_accepts_users_in_the_file() {
    let path = temporary("sasl");
    std::fs::write(&path, "fred:pass\nann:other\n").unwrap();
    let log_file = temporary("sasl.log");
    let mut server = Running::start(&[
        "-S",
        "-vv",
        "-Y",
        path.to_str().unwrap(),
        "--log-file",
        log_file.to_str().unwrap(),
    ]);
    let ask = |client: &mut TestClient, packet: Vec<u8>| {
        client.send(packet);
        let header = client.bytes(24);
        let body = client.bytes(usize::from(header[10]) << 8 | usize::from(header[11]));
        (header[7], String::from_utf8(body).unwrap())
    };
    let noop = || packet(0x0a, "", "");
    let mut client = server.client();
    assert_eq!(ask(&mut client, packet(0x20, "", "")), (0, "PLAIN".into()));
    let wrong = packet(0x21, "PLAIN", "\0ann\0pass");
    assert_eq!(ask(&mut client, wrong), (0x20, "Auth failure.".into()));
    let right = packet(0x21, "PLAIN", "\0fred\0pass");
    assert_eq!(ask(&mut client, right), (0, "Authenticated".into()));
    assert_eq!(ask(&mut client, noop()).0, 0);
    let mut stranger = server.client();
    assert_eq!(ask(&mut stranger, noop()).0, 0x20);
    assert_eq!(stranger.rest(), b"", "closed");
    let mut text = server.client();
    assert_eq!(text.ask("get foo"), "CLIENT_ERROR unauthenticated");
    assert_eq!(text.ask("set x 0 0 9\r\nfred pass"), "STORED");
    for (name, value) in [("auth_cmds", "3"), ("auth_errors", "1")] {
        assert_eq!(text.stat(name), value);
    }
    std::fs::remove_file(&path).unwrap();
    server.signal(Signal::TERM);
    server.child.wait().unwrap();
    let log = std::fs::read_to_string(&log_file).unwrap();
    std::fs::remove_file(&log_file).unwrap();
    assert!(
        log.contains("(authentication)") && !log.contains("pass"),
        "{log}"
    );
    let is_failed =
        |line: &str| line.contains("WARN login failed") && line.contains("peer=tcp:127.0.0.1:");
    assert!(log.lines().any(is_failed), "{log}");
    assert!(log.contains("user=fred"), "{log}");
}

#[test]
fn the_flags_of_memcacheds_help_are_known() {
    let path = temporary("known");
    std::fs::write(&path, "a:b\n").unwrap();
    let user = current_user();
    let flags = [
        "-U",
        "0",
        "-a",
        "700",
        "-A",
        "-r",
        "-u",
        &user,
        "-m",
        "64",
        "-M",
        "-c",
        "100",
        "-k",
        "-v",
        "-f",
        "1.25",
        "-n",
        "48",
        "-L",
        "-D",
        ":",
        "-t",
        "4",
        "-R",
        "20",
        "-C",
        "-b",
        "1024",
        "-B",
        "auto",
        "-I",
        "1m",
        "-F",
        "-X",
        "-W",
        "-o",
        "modern,idle_timeout=60,hashpower=20",
        "-Y",
        path.to_str().unwrap(),
        "-N",
        "1",
    ];
    let server = Running::start(&flags);
    assert_eq!(
        server.client().ask("get foo"),
        "CLIENT_ERROR unauthenticated"
    );
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn every_json_log_line_is_an_object() {
    let path = temporary("json.log");
    let flags = ["--log", "json", "--log-file", path.to_str().unwrap()];
    let mut server = Running::start(&flags);
    let address = server.address.to_string();
    let second = latchd(&["-l", &address]).args(flags).status().unwrap();
    assert_eq!(second.code(), Some(71));
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for line in log.lines() {
        assert!(line.starts_with("{\"time\":\"20"), "{log}");
        assert!(line.ends_with("\"}"), "{log}");
        assert!(line.contains("\"message\":\""), "{log}");
    }
    for (level, said) in [
        ("INFO", "\"event\":\"listening\""),
        ("INFO", "\"reason\":\"SIGTERM\""),
        ("ERROR", "address in use; stop the other server"),
        ("INFO", "server stopped: SIGTERM"),
    ] {
        let level = format!("\"level\":\"{level}\"");
        let is_it = |line: &str| line.contains(&level) && line.contains(said);
        assert!(log.lines().any(is_it), "{said}: {log}");
    }
}

/// As systemd does it: the sockets are descriptors from 3 on.
#[test]
fn only_inherited_sockets_are_served() {
    let path = temporary("handed-over.sock");
    let tcp = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = tcp.local_addr().unwrap();
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let other = free_address();
    let line = "exec 3<&0 4<&1 0</dev/null 1>&2; LISTEN_FDS=2 LISTEN_PID=$$ exec \"$0\" \"$@\"";
    let mut child = Command::new("sh")
        .args([
            "-c",
            line,
            env!("CARGO_BIN_EXE_latchd"),
            "-l",
            &other.to_string(),
        ])
        .stdin(std::os::fd::OwnedFd::from(tcp))
        .stdout(std::os::fd::OwnedFd::from(unix))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // A client that comes before the server waits.
    assert_eq!(TestClient::connect(address).ask("mn"), "MN");
    let mut client = TestClient::connect_unix(&path);
    assert_eq!(client.ask("mn"), "MN");
    assert!(client.stat("curr_connections").parse::<u32>().unwrap() >= 1);
    assert!(
        TcpStream::connect(other).is_err(),
        "it listens elsewhere too"
    );
    kill_process(pid(child.id()), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(path.exists(), "the file is not the server's");
    std::fs::remove_file(&path).unwrap();
}

//! `latchd lock` as a job: at a terminal, stopped and continued, and when it is killed.

use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::support::terminal::Terminal;
use crate::support::{Started, eventually};
use rustix::process::{Pid, Signal, kill_process};

/// An interactive shell with a terminal of its own.
fn shell() -> Terminal {
    // A new session with a terminal as its standard input, and with signals as after a login: if
    // the tests run in the background, Ctrl-C is ignored, and the commands would inherit that.
    let mut terminal = Terminal::start(
        Command::new("setsid")
            .args(["--ctty", "env", "--default-signal", "sh", "-i"])
            .env("PS1", "ready> ")
            .env("ENV", "/dev/null"),
    );
    terminal.expect("ready> ");
    terminal
}

/// Types a line, of which the terminal shows an echo.
fn enter(terminal: &mut Terminal, line: &str) {
    terminal.press(&format!("{line}\n"));
    terminal.expect("\n");
}

/// A file of this test's own, which a command adds to as long as it runs.
struct Pulse(PathBuf);

impl Pulse {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("latchd-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    /// A script that does so until it is ended. It is one process: no shell notices the stop of
    /// another shell that is just starting a process (vfork).
    fn script(&self) -> String {
        let (path, this) = (self.0.display(), std::env::current_exe().unwrap());
        format!(
            "exec env {PULSE}={path} {} --exact lock_jobs::beats --quiet",
            this.display()
        )
    }

    fn beats(&self) -> u64 {
        self.0.metadata().map_or(0, |file| file.len())
    }

    fn wait_for_more(&self) {
        let before = self.beats();
        eventually(|| (self.beats() > before + 3).then_some(()));
    }

    /// Whether it has stopped, and stays stopped for a while.
    fn assert_still(&self) {
        eventually(|| {
            let before = self.beats();
            std::thread::sleep(Duration::from_millis(100));
            (self.beats() == before).then_some(())
        });
        let before = self.beats();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(self.beats(), before, "it goes on");
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const PULSE: &str = "TEST_PULSE";

/// The command of the other tests; on its own it prints nothing.
#[test]
fn beats() {
    let Some(path) = std::env::var_os(PULSE) else {
        return;
    };
    loop {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(b".").unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_latchd")
}

/// The line that a person types.
fn line(server: &Started, arguments: &str) -> String {
    format!(
        "{} lock --server {} {arguments}",
        program(),
        server.address()
    )
}

/// Whether `k` has no holder.
fn is_free(server: &Started, way: &[&str]) -> bool {
    let status = Command::new(program())
        .args(["lock", "-n", "--server", &server.address()])
        .args(way)
        .args(["k", "--", "true"])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    status.success()
}

#[test]
fn ctrl_c_ends_the_command_and_its_script() {
    let server = Started::latchd();
    let mut terminal = shell();
    enter(
        &mut terminal,
        &line(&server, "k -- sh -c 'read word; echo \"it is <$word>\"'"),
    );
    terminal.press("hello\n");
    terminal.expect("it is <hello>");
    // The terminal is ours again, and the shell's.
    terminal.expect("ready> ");
    let cat = line(&server, "k -- cat");
    enter(&mut terminal, &cat);
    // cat has read all that it has written.
    terminal.press("word\n");
    terminal.expect("word\r\nword");
    terminal.press("\x03");
    terminal.expect("ready> ");
    enter(&mut terminal, "echo code is $?");
    terminal.expect("code is 130");
    terminal.expect("ready> ");
    // A script does not go on behind an interrupted command.
    enter(
        &mut terminal,
        &format!("sh -c \"{cat}; echo went''on\"; echo en''ded"),
    );
    terminal.press("word\n");
    terminal.expect("word\r\nword");
    terminal.press("\x03");
    terminal.expect("ready> ");
    let shown = terminal.shown();
    assert!(!shown.contains("wenton"), "{shown}");
    assert!(is_free(&server, &[]));
}

#[test]
fn ctrl_z_stops_and_fg_continues() {
    for server in Started::all() {
        for way in ["", "--ttl 30"] {
            if way.is_empty() && server.name() == "memcached" {
                continue;
            }
            let pulse = Pulse::new("goes-on");
            let mut terminal = shell();
            enter(
                &mut terminal,
                &line(&server, &format!("{way} k -- sh -c '{}'", pulse.script())),
            );
            pulse.wait_for_more();
            terminal.press("\x1a");
            terminal.expect("ready> ");
            pulse.assert_still();
            let way: Vec<&str> = way.split_whitespace().collect();
            assert!(!is_free(&server, &way), "it is ours still");
            enter(&mut terminal, "fg");
            pulse.wait_for_more();
            // And once more, in the background this time.
            terminal.press("\x1a");
            terminal.expect("ready> ");
            pulse.assert_still();
            enter(&mut terminal, "bg");
            pulse.wait_for_more();
            enter(&mut terminal, "kill %1; wait; echo do''ne");
            terminal.expect("done");
            pulse.assert_still();
            assert!(is_free(&server, &way));
        }
    }
}

/// A command with job control of its own stops itself by STOP, and not by a key.
#[test]
fn ctrl_z_stops_nested_locks() {
    let server = Started::latchd();
    let pulse = Pulse::new("nested");
    let mut terminal = shell();
    let inner = line(&server, &format!("inner -- sh -c '{}'", pulse.script()));
    enter(&mut terminal, &line(&server, &format!("k -- {inner}")));
    pulse.wait_for_more();
    for _ in 0..2 {
        terminal.press("\x1a");
        terminal.expect("ready> ");
        pulse.assert_still();
        assert!(!is_free(&server, &[]), "it is ours still");
        enter(&mut terminal, "fg");
        pulse.wait_for_more();
    }
    terminal.press("\x03");
    terminal.expect("ready> ");
    assert!(is_free(&server, &[]));
    let script = "sh -c 'kill -STOP $$; echo went''on'";
    enter(&mut terminal, &line(&server, &format!("k -- {script}")));
    terminal.expect("ready> ");
    enter(&mut terminal, "fg");
    terminal.expect("wenton");
    terminal.expect("ready> ");
    assert!(is_free(&server, &[]));
}

#[test]
fn a_stopped_command_past_its_lease_never_resumes() {
    for server in Started::all() {
        let pulse = Pulse::new("ran-out");
        let mut terminal = shell();
        // A command that ignores TERM is no danger either.
        let script = format!("trap \"\" TERM; {}", pulse.script());
        enter(
            &mut terminal,
            &line(&server, &format!("--ttl 1 k -- sh -c '{script}'")),
        );
        pulse.wait_for_more();
        terminal.press("\x1a");
        terminal.expect("ready> ");
        pulse.assert_still();
        // Its renewals have stopped.
        let stopped = Instant::now();
        eventually(|| is_free(&server, &["--ttl", "1"]).then_some(()));
        assert!(stopped.elapsed() < Duration::from_secs(6));
        let other = Command::new(program())
            .args([
                "lock",
                "--server",
                &server.address(),
                "--ttl",
                "5",
                "k",
                "--",
            ])
            .args(["sleep", "100"])
            .spawn()
            .unwrap();
        let other = Ended(other);
        eventually(|| (!is_free(&server, &["--ttl", "1"])).then_some(()));
        let before = pulse.beats();
        enter(&mut terminal, "fg");
        terminal.expect("lost the lock");
        assert_eq!(pulse.beats(), before, "two at a time");
        terminal.expect("ready> ");
        enter(&mut terminal, "echo code is $?");
        terminal.expect("code is 125");
        drop(other);
    }
}

/// A process that is killed when the value is dropped.
struct Ended(Child);

impl Ended {
    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// How it has ended, if it has.
    fn has_ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process(self.pid(), Signal::TERM);
            let _ = kill_process(self.pid(), Signal::CONT);
            let _ = self.0.wait();
        }
    }
}

/// A holder of `k` with a command that beats.
fn holder(server: &Started, way: &[&str], pulse: &Pulse) -> Ended {
    let child = Command::new(program())
        .args(["lock", "--server", &server.address()])
        .args(way)
        .args(["k", "--", "sh", "-c", &pulse.script()])
        .process_group(0)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    pulse.wait_for_more();
    Ended(child)
}

#[test]
fn tstp_and_cont_reach_the_group() {
    let server = Started::latchd();
    let pulse = Pulse::new("group");
    let mut holder = holder(&server, &[], &pulse);
    holder.signal(Signal::TSTP);
    pulse.assert_still();
    assert_eq!(holder.has_ended(), None, "it holds no lock any more");
    assert!(!is_free(&server, &[]), "it is ours still");
    holder.signal(Signal::CONT);
    pulse.wait_for_more();
}

/// As in a container: the session and the process group of its first process belong to no process
/// that it can see, and have the number 0.
#[test]
fn job_control_works_across_a_pid_namespace() {
    let this = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ])
        .arg(this)
        .args(["--exact", "lock_jobs::tstp_and_cont_reach_the_group"])
        .output()
        .unwrap();
    let (said, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if error.starts_with("unshare: ") {
        eprintln!("not tried, for lack of namespaces: {error}");
        return;
    }
    assert!(output.status.success(), "{said}{error}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn a_resumed_holder_reads_pending_replies_first() {
    let server = Started::latchd();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut holder = Command::new(program())
        .args(["lock", "--timeout", "1", "--server"])
        .args([&listener.local_addr().unwrap().to_string(), "k", "--"])
        .args(["sleep", "100"])
        .process_group(0)
        .spawn()
        .map(Ended)
        .unwrap();
    // The first connection asks what the server is, the second one keeps the lock.
    let (asks, _) = listener.accept().unwrap();
    let asked = TcpStream::connect(server.address()).unwrap();
    for (from, to) in [(&asks, &asked), (&asked, &asks)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    }
    let (mut client, _) = listener.accept().unwrap();
    let mut behind = TcpStream::connect(server.address()).unwrap();
    let (mut answers, mut to_client) = (behind.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
    let mut chunk = [0; 1024];
    // The first heartbeat; its answer comes while the holder is stopped.
    let heartbeat = b"ml k F H T-1\r\n";
    while !chunk.starts_with(heartbeat) {
        let length = client.read(&mut chunk).unwrap();
        if chunk.starts_with(heartbeat) {
            holder.signal(Signal::STOP);
        }
        behind.write_all(&chunk[..length]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1_500));
    holder.signal(Signal::CONT);
    std::thread::spawn(move || std::io::copy(&mut client, &mut behind));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(holder.has_ended(), None, "it has lost nothing");
    assert!(!is_free(&server, &[]));
}

#[test]
fn ignored_signals_stay_ignored() {
    let server = Started::latchd();
    let pulse = Pulse::new("nohup");
    let script = "trap '' HUP; exec \"$@\"";
    let child = Command::new("sh")
        .args(["-c", script, "sh", program(), "lock", "--server"])
        .args([&server.address(), "k", "--", "sh", "-c", &pulse.script()])
        .process_group(0)
        .spawn()
        .unwrap();
    let holder = Ended(child);
    pulse.wait_for_more();
    holder.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(200));
    pulse.wait_for_more();
    assert!(!is_free(&server, &[]));
}

/// The blocked and the ignored signals of a process that `env` starts so.
#[cfg(target_os = "linux")]
fn signals_of(env: &[&str], program: &[&str]) -> Vec<u64> {
    let show = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"];
    let mut command = Command::new("env");
    command.args(["--default-signal"]).args(env);
    let output = command.args(program).args(show).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    // Every posix_spawn of glibc ignores its own two, 32 and 33.
    let of_libc = 0b11 << 31;
    said.lines()
        .map(|line| line.split_whitespace().last().unwrap())
        .map(|mask| u64::from_str_radix(mask, 16).unwrap() & !of_libc)
        .collect()
}

/// A parent that has blocked or ignores CHLD does not keep the end of the command from us.
#[test]
#[cfg(target_os = "linux")]
fn the_command_inherits_our_signals() {
    let server = Started::latchd();
    let address = server.address();
    let lock = [program(), "lock", "--server", &address, "k", "--"];
    for env in [
        &[][..],
        &["--block-signal=CHLD,TERM,TSTP,CONT,TTOU,USR2,RTMIN+3"],
        &["--ignore-signal=TSTP,CONT,CHLD,TTOU,USR1"],
    ] {
        let inherited = signals_of(env, &[]);
        assert_eq!(inherited.len(), 2);
        assert_eq!(signals_of(env, &lock), inherited, "{env:?}");
        assert!(is_free(&server, &[]));
    }
}

#[test]
fn commands_and_children_die_with_the_holder() {
    for server in Started::all() {
        let way: &[&str] = match &server {
            Started::Latchd(..) => &[],
            Started::Memcached(..) => &["--ttl", "5"],
        };
        let (pulse, inner) = (Pulse::new("dies"), Pulse::new("dies-inside"));
        let script = format!("({}) & ({})", inner.script(), pulse.script());
        let child = Command::new(program())
            .args(["lock", "--server", &server.address()])
            .args(way)
            .args(["k", "--", "sh", "-c", &script])
            .spawn()
            .unwrap();
        let holder = Ended(child);
        pulse.wait_for_more();
        inner.wait_for_more();
        holder.signal(Signal::KILL);
        let killed = Instant::now();
        pulse.assert_still();
        inner.assert_still();
        assert!(killed.elapsed() < Duration::from_secs(4));
    }
}

#[test]
fn no_command_runs_beside_the_next_holder() {
    let server = Started::latchd();
    for way in [["--session", "1"], ["--ttl", "1"]] {
        let pulse = Pulse::new("beside");
        let mut holder = holder(&server, &way, &pulse);
        // At least 3 s: the guard hears of each renewal.
        eventually(|| (pulse.beats() > 150).then_some(()));
        holder.signal(Signal::STOP);
        pulse.assert_still();
        eventually(|| is_free(&server, &way).then_some(()));
        holder.signal(Signal::CONT);
        let status = eventually(|| holder.has_ended());
        assert_eq!(status.code(), Some(125));
        pulse.assert_still();
    }
}

#[test]
fn an_inherited_lock_lasts_with_its_command() {
    let server = Started::latchd();
    let (pulse, go_on) = (Pulse::new("inherits"), Pulse::new("inherits-go-on"));
    std::fs::write(&go_on.0, "").unwrap();
    let (beat, path) = (pulse.0.display(), go_on.0.display());
    let script = format!("while test -e {path}; do echo >> {beat}; sleep 0.02; done");
    let child = Command::new(program())
        .args(["lock", "--server", &server.address()])
        .args(["--inherit", "k", "--", "sh", "-c", &script])
        .process_group(0)
        .spawn()
        .unwrap();
    let mut holder = Ended(child);
    pulse.wait_for_more();
    holder.signal(Signal::KILL);
    holder.0.wait().unwrap();
    pulse.wait_for_more();
    assert!(!is_free(&server, &[]), "another could run beside it");
    drop(go_on);
    eventually(|| is_free(&server, &[]).then_some(()));
}

/// As flock(1) and timeout(1) allow it: the command is not the leader of its group, so setsid(1) does not fork.
#[test]
fn commands_may_begin_a_session() {
    let server = Started::latchd();
    let run = |way: &[&str], pulse: &Pulse, child: &Pulse| {
        let script = format!("({}) & {}", child.script(), pulse.script());
        let started = Command::new(program())
            .args(["lock", "--server", &server.address()])
            .args(way)
            .args(["k", "--", "setsid", "sh", "-c", &script])
            .spawn()
            .unwrap();
        pulse.wait_for_more();
        child.wait_for_more();
        Ended(started)
    };
    for (signal, code) in [(Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let (pulse, child) = (Pulse::new("session"), Pulse::new("session-child"));
        let mut holder = run(&[], &pulse, &child);
        assert!(!is_free(&server, &[]), "its command runs");
        holder.signal(signal);
        assert_eq!(eventually(|| holder.has_ended()).code(), code);
        pulse.assert_still();
        child.assert_still();
        assert!(is_free(&server, &[]));
    }
    let (pulse, child) = (Pulse::new("believes"), Pulse::new("believes-child"));
    let holder = run(&["--session", "1"], &pulse, &child);
    holder.signal(Signal::STOP);
    // The guard stops both at the end of the belief.
    pulse.assert_still();
    child.assert_still();
    holder.signal(Signal::CONT);
}

#[test]
fn keys_follow_commands_into_new_groups() {
    let server = Started::latchd();
    let mut terminal = shell();
    // timeout(1) makes itself the leader of a group.
    enter(&mut terminal, &line(&server, "k -- timeout 100 cat"));
    terminal.press("word\n");
    terminal.expect("word\r\nword");
    terminal.press("\x03");
    terminal.expect("ready> ");
    assert!(is_free(&server, &[]));
    let pulse = Pulse::new("left");
    let script = format!("k -- setsid sh -c '{}'", pulse.script());
    enter(&mut terminal, &line(&server, &script));
    pulse.wait_for_more();
    // The keys belong to `latchd lock` a moment after the command has left them.
    eventually(|| {
        terminal.press("\x03");
        std::thread::sleep(Duration::from_millis(100));
        is_free(&server, &[]).then_some(())
    });
    pulse.assert_still();
    enter(&mut terminal, "echo code is $?");
    terminal.expect("code is 130");
}

/// As sudo does it: the command gains rights, and loses them again.
#[test]
fn refused_signals_are_reported_and_repeated() {
    const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let server = Started::latchd();
    let folder = std::env::temp_dir().join(format!("latchd-{}-rights", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [rise, latchd, errors] = ["rise", "latchd", "errors"].map(|name| folder.join(name));
    std::fs::copy(program(), &latchd).unwrap();
    std::fs::copy("/usr/bin/setpriv", &rise).unwrap();
    std::fs::set_permissions(&rise, Permissions::from_mode(0o4755)).unwrap();
    // A process of `sh` that accepts signals is in the group too.
    let script = "$0 --reuid=0 --clear-groups sh -c 'echo risen; read word; exec setpriv --reuid=65534 sleep 100'";
    let started = Command::new("setpriv")
        .args(NOBODY)
        .arg(&latchd)
        .args(["lock", "--server", &server.address(), "k", "--"])
        .args(["sh", "-c", &format!("trap : USR1; {script}; exit 7")])
        .arg(&rise)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(&errors).unwrap())
        .spawn();
    let mut holder = Ended(started.unwrap());
    let mut said = [0; 6];
    let risen = holder.0.stdout.take().unwrap().read_exact(&mut said);
    if risen.is_err() {
        return eprintln!("not tried: only root can make a program that gains rights");
    }
    holder.signal(Signal::USR1);
    eventually(|| {
        let said = std::fs::read_to_string(&errors).unwrap();
        said.contains("cannot send USR1 to process").then_some(())
    });
    drop(holder.0.stdin.take());
    // The process has no such rights any more.
    assert_eq!(eventually(|| holder.has_ended()).code(), Some(7));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_terminal_shows_the_awaited_holder() {
    let wait = |server: &str, more: &str| {
        let mut terminal = shell();
        let line = format!("{} lock --server {server} -w 4 {more} k -- true", program());
        enter(&mut terminal, &line);
        terminal.expect("\nready> ");
        terminal.shown()
    };
    for server in Started::all() {
        let way: &[&str] = if server.name() == "latchd" {
            &[]
        } else {
            &["--ttl", "9"]
        };
        let pulse = Pulse::new(&format!("awaited-{}", server.name()));
        let _holder = holder(&server, way, &pulse);
        let said = wait(&server.address(), &way.join(" "));
        let known = format!("waiting for k at {}: ", server.address());
        let (_, holder) = said.split_once(&known).expect(&said);
        if server.name() == "latchd" {
            assert!(holder.starts_with("held by connection "), "{said}");
            assert!(holder.contains(" (127.0.0.1:"), "{said}");
            assert!(holder.contains(" s, place 1\r\n"), "{said}");
            let said = wait(&server.address(), "--quiet");
            assert!(!said.contains("waiting for"), "{said}");
        } else {
            assert!(holder.starts_with("another client holds"), "{said}");
        }
    }
    let said = wait("127.0.0.1:1", "");
    let refused = "waiting for k: 127.0.0.1:1: Connection refused";
    assert!(said.contains(refused), "{said}");
    assert!(said.contains("; trying again"), "{said}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let said = wait(&address, "");
    let unknown = format!("waiting for k at {address}: another client");
    assert!(!said.contains(&unknown), "{said}");
}

//! latchd behind a transport of one's own: threads, blocking sockets and the clocks of this machine.
//!
//! Run it with `cargo run -p latchd-core --example embed`.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use std::{thread, time};

use latchd_core::{Config, ConnId, Instant, Output, Progress, Server};

static SERVER: LazyLock<Mutex<Server>> =
    LazyLock::new(|| Mutex::new(Server::new(Config::default()).with_waits()));
/// Somebody who has waited for a lock can go on.
static READY: Condvar = Condvar::new();
static STARTED: LazyLock<time::Instant> = LazyLock::new(time::Instant::now);

fn server() -> MutexGuard<'static, Server> {
    SERVER.lock().expect("no thread has panicked")
}

fn now() -> Instant {
    STARTED.elapsed().into()
}

/// Tells the threads of those who can go on.
fn wake(server: &mut Server) {
    if server.next_ready().is_some() {
        READY.notify_all();
    }
}

fn serve(conn: ConnId, mut socket: TcpStream) -> io::Result<()> {
    let (mut input, mut out) = ([0; 4096], Output::new());
    loop {
        let read = socket.read(&mut input)?;
        let mut server = server();
        let mut progress = server.receive(now(), conn, &input[..read], &mut out);
        wake(&mut server);
        drop(server);
        loop {
            out.chunks().try_for_each(|chunk| socket.write_all(chunk))?;
            out.clear();
            progress = match progress {
                // One that does not read its answers is not read, and the server keeps what it asked.
                Progress::OutputFull => go_on(conn, &mut out),
                Progress::Waiting => wait(conn, &socket, &mut out)?,
                Progress::NeedsInput { .. } | Progress::Close | _ => break,
            };
        }
        if read == 0 || progress == Progress::Close {
            return Ok(());
        }
    }
}

fn go_on(conn: ConnId, out: &mut Output) -> Progress {
    let mut server = server();
    let progress = server.resume(now(), conn, out);
    wake(&mut server);
    progress
}

/// Waits with a client for its lock, and meanwhile sees whether it is still there.
fn wait(conn: ConnId, socket: &TcpStream, out: &mut Output) -> io::Result<Progress> {
    loop {
        let progress = go_on(conn, out);
        if progress != Progress::Waiting {
            return Ok(progress);
        }
        let server = server();
        // Until a wait is over, whoever's: who sees to it tells the others.
        let due_ms = server.next_deadline().map_or(u64::MAX, Instant::as_millis);
        let left_ms = due_ms.saturating_sub(now().as_millis()).min(250);
        let woken = READY.wait_timeout(server, Duration::from_millis(left_ms));
        let (mut server, _) = woken.expect("no thread has panicked");
        server.pass(now());
        wake(&mut server);
        drop(server);
        socket.set_nonblocking(true)?;
        let has_ended = matches!(socket.peek(&mut [0]), Ok(0));
        socket.set_nonblocking(false)?;
        if has_ended {
            return Ok(Progress::Close);
        }
    }
}

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            thread::spawn(|| {
                let conn = server().open(now());
                let _ = serve(conn, socket); // an error is an end like any other
                let mut server = server();
                server.close(now(), conn);
                wake(&mut server);
            });
        }
    });
    thread::spawn(|| {
        loop {
            let unix = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            server().set_wall_clock(now(), unix);
            server().tick(now());
            wake(&mut server());
            thread::sleep(Duration::from_millis(250));
        }
    });

    // Any client will do. While alice holds the lock, bob can read and not write.
    let (mut alice, mut bob) = (TcpStream::connect(address)?, TcpStream::connect(address)?);
    ask(
        &mut alice,
        "set job 0 0 4\r\nidle\r\nlock job\r\n",
        "STORED\r\nOK\r\n",
    )?;
    ask(&mut bob, "get job\r\n", "VALUE job 0 4\r\nidle\r\nEND\r\n")?;
    ask(&mut bob, "set job 0 0 4\r\nbusy\r\n", "LOCKED\r\n")?;

    // He can wait for it. The lock dies with its connection, and he has it.
    bob.write_all(b"ml job w10000 v\r\n")?;
    ask(&mut alice, "me job\r\nquit\r\n", "ME job ")?;
    alice.read_to_end(&mut Vec::new())?;
    ask(&mut bob, "", "VA 4\r\nidle\r\n")?;

    // Of all the clients that miss an item, exactly one is told to compute it (W).
    ask(&mut bob, "mg page v N30\r\n", "VA 0 W\r\n\r\n")?;
    ask(&mut bob, "mg page v N30\r\n", "VA 0 Z\r\n\r\n")?;
    println!("everything as it should be");
    Ok(())
}

fn ask(client: &mut TcpStream, request: &str, answer: &str) -> io::Result<()> {
    client.write_all(request.as_bytes())?;
    let mut answered = vec![0; answer.len()];
    client.read_exact(&mut answered)?;
    assert_eq!(String::from_utf8_lossy(&answered), answer);
    Ok(())
}

//! latchd behind a transport of one's own: threads, blocking sockets and the clocks of this machine.
//!
//! Run it with `cargo run -p latchd-core --example embed`.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use std::{thread, time};

use latchd_core::{Config, ConnId, Instant, Output, Progress, Server};

static SERVER: LazyLock<Mutex<Server>> =
    LazyLock::new(|| Mutex::new(Server::new(Config::default())));
static STARTED: LazyLock<time::Instant> = LazyLock::new(time::Instant::now);

fn server() -> MutexGuard<'static, Server> {
    SERVER.lock().expect("no thread has panicked")
}

fn now() -> Instant {
    STARTED.elapsed().into()
}

fn serve(conn: ConnId, mut socket: TcpStream) -> io::Result<()> {
    let (mut input, mut out) = ([0; 4096], Output::new());
    loop {
        let read = socket.read(&mut input)?;
        let mut progress = server().receive(now(), conn, &input[..read], &mut out);
        while !out.is_empty() {
            out.chunks().try_for_each(|chunk| socket.write_all(chunk))?;
            out.clear();
            // One that does not read its answers is not read, and the server keeps what it asked.
            if progress == Progress::OutputFull {
                progress = server().resume(now(), conn, &mut out);
            }
        }
        if read == 0 || progress == Progress::Close {
            return Ok(());
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
                server().close(now(), conn);
            });
        }
    });
    thread::spawn(|| {
        loop {
            let unix = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            server().set_wall_clock(now(), unix);
            server().tick(now());
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

    // The lock dies with its connection.
    ask(&mut alice, "quit\r\n", "")?;
    assert_eq!(alice.read(&mut [0])?, 0);
    ask(&mut bob, "lock job\r\n", "OK\r\n")?;

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

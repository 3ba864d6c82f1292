//! The examples serve a client as latchd does: one conversation with each.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;

#[path = "../examples/embed.rs"]
#[allow(dead_code, reason = "`main` is the example's")]
mod embed;
#[path = "../examples/embed_tokio.rs"]
#[allow(dead_code, reason = "`main` is the example's")]
mod embed_tokio;

/// Alice locks, and bob waits for her lock until she disconnects. Then bob wins a value, and the reply says
/// so.
fn converse(address: std::net::SocketAddr) -> io::Result<()> {
    let (mut alice, mut bob) = (TcpStream::connect(address)?, TcpStream::connect(address)?);
    ask(
        &mut alice,
        "set job 0 0 4\r\nidle\r\nlock job\r\n",
        "STORED\r\nOK\r\n",
    )?;
    ask(&mut bob, "set job 0 0 4\r\nbusy\r\n", "LOCKED\r\n")?;
    ask(&mut bob, "ml job w20 v\r\nmn\r\n", "LK h1 ")?;
    bob.read_exact(&mut [0; 11])?;
    bob.write_all(b"ml job w60000 v\r\n")?;
    ask(&mut alice, "me job\r\nquit\r\n", "ME job ")?;
    alice.read_to_end(&mut Vec::new())?;
    ask(&mut bob, "", "VA 4\r\nidle\r\n")?;
    ask(&mut bob, "mg page v N30\r\n", "VA 0 W\r\n\r\n")?;
    // More than the limits of input and unsent output, and then the end of the requests.
    let mut many = "get job\r\n".repeat(20_000);
    many.push_str("quit\r\n");
    let mut reader = bob.try_clone()?;
    let asking = thread::spawn(move || bob.write_all(many.as_bytes()));
    let mut answers = Vec::new();
    reader.read_to_end(&mut answers)?;
    asking.join().expect("it does not panic")?;
    let answer = b"VALUE job 0 4\r\nidle\r\nEND\r\n";
    assert!(answers == answer.repeat(20_000), "{} bytes", answers.len());
    Ok(())
}

fn ask(client: &mut TcpStream, request: &str, answer: &str) -> io::Result<()> {
    client.write_all(request.as_bytes())?;
    let mut answered = vec![0; answer.len()];
    client.read_exact(&mut answered)?;
    assert_eq!(String::from_utf8_lossy(&answered), answer);
    Ok(())
}

#[test]
fn one_thread_serves() -> io::Result<()> {
    let listener = mio::net::TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr()?;
    thread::spawn(|| embed::serve(listener));
    converse(address)
}

#[test]
fn tokio_serves() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    thread::spawn(move || runtime.block_on(embed_tokio::serve(listener)));
    converse(address)
}

//! A server that answers each request as its script says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::election::ANSWER_MS;

/// The reaction to one request.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// A reply with this status and text.
    Reply(u16, String),
    /// These bytes, and the end of the connection.
    Bytes(Vec<u8>),
    /// The same as [`Act::Reply`] with status 200, later than the time limit of a request.
    Late(String),
    /// The end of the connection.
    Close,
    /// The first part of a reply, and then nothing.
    Stall,
}

/// A request: path, `Authorization`, and text.
pub(super) type Seen = (String, Option<String>, String);

/// Serves one connection after the other and performs one act for each request; the last act is repeated.
pub(super) fn scripted(acts: Vec<Act>) -> (SocketAddr, Receiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, requests) = mpsc::channel();
    thread::spawn(move || {
        let mut acts = acts.into_iter().peekable();
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            while let Some(request) = request(&mut reader) {
                let act = acts.next().unwrap();
                if acts.peek().is_none() {
                    acts = vec![act.clone()].into_iter().peekable();
                }
                // The test may have ended.
                let _ = seen.send(request);
                if !perform(act, reader.get_mut()) {
                    break;
                }
            }
        }
    });
    (address, requests)
}

/// Reads a request; `None` if the client has closed.
fn request(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        let mut headers = lines.iter().filter_map(|line| line.split_once(": "));
        headers.find_map(|(own, value)| own.eq_ignore_ascii_case(name).then(|| value.to_owned()))
    };
    let mut body = vec![0; header("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let path = lines[0].strip_prefix("POST ")?.strip_suffix(" HTTP/1.1")?;
    Some((
        path.to_owned(),
        header("authorization"),
        String::from_utf8(body).ok()?,
    ))
}

/// Performs an act; returns whether the connection goes on.
fn perform(act: Act, stream: &mut TcpStream) -> bool {
    match act {
        Act::Late(text) => {
            thread::sleep(Duration::from_millis(ANSWER_MS + 200));
            perform(Act::Reply(200, text), stream)
        }
        Act::Reply(status, text) => {
            let length = text.len();
            let reply = format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n\r\n{text}");
            stream.write_all(reply.as_bytes()).is_ok()
        }
        Act::Bytes(bytes) => {
            let _ = stream.write_all(&bytes);
            false
        }
        Act::Close => false,
        Act::Stall => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");
            // Until the client closes.
            let _ = stream.read(&mut [0]);
            false
        }
    }
}

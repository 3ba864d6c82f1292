//! Sends an output, usually in one piece with one system call.
//!
//! A large value is a piece of its own, sent from its place in the store. The output keeps the bytes that the
//! socket does not take or that exceed the limit of one turn. So many clients that request large values do
//! not delay a client that requests a small one.

use std::io::IoSlice;

use latchd_protocol::output::{CHUNKS_MAX, Output};
use rustix::io::Errno;

use crate::net::socket::Socket;
use crate::stats::connection_stats::Traffic;

/// The most bytes sent in one turn: 50 to 100 µs of copying in the kernel.
const SENT_BYTES_MAX: usize = 256 << 10;

/// The extent of a send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sent {
    /// All of the output.
    All,
    /// The limit of one turn: the socket would take more.
    Enough,
    /// All that the socket takes.
    Full,
}

/// Sends as many bytes as the socket takes, perhaps none, within the limit of one turn, and removes them from
/// `output`. If the peer has closed, it returns an error and raises no signal.
pub(crate) fn send(
    socket: &impl Socket,
    output: &mut Output,
    traffic: &Traffic,
) -> rustix::io::Result<Sent> {
    // If the socket takes all of this, the turn's limit is reached.
    let offered = output.len().min(SENT_BYTES_MAX);
    let sent = match output.as_one_chunk() {
        Some([]) => return Ok(Sent::All),
        // Nearly always: only a large value is a piece of its own.
        Some(only) => socket.send(&only[..offered]),
        None => send_chunks(socket, output),
    };
    match sent {
        Ok(sent) => {
            traffic.count_written(sent);
            output.advance(sent);
            Ok(if output.is_empty() {
                Sent::All
            } else if sent == offered {
                Sent::Enough
            } else {
                Sent::Full
            })
        }
        Err(Errno::AGAIN) => Ok(Sent::Full),
        Err(errno) => Err(errno),
    }
}

/// Sends a small reply; returns how many of its bytes the socket took, perhaps none.
///
/// # Errors
/// The kernel's.
#[inline]
pub(crate) fn send_small(
    socket: &impl Socket,
    reply: &[u8],
    traffic: &Traffic,
) -> rustix::io::Result<usize> {
    match socket.send(reply) {
        Ok(sent) => {
            traffic.count_written(sent);
            Ok(sent)
        }
        Err(Errno::AGAIN) => Ok(0),
        Err(errno) => Err(errno),
    }
}

/// Not inlined above: every reply would clear the list of pieces on the stack.
#[inline(never)]
fn send_chunks(socket: &impl Socket, output: &Output) -> rustix::io::Result<usize> {
    let mut chunks = [IoSlice::new(&[]); CHUNKS_MAX];
    let (mut count, mut left) = (0, SENT_BYTES_MAX);
    for (slice, chunk) in chunks.iter_mut().zip(output.chunks()) {
        let chunk = &chunk[..chunk.len().min(left)];
        if chunk.is_empty() {
            break;
        }
        *slice = IoSlice::new(chunk);
        left -= chunk.len();
        count += 1;
    }
    socket.send_chunks(&chunks[..count])
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use bytes::Bytes;

    use super::*;

    /// Three large values between copied bytes: more than a socket takes in one call.
    fn output() -> Output {
        let mut output = Output::new();
        for letter in *b"abc" {
            output.extend_from_slice(b"VALUE\r\n");
            output.push_shared(Bytes::from(vec![letter; 300_000]));
            output.extend_from_slice(b"\r\n");
        }
        output
    }

    fn pair() -> (OwnedFd, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours.into(), theirs)
    }

    #[test]
    fn pieces_arrive_in_order() {
        let (ours, mut theirs) = pair();
        let traffic = Traffic::default();
        let mut output = output();
        let expected = Vec::from(output.clone());
        let (mut received, mut buffer) = (Vec::new(), vec![0; 10_000]);
        while !output.is_empty() {
            let before = output.len();
            send(&ours, &mut output, &traffic).unwrap();
            // A full socket takes nothing, and that is no error.
            assert!(output.len() < before || before < expected.len());
            let read = theirs.read(&mut buffer).unwrap();
            received.extend_from_slice(&buffer[..read]);
        }
        drop(ours);
        theirs.read_to_end(&mut received).unwrap();
        assert!(received == expected, "the bytes differ");
    }

    #[test]
    fn one_turn_sends_no_more_than_its_share() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = OwnedFd::from(ours);
        let mut output = Output::from(vec![b'v'; SENT_BYTES_MAX + 1]);
        // The amount that a socket takes depends on the system, but it never exceeds the limit.
        let sent = send(&ours, &mut output, &Traffic::default()).unwrap();
        assert!(sent != Sent::All && !output.is_empty());
        while !output.is_empty() {
            assert!(theirs.read(&mut [0; 4096]).unwrap() > 0);
            send(&ours, &mut output, &Traffic::default()).unwrap();
        }
    }

    #[test]
    fn closed_peer_raises_no_signal() {
        for output in [&mut output(), &mut Output::from(b"STORED\r\n".to_vec())] {
            let (ours, theirs) = pair();
            drop(theirs);
            let before = output.len();
            let sent = send(&ours, output, &Traffic::default());
            assert_eq!(sent, Err(Errno::PIPE));
            assert_eq!(output.len(), before);
        }
    }

    #[test]
    fn nothing_is_sent_without_a_call() {
        let (ours, theirs) = pair();
        drop(theirs);
        let sent = send(&ours, &mut Output::new(), &Traffic::default());
        assert_eq!(sent, Ok(Sent::All));
    }
}

//! Sending an output: in one system call, in one piece as a rule.
//!
//! A large value is a piece of its own, sent from where it lies in the store. What the socket does not
//! take stays in the output, and so does what is too much for one turn: many clients who ask for large
//! values hold up nobody who asks for a small one.

use std::io::IoSlice;

use latchd_core::output::{CHUNKS_MAX, Output};
use rustix::io::Errno;

use crate::net::socket::Socket;
use crate::stats::connection_stats::Traffic;

/// How much is sent in one turn, in bytes: some 50 to 100 µs of the kernel's copying.
const SENT_BYTES_MAX: usize = 256 << 10;

/// How far sending came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sent {
    /// To the end.
    All,
    /// As far as one turn may: the socket would take more.
    Enough,
    /// As far as the socket takes it.
    Full,
}

/// Sends what the socket takes, perhaps nothing, but no more than one turn may, and takes it out of
/// `output`. A peer that is gone is an error and no signal.
pub(crate) fn send(
    socket: &impl Socket,
    output: &mut Output,
    traffic: &Traffic,
) -> rustix::io::Result<Sent> {
    // What the socket takes of that is all that one turn may send.
    let offered = output.len().min(SENT_BYTES_MAX);
    let sent = match output.as_one_chunk() {
        Some([]) => return Ok(Sent::All),
        // As good as always: a value must be large to be a piece of its own.
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

/// Sends a small answer; returns how many of its bytes the socket took, perhaps none.
///
/// # Errors
/// The kernel's.
#[inline]
pub(crate) fn send_letter(
    socket: &impl Socket,
    letter: &[u8],
    traffic: &Traffic,
) -> rustix::io::Result<usize> {
    match socket.send(letter) {
        Ok(sent) => {
            traffic.count_written(sent);
            Ok(sent)
        }
        Err(Errno::AGAIN) => Ok(0),
        Err(errno) => Err(errno),
    }
}

/// Apart from the above, or every answer would clear the list of pieces on the stack.
#[inline(never)]
fn send_chunks(socket: &impl Socket, output: &Output) -> rustix::io::Result<usize> {
    let mut chunks = [IoSlice::new(&[]); CHUNKS_MAX];
    let (mut count, mut room) = (0, SENT_BYTES_MAX);
    for (slice, chunk) in chunks.iter_mut().zip(output.chunks()) {
        let chunk = &chunk[..chunk.len().min(room)];
        if chunk.is_empty() {
            break;
        }
        *slice = IoSlice::new(chunk);
        room -= chunk.len();
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

    /// Three large values between copied bytes: more than a socket takes at once.
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
    fn what_is_sent_in_pieces_arrives_in_order() {
        let (ours, mut theirs) = pair();
        let traffic = Traffic::default();
        let mut output = output();
        let expected = Vec::from(output.clone());
        let (mut received, mut buffer) = (Vec::new(), vec![0; 10_000]);
        while !output.is_empty() {
            let before = output.len();
            send(&ours, &mut output, &traffic).unwrap();
            // As long as it is full it takes nothing, and that is no error.
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
        // What the socket takes at once depends on the system; that it is no more does not.
        let sent = send(&ours, &mut output, &Traffic::default()).unwrap();
        assert!(sent != Sent::All && !output.is_empty());
        while !output.is_empty() {
            assert!(theirs.read(&mut [0; 4096]).unwrap() > 0);
            send(&ours, &mut output, &Traffic::default()).unwrap();
        }
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error_and_no_signal() {
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

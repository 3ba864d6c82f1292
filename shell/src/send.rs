//! Sending an output: in one system call, in one piece as a rule.
//!
//! A large value is a piece of its own, sent from where it lies in the store. What the socket does not
//! take stays in the output.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use latchd_core::output::{CHUNKS_MAX, Output};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::connection_stats::Traffic;

/// Sends what the socket takes, perhaps nothing, and takes it out of `output`. A peer that is gone is
/// an error and no signal.
pub(crate) fn send(
    socket: &OwnedFd,
    output: &mut Output,
    traffic: &Traffic,
) -> rustix::io::Result<()> {
    let mut chunks = [IoSlice::new(&[]); CHUNKS_MAX];
    let mut count = 0;
    for (slice, chunk) in chunks.iter_mut().zip(output.chunks()) {
        *slice = IoSlice::new(chunk);
        count += 1;
    }
    let sent = match &chunks[..count] {
        [] => return Ok(()),
        // As good as always: a value must be large to be a piece of its own.
        [only] => retry_on_intr(|| rustix::net::send(socket, only, SendFlags::NOSIGNAL)),
        several => retry_on_intr(|| {
            let mut no_control = SendAncillaryBuffer::default();
            rustix::net::sendmsg(socket, several, &mut no_control, SendFlags::NOSIGNAL)
        }),
    };
    match sent {
        Ok(sent) => {
            traffic.count_written(sent);
            output.advance(sent);
            Ok(())
        }
        Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
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
        assert_eq!(sent, Ok(()));
    }
}

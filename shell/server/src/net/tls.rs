//! A client's socket under TLS: encrypted records outside, plain bytes inside.
//!
//! A worker has one buffer for the records of a turn, which its clients use one after the other
//! ([`Records`]). A client has buffers of its own only for these:
//!
//! - R1: `kept` holds an incomplete record, or an incomplete handshake message, of at most
//!   [`KEPT_BYTES_MAX`]. A record is shorter, and so is a client's certificate chain.
//! - R2: The bytes of a read are decrypted at once and always fit: a read is limited to the free space, less
//!   the kept bytes. So between turns, no input waits outside the socket.
//! - R3: `unsent` holds records that the socket did not take: at most those of one batch. While it is not
//!   empty, nothing is encrypted.
//! - R4: Until the handshake is over, no byte reaches the connection, and none leaves it.
//! - R5: The session remembers the position of a message in the kept bytes. So it always gets exactly those
//!   and the bytes behind them. If they are lost, it is not used again.
//!
//! The worker decides about turns, and about the time limit of a handshake.
//!
//! Source: memcached 1.6.45 `tls.c`, `doc/tls.txt`.

mod expiry;
mod keys;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use latchd_protocol::output::Output;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::SendFlags;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus, WriteTraffic,
};

use crate::config::tls_settings::ClientCertificate;
use crate::net::send::Sent;
use crate::net::socket::INPUT_BYTES;
use crate::os::headroom;
use crate::stats::connection_stats::Traffic;

pub(crate) use self::keys::Keys;

/// The limit of `kept`, in bytes: a record has at most 18 KiB, and a client's certificates seldom more than 4
/// KiB.
const KEPT_BYTES_MAX: usize = 32 << 10;

/// The most payload of one record, in bytes. Source: RFC 8446, 5.1.
const FRAGMENT_BYTES: usize = 16 << 10;

/// More than the overhead of a record, and more than a whole alert, in bytes. Source: RFC 8446, 5.2; the most
/// that the TLS 1.2 ciphers here add is 29.
const OVERHEAD_BYTES: usize = 256;

/// The number of records encrypted before they are sent.
const BATCH_RECORDS: usize = 4;

/// The most bytes sent in one turn: about 100 µs of encryption.
const SENT_BYTES_MAX: usize = 128 << 10;

/// A client's socket under TLS.
pub(crate) struct TlsSocket {
    socket: OwnedFd,
    session: UnbufferedServerConnection,
    kept: Vec<u8>,
    unsent: Vec<u8>,
    /// The length of the part of `unsent` that is sent.
    sent: usize,
    /// The peer has announced the end of its data.
    has_ended: bool,
    /// The peer's error that ended the session.
    failure: Option<rustls::Error>,
    /// The session is not used again (R5).
    is_broken: bool,
}

/// A worker's buffers for the records of one turn.
#[derive(Debug, Default)]
pub(crate) struct Records {
    incoming: Box<[u8]>,
    outgoing: Vec<u8>,
    /// Short pieces, gathered into one record.
    gathered: Vec<u8>,
}

impl Records {
    /// Allocates the buffers when the first client needs them.
    fn prepare(&mut self) {
        if self.incoming.is_empty() {
            self.incoming = vec![0; KEPT_BYTES_MAX + INPUT_BYTES].into();
        }
    }
}

impl TlsSocket {
    /// A session before its handshake. `None` if the server cannot request client certificates.
    pub(crate) fn new(socket: OwnedFd, keys: &Keys, asked: ClientCertificate) -> Option<Self> {
        let session = UnbufferedServerConnection::new(keys.config(asked)?).ok()?;
        Some(Self {
            socket,
            session,
            kept: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            has_ended: false,
            failure: None,
            is_broken: false,
        })
    }

    /// The underlying socket.
    pub(crate) const fn descriptor(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether the handshake is in progress.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking() && !self.has_ended
    }

    /// Whether records wait until the socket takes them.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether the peer has announced the end of its data.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The bytes kept of incomplete records, and of unsent ones.
    pub(crate) fn kept_bytes(&self) -> (usize, usize) {
        (self.kept.capacity(), self.unsent.capacity())
    }

    /// The peer's error that ended the session, if there is one.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        let what = self.failure.take()?;
        let is_handshake = self.session.is_handshaking();
        Some(Failure { is_handshake, what })
    }

    /// Reads once from the socket, and appends the decrypted bytes to `plain`, within its capacity (R2).
    /// Returns how many bytes those are; 0 is the end.
    ///
    /// # Errors
    /// The kernel's; [`Errno::AGAIN`] also for records without payload, [`Errno::PROTO`] for malformed
    /// records, and [`Errno::NOMEM`].
    pub(crate) fn read(
        &mut self,
        plain: &mut Vec<u8>,
        records: &mut Records,
    ) -> rustix::io::Result<usize> {
        if self.has_ended {
            return Ok(0);
        }
        if self.is_broken {
            return Err(Errno::PROTO);
        }
        records.prepare();
        let before = plain.len();
        let bytes_max = (plain.capacity() - before).min(INPUT_BYTES);
        let kept = self.kept.len();
        let incoming = &mut records.incoming;
        incoming[..kept].copy_from_slice(&self.kept);
        let space = &mut incoming[kept..(kept + bytes_max.saturating_sub(kept)).max(kept + 1)];
        let read = retry_on_intr(|| rustix::io::read(&self.socket, &mut *space))?;
        if read == 0 {
            return Ok(0);
        }
        let arrived = &mut incoming[..kept + read];
        let taken = self
            .take_records(arrived, plain)
            .and_then(|done| self.keep(&arrived[done..]));
        debug_assert!(plain.len() - before <= bytes_max, "R2");
        if taken.is_err() {
            (self.is_broken, self.kept) = (true, Vec::new());
        }
        // A handshake message, or the alert.
        let flushed = self.flush();
        taken?;
        flushed?;
        match plain.len() - before {
            0 if self.has_ended => Ok(0),
            0 => Err(Errno::AGAIN),
            bytes => Ok(bytes),
        }
    }

    /// Decrypts every complete record; returns the number of consumed bytes.
    fn take_records(
        &mut self,
        arrived: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> rustix::io::Result<usize> {
        let mut done = 0;
        loop {
            let rest = arrived.get_mut(done..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state } = self.session.process_tls_records(rest);
            let mut is_all = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(|error| fail(&mut self.failure, error))?;
                        plain.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut self.unsent, |space| data.encode(space))?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.has_ended = true;
                    is_all = true;
                }
                // The server does not offer early data; an unknown state waits for more bytes.
                Ok(_) => is_all = true,
                Err(error) => {
                    let errno = fail(&mut self.failure, error);
                    done += discard;
                    self.tell_failure(arrived.get_mut(done..).unwrap_or_default());
                    return Err(errno);
                }
            }
            done += discard;
            if is_all {
                return Ok(done);
            }
        }
    }

    /// Keeps an incomplete record (R1).
    fn keep(&mut self, rest: &[u8]) -> rustix::io::Result<()> {
        if rest.len() > KEPT_BYTES_MAX {
            let error = rustls::Error::General("the handshake is too long".into());
            return Err(fail(&mut self.failure, error));
        }
        self.kept.clear();
        if rest.is_empty() {
            self.kept = Vec::new();
            return Ok(());
        }
        reserve(&mut self.kept, rest.len())?;
        self.kept.extend_from_slice(rest);
        Ok(())
    }

    /// Sends the peer an alert with the error. `rest` holds the unconsumed bytes of the peer.
    fn tell_failure(&mut self, rest: &mut [u8]) {
        // Only while messages wait to be sent: no more of `rest` is read.
        while self.session.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut data)) =
                self.session.process_tls_records(rest).state
            && encode(&mut self.unsent, |space| data.encode(space)).is_ok()
        {}
    }

    /// Sends as many bytes of `output` as the socket takes, within the limit of one turn, and removes them.
    ///
    /// # Errors
    /// The kernel's, and [`Errno::NOMEM`].
    pub(crate) fn send(
        &mut self,
        output: &mut Output,
        traffic: &Traffic,
        records: &mut Records,
    ) -> rustix::io::Result<Sent> {
        let mut taken = 0;
        loop {
            if !self.flush()? {
                return Ok(Sent::Full);
            }
            if output.is_empty() {
                return Ok(Sent::All);
            }
            if taken >= SENT_BYTES_MAX {
                return Ok(Sent::Enough);
            }
            let encrypted = self.encrypt(output, records)?;
            traffic.count_written(encrypted);
            taken += encrypted;
            let sent = send_some(&self.socket, &records.outgoing)?;
            let rest = &records.outgoing[sent..];
            reserve(&mut self.unsent, rest.len())?;
            self.unsent.extend_from_slice(rest);
        }
    }

    /// Encrypts one batch, and removes it from `output`. Returns its plain length in bytes.
    fn encrypt(&mut self, output: &mut Output, records: &mut Records) -> rustix::io::Result<usize> {
        let Records {
            outgoing, gathered, ..
        } = records;
        outgoing.clear();
        let mut encrypted = 0;
        self.with_traffic(|traffic| {
            for _ in 0..BATCH_RECORDS {
                let fragment = next_fragment(output, gathered);
                if fragment.is_empty() {
                    break;
                }
                let from = outgoing.len();
                outgoing.resize(from + fragment.len() + OVERHEAD_BYTES, 0);
                // The buffer is large enough, and a session requests new keys before the old ones are used
                // up.
                let record = traffic
                    .encrypt(fragment, &mut outgoing[from..])
                    .map_err(|_| Errno::PROTO)?;
                outgoing.truncate(from + record);
                let bytes = fragment.len();
                output.advance(bytes);
                encrypted += bytes;
            }
            Ok(())
        })?;
        Ok(encrypted)
    }

    /// Calls `act` with a session that may send. Before that state, nothing may be sent (R4).
    ///
    /// # Errors
    /// Those of `act`, and [`Errno::PROTO`].
    fn with_traffic(
        &mut self,
        act: impl FnOnce(
            &mut WriteTraffic<'_, rustls::server::ServerConnectionData>,
        ) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        if self.is_broken {
            return Err(Errno::PROTO);
        }
        loop {
            // R5
            let UnbufferedStatus { discard, state } =
                self.session.process_tls_records(&mut self.kept);
            match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let acted = act(&mut traffic);
                    self.kept.drain(..discard);
                    return acted;
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut self.unsent, |space| data.encode(space))?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.has_ended = true,
                Ok(_) => {
                    self.is_broken = true;
                    return Err(Errno::PROTO);
                }
                Err(error) => {
                    self.is_broken = true;
                    return Err(fail(&mut self.failure, error));
                }
            }
            self.kept.drain(..discard);
        }
    }

    /// Sends `unsent`; returns whether all of it was sent.
    fn flush(&mut self) -> rustix::io::Result<bool> {
        if self.unsent.is_empty() {
            return Ok(true);
        }
        self.sent += send_some(&self.socket, &self.unsent[self.sent..])?;
        if self.sent < self.unsent.len() {
            return Ok(false);
        }
        (self.unsent, self.sent) = (Vec::new(), 0);
        Ok(true)
    }

    /// Sends a close notification, if the peer still reads. Call it before the socket is dropped.
    pub(crate) fn say_goodbye(&mut self) {
        if self.has_unsent() || self.is_broken || self.session.is_handshaking() {
            return;
        }
        let mut goodbye = [0; OVERHEAD_BYTES];
        let mut bytes = 0;
        let written = self.with_traffic(|traffic| {
            bytes = traffic
                .queue_close_notify(&mut goodbye)
                .map_err(|_| Errno::PROTO)?;
            Ok(())
        });
        if written.is_ok() {
            // The socket is closed in any case.
            let _ = send_some(&self.socket, &goodbye[..bytes]);
        }
    }
}

impl AsFd for TlsSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The buffers hold secrets, so they are not shown.
impl fmt::Debug for TlsSocket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TlsSocket")
            .field("socket", &self.socket)
            .field("is_handshaking", &self.is_handshaking())
            .finish_non_exhaustive()
    }
}

/// The error of a peer's TLS stream.
#[derive(Debug)]
pub(crate) struct Failure {
    /// It occurred in the handshake.
    pub(crate) is_handshake: bool,
    what: rustls::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = if self.is_handshake {
            "TLS handshake"
        } else {
            "TLS"
        };
        write!(formatter, "{when}: {}", self.what)
    }
}

/// Stores the first failure.
fn fail(failure: &mut Option<rustls::Error>, error: rustls::Error) -> Errno {
    failure.get_or_insert(error);
    Errno::PROTO
}

/// Appends the encoded record.
fn encode(
    out: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> rustix::io::Result<()> {
    let from = out.len();
    let required = match encode(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            required_size
        }
        // Nothing is left to encode.
        Ok(_) | Err(EncodeError::AlreadyEncoded) => return Ok(()),
    };
    reserve(out, required)?;
    out.resize(from + required, 0);
    let written = encode(&mut out[from..]).map_err(|_| Errno::PROTO)?;
    out.truncate(from + written);
    Ok(())
}

/// The payload of the next record: the next piece, or several short ones.
fn next_fragment<'a>(output: &'a Output, gathered: &'a mut Vec<u8>) -> &'a [u8] {
    let mut chunks = output.chunks();
    let Some(first) = chunks.next() else {
        return &[];
    };
    if first.len() >= FRAGMENT_BYTES || first.len() == output.len() {
        return &first[..first.len().min(FRAGMENT_BYTES)];
    }
    gathered.clear();
    for chunk in std::iter::once(first).chain(chunks) {
        let left = FRAGMENT_BYTES - gathered.len();
        gathered.extend_from_slice(&chunk[..chunk.len().min(left)]);
        if chunk.len() >= left {
            break;
        }
    }
    gathered
}

/// Sends as many bytes as the socket takes, perhaps none.
fn send_some(socket: &OwnedFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    match retry_on_intr(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)) {
        Err(Errno::AGAIN) => Ok(0),
        sent => sent,
    }
}

fn reserve(buffer: &mut Vec<u8>, bytes: usize) -> rustix::io::Result<()> {
    headroom::allocate(bytes, || buffer.try_reserve_exact(bytes).ok()).ok_or(Errno::NOMEM)
}

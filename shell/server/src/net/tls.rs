//! One client's socket under TLS: records on one side, bytes on the other.
//!
//! A worker has room for the records of one turn, which all its clients use in turn ([`Records`]); a
//! client has room of its own only for what cannot be helped:
//!
//! - R1: `kept`, of a record that is not whole, or of a message of the handshake that has not come to its
//!   end. It holds at most [`KEPT_BYTES_MAX`]: a record is shorter, and so is what a client has to show.
//! - R2: what a read brings is decrypted at once and always fits: no more is read than there is room for,
//!   less what is kept. So between turns nothing waits that the socket does not show.
//! - R3: `unsent`, records that the socket did not take: at most those of one batch. While there are any,
//!   nothing is encrypted.
//! - R4: until the handshake is over no byte reaches the connection, and none leaves it.
//! - R5: the session remembers where in what is kept a message stands. So it is always shown just that and
//!   what came behind it, and nothing is asked of it any more once that is lost.
//!
//! Who may have a turn, and how long a handshake may take, is the worker's to say.
//!
//! Source: memcached 1.6.45 `tls.c`, `doc/tls.txt`.

mod keys;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use latchd_core::output::Output;
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

/// The most that is kept of what is not whole, in bytes: a record has at most 18 KiB, and a client's
/// certificates seldom four.
const KEPT_BYTES_MAX: usize = 32 << 10;

/// What one record carries at most, in bytes. Source: RFC 8446, 5.1.
const FRAGMENT_BYTES: usize = 16 << 10;

/// More than a record has besides what it carries, in bytes, and than an alert has in all. Source: RFC
/// 8446, 5.2; the most that TLS 1.2's ciphers here add is 29.
const OVERHEAD_BYTES: usize = 256;

/// How many records are encrypted before they are sent.
const BATCH_RECORDS: usize = 4;

/// How much is sent in one turn, in bytes: some 100 µs of encryption.
const SENT_BYTES_MAX: usize = 128 << 10;

/// A client's socket under TLS.
pub(crate) struct TlsSocket {
    socket: OwnedFd,
    session: UnbufferedServerConnection,
    kept: Vec<u8>,
    unsent: Vec<u8>,
    /// So much of `unsent` is sent.
    sent: usize,
    /// The peer has said that it sends nothing more.
    has_ended: bool,
    /// Why it cannot go on, if that is the peer's doing.
    failure: Option<rustls::Error>,
    /// Nothing more is asked of the session (R5).
    is_broken: bool,
}

/// A worker's room for the records of one turn.
#[derive(Debug, Default)]
pub(crate) struct Records {
    incoming: Box<[u8]>,
    outgoing: Vec<u8>,
    /// Short pieces that go into one record.
    gathered: Vec<u8>,
}

impl Records {
    /// The room is there once the first client needs it.
    fn prepare(&mut self) {
        if self.incoming.is_empty() {
            self.incoming = vec![0; KEPT_BYTES_MAX + INPUT_BYTES].into();
        }
    }
}

impl TlsSocket {
    /// The handshake has not begun. `None` if the server cannot ask for certificates of clients.
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

    /// What its records come and go through.
    pub(crate) const fn descriptor(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether the handshake goes on.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking() && !self.has_ended
    }

    /// Whether records wait for room in the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether the peer has said that it sends nothing more.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What is kept of what has not arrived in full, and of what has not left, in bytes.
    pub(crate) fn kept_bytes(&self) -> (usize, usize) {
        (self.kept.capacity(), self.unsent.capacity())
    }

    /// Why it cannot go on, if that is the peer's doing.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        let what = self.failure.take()?;
        let is_handshake = self.session.is_handshaking();
        Some(Failure { is_handshake, what })
    }

    /// Reads once from the socket, and appends what that comes to to `plain`, within its capacity (R2).
    /// Returns how many bytes those are; 0 is the end.
    ///
    /// # Errors
    /// The kernel's; [`Errno::AGAIN`] also if records have come that carry nothing, [`Errno::PROTO`] if
    /// they are none, and [`Errno::NOMEM`].
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
        let room = (plain.capacity() - before).min(INPUT_BYTES);
        let kept = self.kept.len();
        let incoming = &mut records.incoming;
        incoming[..kept].copy_from_slice(&self.kept);
        let space = &mut incoming[kept..(kept + room.saturating_sub(kept)).max(kept + 1)];
        let read = retry_on_intr(|| rustix::io::read(&self.socket, &mut *space))?;
        if read == 0 {
            return Ok(0);
        }
        let arrived = &mut incoming[..kept + read];
        let taken = self
            .take_records(arrived, plain)
            .and_then(|done| self.keep(&arrived[done..]));
        debug_assert!(plain.len() - before <= room, "R2");
        if taken.is_err() {
            (self.is_broken, self.kept) = (true, Vec::new());
        }
        // An answer of the handshake, or the reason why there is none.
        let flushed = self.flush();
        taken?;
        flushed?;
        match plain.len() - before {
            0 if self.has_ended => Ok(0),
            0 => Err(Errno::AGAIN),
            bytes => Ok(bytes),
        }
    }

    /// Takes every whole record, and says how many bytes are done with.
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
                    encode(&mut self.unsent, |room| data.encode(room))?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.has_ended = true;
                    is_all = true;
                }
                // Early data is not offered; what is not known here waits for more.
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

    /// Keeps what is not whole (R1).
    fn keep(&mut self, rest: &[u8]) -> rustix::io::Result<()> {
        if rest.len() > KEPT_BYTES_MAX {
            let error = rustls::Error::General("the handshake has no end".into());
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

    /// Has the peer told why it is not understood. `rest` is what it has sent and is not done with.
    fn tell_failure(&mut self, rest: &mut [u8]) {
        // While there is something to tell that comes first: nothing of `rest` is looked at again.
        while self.session.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut data)) =
                self.session.process_tls_records(rest).state
            && encode(&mut self.unsent, |room| data.encode(room)).is_ok()
        {}
    }

    /// Sends what the socket takes, but no more than one turn may, and takes it out of `output`.
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

    /// Encrypts one batch, and takes it out of `output`. Returns how much that was, in bytes.
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
                // The room is enough, and a session whose keys are used up has asked for new ones before.
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

    /// Does something with a session that may send; there is nothing to send before (R4).
    ///
    /// # Errors
    /// What `act` says, and [`Errno::PROTO`].
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
                    encode(&mut self.unsent, |room| data.encode(room))?;
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

    /// Sends `unsent`; whether all of it is gone.
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

    /// Tells the peer that nothing more comes, if it still listens. To be called before it is dropped.
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
            // It is closed in any case.
            let _ = send_some(&self.socket, &goodbye[..bytes]);
        }
    }
}

impl AsFd for TlsSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What it keeps is somebody's secret.
impl fmt::Debug for TlsSocket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TlsSocket")
            .field("socket", &self.socket)
            .field("is_handshaking", &self.is_handshaking())
            .finish_non_exhaustive()
    }
}

/// Why a peer is not understood.
#[derive(Debug)]
pub(crate) struct Failure {
    /// It never was.
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

/// Notes the first failure.
fn fail(failure: &mut Option<rustls::Error>, error: rustls::Error) -> Errno {
    failure.get_or_insert(error);
    Errno::PROTO
}

/// Appends what is encoded.
fn encode(
    out: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> rustix::io::Result<()> {
    let from = out.len();
    let required = match encode(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            required_size
        }
        // Nothing is to be encoded.
        Ok(_) | Err(EncodeError::AlreadyEncoded) => return Ok(()),
    };
    reserve(out, required)?;
    out.resize(from + required, 0);
    let written = encode(&mut out[from..]).map_err(|_| Errno::PROTO)?;
    out.truncate(from + written);
    Ok(())
}

/// What goes into the next record: the next piece, or several that are short.
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
        let room = FRAGMENT_BYTES - gathered.len();
        gathered.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() >= room {
            break;
        }
    }
    gathered
}

/// Sends what the socket takes, perhaps nothing.
fn send_some(socket: &OwnedFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    match retry_on_intr(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)) {
        Err(Errno::AGAIN) => Ok(0),
        sent => sent,
    }
}

fn reserve(buffer: &mut Vec<u8>, bytes: usize) -> rustix::io::Result<()> {
    headroom::allocate(bytes, || buffer.try_reserve_exact(bytes).ok()).ok_or(Errno::NOMEM)
}

//! Small replies, deferred until a worker has served all clients with new events; then it sends them
//! together.
//!
//! `send` evicts our hot path from the processor's cache. So a worker first executes the requests of all
//! ready clients, and then sends all replies.
//!
//! - O1: A reply is deferred until all clients with new events have been served, or until [`WEIGHT_MAX`]
//!   commands have been executed.
//! - O2: At most [`REPLIES_MAX`] replies are deferred, of at most [`OUTBOX_BYTES`] together; a reply that
//!   does not fit is sent at once.
//! - O3: A client has at most one deferred reply, and nothing else is sent to it before.

use std::ops::Range;

/// The most deferred replies: as many as the clients that one wait can report.
const REPLIES_MAX: usize = 128;

/// The most bytes of all deferred replies.
const OUTBOX_BYTES: usize = 64 << 10;

/// The longest deferred reply, in bytes: copying more would cost more than it saves.
const REPLY_BYTES_MAX: usize = 8 << 10;

/// The work for other clients after which the replies are sent, in small commands
/// ([`crate::worker::turn::Work`]): about a millisecond.
const WEIGHT_MAX: u32 = 1024;

/// The deferred replies of one worker.
#[derive(Debug)]
pub(crate) struct Outbox {
    replies: Vec<Deferred>,
    /// The number of replies taken out.
    taken: usize,
    bytes: Vec<u8>,
    /// The weight of the work done in the turn of the first reply, and since.
    weight: u32,
}

/// A deferred reply.
#[derive(Debug)]
struct Deferred {
    /// Its client, by the worker's name for it.
    to: u64,
    bytes: Range<usize>,
}

impl Outbox {
    /// An empty outbox, with capacity for the most replies.
    pub(crate) fn new() -> Self {
        Self {
            replies: Vec::with_capacity(REPLIES_MAX),
            taken: 0,
            bytes: Vec::with_capacity(OUTBOX_BYTES),
            weight: 0,
        }
    }

    /// Copies a reply into the outbox; returns whether it fits (O2).
    #[expect(clippy::inline_always, reason = "a call costs as much as the copy")]
    #[inline(always)]
    pub(crate) fn put(&mut self, to: u64, answer: &[u8]) -> bool {
        let begin = self.bytes.len();
        let end = begin + answer.len();
        if answer.len() > REPLY_BYTES_MAX || end > OUTBOX_BYTES || self.replies.len() == REPLIES_MAX
        {
            return false;
        }
        self.bytes.extend_from_slice(answer);
        let bytes = begin..end;
        self.replies.push(Deferred { to, bytes });
        true
    }

    /// Adds the weight of a turn's work.
    #[inline]
    pub(crate) fn note(&mut self, weight: u32) {
        if !self.replies.is_empty() {
            self.weight = self.weight.saturating_add(weight);
        }
    }

    /// Whether the replies have waited long enough (O1).
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.weight >= WEIGHT_MAX
    }

    /// Takes out the first reply, with its client. When all are out, there is space again.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(u64, &[u8])> {
        let Some(reply) = self.replies.get(self.taken) else {
            self.replies.clear();
            self.taken = 0;
            self.bytes.clear();
            self.weight = 0;
            return None;
        };
        self.taken += 1;
        Some((reply.to, &self.bytes[reply.bytes.clone()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(outbox: &mut Outbox) -> Vec<(u64, Vec<u8>)> {
        let take = || outbox.take().map(|(to, answer)| (to, answer.to_vec()));
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn answers_come_out_whole_and_in_order() {
        let mut outbox = Outbox::new();
        assert!(outbox.put(7, b"HD\r\n"));
        assert!(outbox.put(3, b"EN\r\n"));
        assert_eq!(
            take_all(&mut outbox),
            [(7, b"HD\r\n".to_vec()), (3, b"EN\r\n".to_vec())]
        );
        assert!(outbox.put(3, b"MN\r\n"));
        assert_eq!(take_all(&mut outbox), [(3, b"MN\r\n".to_vec())]);
    }

    #[test]
    fn full_outbox_refuses_and_never_grows() {
        let mut outbox = Outbox::new();
        assert!(!outbox.put(0, &[0; REPLY_BYTES_MAX + 1]));
        let whole = OUTBOX_BYTES / REPLY_BYTES_MAX;
        for to in 0..whole {
            assert!(outbox.put(to as u64, &[1; REPLY_BYTES_MAX]));
        }
        assert!(!outbox.put(99, b"1"), "there is no byte left");
        assert_eq!(outbox.bytes.capacity(), OUTBOX_BYTES);
        take_all(&mut outbox);
        for to in 0..REPLIES_MAX {
            assert!(outbox.put(to as u64, b"1"));
        }
        assert!(!outbox.put(999, b"1"), "they are too many");
        assert_eq!(outbox.replies.capacity(), REPLIES_MAX);
    }

    #[test]
    fn replies_are_due_after_enough_work() {
        let mut outbox = Outbox::new();
        outbox.note(WEIGHT_MAX);
        assert!(!outbox.is_due(), "nothing waits");
        for _ in 0..2 {
            assert!(outbox.put(1, b"HD\r\n"));
            outbox.note(WEIGHT_MAX - 1);
            assert!(!outbox.is_due());
            outbox.note(u32::MAX);
            assert!(outbox.is_due());
            take_all(&mut outbox);
        }
    }
}

//! A client's input that is not consumed yet.
//!
//! A worker has one buffer for all its clients, and complete requests never leave it. A client has a buffer
//! of its own only for an incomplete request, and for requests that wait for its next turn.
//!
//! - F1: That buffer grows with the arrived bytes, never with an announced length. A read brings at most
//!   [`INPUT_BYTES`]. So the buffer holds at most one request of the largest size, and as much again. A long
//!   request is collected in pages, which take memory once they are written. Only where memory is limited do
//!   unwritten pages count ([`ValuePages::taken_bytes`]).
//! - F2: The buffer is freed as soon as it is not needed, and the worker's buffer never grows. So one long
//!   request has no lasting cost.
//! - F3: If the system refuses memory, or the headroom would be used up, only this client gets an error.
//! - F4: If the server zeroes dead values ([`Config::secure_erase`](crate::Config::secure_erase)), the memory
//!   of a client's buffer is zeroed before it is freed, also when the buffer grows. So a large value leaves no
//!   bytes outside the worker's buffer, where other requests overwrite them.
//! - F5: A long request is collected in one buffer, in which the store can keep its value
//!   ([`Input::shared`]).

use bytes::Bytes;
use rustix::io::Errno;
use zeroize::Zeroize;

use crate::net::socket::{INPUT_BYTES, Socket};
use crate::net::tls::Records;
use crate::net::transport::Transport;
use crate::os::headroom;
use crate::os::pages::{KEPT_VALUE_BYTES_MIN, ValuePages};

/// A longer request is collected in the client's own buffer, in bytes. A shorter one is copied back before
/// the bytes that follow it, which leaves half of the worker's buffer for those.
pub(crate) const REQUEST_BYTES_SHARED_MAX: usize = INPUT_BYTES / 2;

/// The most bytes of such a request that one read brings into pages: its client may wait for its next turn, while
/// the others wait for each page from the system.
const COLLECTED_BYTES: usize = INPUT_BYTES / 4;

/// One client's input.
#[derive(Debug)]
pub(crate) struct Input {
    /// The unconsumed bytes, except those in the worker's buffer during a turn.
    kept: Buffer,
    /// The number of bytes needed for progress; 0 if no more are needed.
    needed: usize,
    /// `needed` is the length of a whole request, not only the next part of a line without an end.
    is_length_known: bool,
    /// Its memory is zeroed before it is freed (F4).
    erases: bool,
}

/// The buffer of the unconsumed bytes.
#[derive(Debug)]
enum Buffer {
    /// Allocated memory.
    Heap(Vec<u8>),
    /// Pages, for a long request that is being collected.
    Pages(ValuePages),
    /// The pages of a complete request (F5); they do not change any more.
    Whole(Bytes),
}

impl Buffer {
    const NOTHING: Self = Self::Heap(Vec::new());

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(heap) => heap,
            Self::Pages(pages) => pages.as_ref(),
            Self::Whole(whole) => whole,
        }
    }

    /// Replaces the buffer by a copy of these bytes in allocated memory.
    fn copied(bytes: &[u8]) -> rustix::io::Result<Self> {
        let mut heap = Vec::new();
        // Nothing is there yet that could be zeroed.
        reserve(&mut heap, bytes.len(), false)?;
        heap.extend_from_slice(bytes);
        Ok(Self::Heap(heap))
    }
}

impl Input {
    /// The input of a new client; `erases`: its memory is zeroed before it is freed (F4).
    pub(crate) const fn new(erases: bool) -> Self {
        Self {
            kept: Buffer::NOTHING,
            needed: 1,
            is_length_known: false,
            erases,
        }
    }

    /// The capacity kept between turns, in bytes.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        match &self.kept {
            Buffer::Heap(heap) => heap.capacity(),
            Buffer::Pages(pages) => pages.taken_bytes(),
            Buffer::Whole(whole) => whole.len(),
        }
    }

    /// The bytes kept between turns.
    pub(crate) fn kept(&self) -> &[u8] {
        self.kept.bytes()
    }

    /// Reads once. Returns how many bytes came; 0 is the end. Until [`Self::consume`], all unconsumed bytes
    /// are either in the worker's `buffer` or in the client's own one: see [`Self::all`].
    ///
    /// # Errors
    /// The kernel's, and [`Errno::NOMEM`] (F3).
    pub(crate) fn receive(
        &mut self,
        transport: &mut Transport<impl Socket>,
        buffer: &mut Vec<u8>,
        records: &mut Records,
    ) -> rustix::io::Result<usize> {
        buffer.clear();
        if self.is_collecting() {
            return self.collect(transport, buffer, records);
        }
        let kept = match &mut self.kept {
            Buffer::Heap(kept) if kept.is_empty() => return transport.read(buffer, records),
            Buffer::Heap(kept) => kept,
            Buffer::Pages(_) | Buffer::Whole(_) => return self.collect(transport, buffer, records),
        };
        buffer.extend_from_slice(kept);
        let read = transport.read(buffer, records);
        if matches!(read, Ok(1..)) {
            forget(kept, self.erases);
        } else {
            buffer.clear();
        }
        read
    }

    /// Reads once, into the client's own buffer.
    fn collect(
        &mut self,
        transport: &mut Transport<impl Socket>,
        buffer: &mut Vec<u8>,
        records: &mut Records,
    ) -> rustix::io::Result<usize> {
        let missing = self.needed.saturating_sub(self.kept().len());
        self.grow(missing)?;
        match &mut self.kept {
            Buffer::Heap(heap) => {
                // The space may be much larger than a read (F1), so the bytes come by way of the worker's buffer.
                reserve(heap, INPUT_BYTES, self.erases)?;
                let read = transport.read(buffer, records)?;
                heap.extend_from_slice(buffer);
                buffer.clear();
                Ok(read)
            }
            Buffer::Pages(pages) => {
                // If the request's length is known, read no more than the request: then it can stay here
                // (F5).
                let bytes_max = if self.is_length_known {
                    missing.min(COLLECTED_BYTES)
                } else {
                    COLLECTED_BYTES
                };
                let read = transport.read_into(pages.space(), bytes_max, buffer, records)?;
                pages.advance(read);
                Ok(read)
            }
            Buffer::Whole(_) => unreachable!("it has space"),
        }
    }

    /// Ensures space for a read, and for `missing` further bytes: in pages if possible, otherwise in allocated
    /// memory, which grows with the reads.
    fn grow(&mut self, missing: usize) -> rustix::io::Result<()> {
        let kept = self.kept.bytes().len();
        let has_space = match &mut self.kept {
            // If pages were not available once, it stays in allocated memory.
            Buffer::Heap(heap) => heap.len() > INPUT_BYTES,
            Buffer::Pages(pages) => pages.space().len() >= INPUT_BYTES,
            Buffer::Whole(_) => false,
        };
        if has_space {
            return Ok(());
        }
        // The length of a line is unknown before its end, so the capacity doubles.
        let bytes = (kept + missing.max(INPUT_BYTES)).max(2 * kept) + INPUT_BYTES;
        if let Some(mut pages) = ValuePages::reserve(bytes, self.erases) {
            pages.write(self.kept.bytes());
            self.forget();
            self.kept = Buffer::Pages(pages);
        } else if !matches!(self.kept, Buffer::Heap(_)) {
            self.kept = Buffer::copied(self.kept.bytes())?;
        }
        Ok(())
    }

    /// All unconsumed bytes, and whether they are enough for progress.
    pub(crate) fn all<'a>(&'a self, buffer: &'a [u8]) -> (&'a [u8], bool) {
        let all = if buffer.is_empty() {
            self.kept.bytes()
        } else {
            buffer
        };
        (all, all.len() >= self.needed)
    }

    /// Marks a long complete request as unchanging, so the store may keep its buffer for the value (F5). An
    /// incomplete line is excluded: it would be copied at each read.
    #[inline]
    pub(crate) fn freeze(&mut self) {
        if let Buffer::Pages(pages) = &self.kept
            && self.is_length_known
            && pages.as_ref().len() >= self.needed.max(KEPT_VALUE_BYTES_MIN)
            && let Buffer::Pages(pages) = std::mem::replace(&mut self.kept, Buffer::NOTHING)
        {
            self.kept = Buffer::Whole(Bytes::from_owner(pages));
        }
    }

    /// The buffer of all unconsumed bytes, if the store may keep it.
    #[inline]
    pub(crate) const fn shared(&self) -> Option<&Bytes> {
        match &self.kept {
            Buffer::Whole(whole) => Some(whole),
            Buffer::Heap(_) | Buffer::Pages(_) => None,
        }
    }

    /// Consumes the first `consumed` bytes, and keeps the rest.
    ///
    /// # Errors
    /// [`Errno::NOMEM`] (F3).
    pub(crate) fn consume(
        &mut self,
        consumed: usize,
        buffer: &mut Vec<u8>,
    ) -> rustix::io::Result<()> {
        match &mut self.kept {
            Buffer::Heap(kept) if consumed == buffer.len() && kept.capacity() == 0 => {
                // Nearly always: no bytes are left, and none were kept.
                buffer.clear();
            }
            Buffer::Heap(kept) => {
                if buffer.is_empty() {
                    drop_front(kept, consumed, self.erases);
                } else {
                    let rest = &buffer[consumed..];
                    reserve(kept, rest.len(), self.erases)?;
                    kept.extend_from_slice(rest);
                    buffer.clear();
                }
                if kept.is_empty() {
                    forget(kept, self.erases);
                    *kept = Vec::new();
                } else if consumed > 0 {
                    shrink(kept, self.erases);
                }
            }
            // They stay where they are until some are consumed.
            Buffer::Pages(_) | Buffer::Whole(_) if consumed == 0 => {}
            kept @ (Buffer::Pages(_) | Buffer::Whole(_)) => {
                *kept = Buffer::copied(&kept.bytes()[consumed..])?;
            }
        }
        Ok(())
    }

    /// Waits until there are `bytes` bytes in all.
    #[inline]
    pub(crate) fn wait_for(&mut self, bytes: usize) {
        // At least one more than now, or the next turn would make no progress.
        let more = self.kept().len() + 1;
        self.is_length_known = bytes > more;
        self.needed = bytes.max(more);
    }

    /// Progress is possible without more bytes.
    pub(crate) fn wait_for_nothing(&mut self) {
        self.needed = 0;
    }

    /// Whether its request is so long that it is collected in the client's own buffer.
    pub(crate) const fn is_collecting(&self) -> bool {
        self.needed > REQUEST_BYTES_SHARED_MAX
    }

    /// Zeroes the kept bytes in allocated memory (F4); pages zero themselves.
    fn forget(&mut self) {
        if let Buffer::Heap(heap) = &mut self.kept {
            forget(heap, self.erases);
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Ensures space for `bytes` further bytes.
fn reserve(buffer: &mut Vec<u8>, bytes: usize, erases: bool) -> rustix::io::Result<()> {
    let whole = buffer.len() + bytes;
    if buffer.capacity() >= whole {
        return Ok(());
    }
    // For a moment, the bytes may exist twice.
    let allocated = headroom::allocate(whole, || {
        if erases {
            // The capacity doubles: the bytes are copied each time, and may be many.
            move_to(buffer, whole.max(2 * buffer.len()))
        } else {
            buffer.try_reserve_exact(bytes).ok()
        }
    });
    allocated.ok_or(Errno::NOMEM)
}

/// Moves the content of `buffer` to new memory for `bytes`, and zeroes the old memory (F4).
fn move_to(buffer: &mut Vec<u8>, bytes: usize) -> Option<()> {
    let mut moved = Vec::new();
    moved.try_reserve_exact(bytes).ok()?;
    moved.extend_from_slice(buffer);
    forget(&mut std::mem::replace(buffer, moved), true);
    Some(())
}

/// Empties `buffer`.
fn forget(buffer: &mut Vec<u8>, erases: bool) {
    if erases {
        // Its whole capacity.
        buffer.zeroize();
    } else {
        buffer.clear();
    }
}

/// Removes the first `bytes`.
fn drop_front(buffer: &mut Vec<u8>, bytes: usize, erases: bool) {
    let len = buffer.len() - bytes;
    if erases {
        buffer.copy_within(bytes.., 0);
        buffer[len..].zeroize();
        buffer.truncate(len);
    } else {
        buffer.drain(..bytes);
    }
}

/// Frees unneeded capacity.
fn shrink(buffer: &mut Vec<u8>, erases: bool) {
    if erases {
        // If it cannot be moved, it stays, and is zeroed later.
        let _ = move_to(buffer, buffer.len());
    } else {
        buffer.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    struct Bench {
        input: Input,
        buffer: Vec<u8>,
        transport: Transport,
        records: Records,
        peer: UnixStream,
    }

    /// A length for which the system has no pages.
    const ENDLESS: usize = usize::MAX / 4;

    impl Bench {
        fn new() -> Self {
            Self::with(Input::new(false))
        }

        fn with(input: Input) -> Self {
            let (ours, peer) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            Self {
                input,
                buffer: Vec::with_capacity(INPUT_BYTES),
                transport: Transport::Plain(ours.into()),
                records: Records::default(),
                peer,
            }
        }

        fn receive(&mut self) -> rustix::io::Result<usize> {
            self.input
                .receive(&mut self.transport, &mut self.buffer, &mut self.records)
        }

        /// Sends bytes and reads them as the server would; consumes `consumed` of all bytes.
        fn turn(&mut self, bytes: &[u8], consumed: usize, needed: usize) -> Vec<u8> {
            self.peer.write_all(bytes).unwrap();
            let read = self.receive().unwrap();
            assert_eq!(read, bytes.len());
            let all = self.input.all(&self.buffer).0.to_vec();
            self.input.consume(consumed, &mut self.buffer).unwrap();
            self.input.wait_for(needed);
            assert_eq!(self.buffer.capacity(), INPUT_BYTES, "F2");
            all
        }
    }

    #[test]
    fn incomplete_request_is_kept_and_continued() {
        let mut bench = Bench::new();
        assert_eq!(bench.turn(b"get a\r\nge", 7, 3), b"get a\r\nge");
        assert_eq!(bench.input.kept(), b"ge");
        assert_eq!(bench.turn(b"t b\r\n", 7, 1), b"get b\r\n");
        assert_eq!(bench.input.capacity(), 0);
    }

    #[test]
    fn nothing_to_read_changes_nothing() {
        let mut bench = Bench::new();
        bench.turn(b"ge", 0, 3);
        let again = bench.receive();
        assert_eq!(again, Err(Errno::AGAIN));
        assert_eq!(bench.input.kept(), b"ge");
    }

    #[test]
    fn long_request_is_collected_and_freed() {
        for first in [3, INPUT_BYTES] {
            let mut bench = Bench::new();
            let needed = 1_000_000;
            bench.turn(&vec![b's'; first], 0, needed);
            let piece = vec![b'v'; COLLECTED_BYTES];
            let mut arrived = first;
            while arrived + COLLECTED_BYTES < needed {
                bench.turn(&piece, 0, needed);
                arrived += COLLECTED_BYTES;
                assert!(bench.input.capacity() <= arrived + INPUT_BYTES, "F1");
            }
            let last = vec![b'v'; needed - arrived];
            bench.peer.write_all(&last).unwrap();
            bench.peer.write_all(b"mn\r\n").unwrap();
            assert_eq!(bench.receive(), Ok(last.len()), "it is read alone");
            bench.input.freeze();
            let whole = bench.input.shared().cloned().expect("F5");
            let (all, is_enough) = bench.input.all(&bench.buffer);
            assert_eq!((all.as_ptr(), all.len()), (whole.as_ptr(), needed));
            assert!(is_enough);
            bench.input.consume(needed, &mut bench.buffer).unwrap();
            bench.input.wait_for(1);
            assert_eq!(bench.input.capacity(), 0);
            assert_eq!(whole.len(), needed, "the store keeps all of it");
            assert_eq!(bench.receive(), Ok(4));
            assert_eq!(bench.input.all(&bench.buffer).0, b"mn\r\n");
        }
        let mut short = Input::new(false);
        short.wait_for(REQUEST_BYTES_SHARED_MAX);
        assert!(!short.is_collecting());
    }

    /// If the system has no pages for a request, it is collected in allocated memory, and stays there.
    #[test]
    fn long_request_needs_no_pages() {
        for (erases, needed) in [(false, ENDLESS), (true, ENDLESS), (true, 100_000)] {
            let mut bench = Bench::with(Input::new(erases));
            bench.turn(b"set", 0, needed);
            let (mut expected, mut moves, mut place) = (b"set".to_vec(), 0, std::ptr::null());
            for number in 0..64 {
                let piece = [number; COLLECTED_BYTES];
                bench.turn(&piece, 0, ENDLESS);
                expected.extend_from_slice(&piece);
                assert_eq!(bench.input.kept(), expected);
                let bound = 2 * (expected.len() + INPUT_BYTES);
                assert!(
                    bench.input.capacity() <= bound,
                    "F1: {}",
                    bench.input.capacity()
                );
                moves += usize::from(bench.input.kept().as_ptr() != place);
                place = bench.input.kept().as_ptr();
            }
            assert!(!erases || moves <= 12, "F4 copies it {moves} times");
            bench.turn(b"\r", 0, 2_000_000);
            bench.turn(b"\n", 0, 2_000_000);
            assert!(
                matches!(bench.input.kept, Buffer::Heap(_)),
                "it stays there"
            );
            bench.turn(b"mn", expected.len() + 2, 3);
            let input = &bench.input;
            assert_eq!((input.kept(), input.capacity()), (&b"mn"[..], 2), "F2");
        }
    }

    const SECRET: &[u8] = b"the secret, ";

    /// Whether the memory of this process at the address has the secret.
    fn has_secret(address: usize) -> bool {
        // On the stack: another allocation could take the memory that is looked at.
        let mut memory = [0; 512];
        let process = File::open("/proc/self/mem").unwrap();
        // The allocator may write into the first bytes, and may have unmapped all of them.
        let read = process.read_at(&mut memory, address as u64 + 64);
        let read = &memory[..read.unwrap_or(0)];
        read.windows(SECRET.len()).any(|part| part == SECRET)
    }

    #[test]
    fn secrets_are_zeroed_before_they_are_freed() {
        let secret = SECRET.repeat(1_000);
        let ways: [fn(&mut Bench); 5] = [
            |bench| bench.input = Input::new(true),
            |bench| drop(bench.turn(b"\r\n", 12_002, 1)),
            |bench| drop(bench.turn(&[b'v'; 1_000], 12_000, 1_001)),
            |bench| {
                bench.input.wait_for(1_000_000);
                bench.turn(b"in pages", 0, 1_000_000);
            },
            |bench| {
                bench.input.wait_for(ENDLESS);
                bench.turn(b"in allocated memory", 0, ENDLESS);
            },
        ];
        for (number, way) in ways.into_iter().enumerate() {
            let mut bench = Bench::with(Input::new(true));
            bench.turn(&secret, 0, secret.len() + 1);
            let place = bench.input.kept().as_ptr() as usize;
            assert!(has_secret(place));
            way(&mut bench);
            assert!(!has_secret(place), "F4: {number}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_moved_seldom() {
        let mut bench = Bench::new();
        let piece = vec![b'x'; COLLECTED_BYTES];
        let (mut arrived, mut moves, mut place) = (0, 0, std::ptr::null());
        while arrived < 4 << 20 {
            bench.turn(&piece, 0, arrived + COLLECTED_BYTES + 1);
            arrived += COLLECTED_BYTES;
            bench.input.freeze();
            assert!(bench.input.shared().is_none());
            moves += usize::from(bench.input.kept().as_ptr() != place);
            place = bench.input.kept().as_ptr();
        }
        assert!(moves <= 12, "it was moved {moves} times in 256 reads");
    }

    #[test]
    fn a_read_brings_no_more_than_its_bound() {
        for collected in [0, 20] {
            let mut bench = Bench::with(Input::new(true));
            for _ in 0..collected {
                bench.turn(&[b'x'; COLLECTED_BYTES], 0, ENDLESS);
            }
            bench.peer.set_nonblocking(true).unwrap();
            let many = vec![b'x'; 3 * INPUT_BYTES];
            let sent = bench.peer.write(&many).unwrap();
            assert!(sent > INPUT_BYTES);
            let read = bench.receive();
            assert_eq!(read, Ok(INPUT_BYTES));
        }
    }
}

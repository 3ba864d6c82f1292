//! A heap of segments by the earliest deadline in them.
//!
//! The expiry sweep takes the next segment with an expired item from here. It sees at once that nothing has
//! expired, for any number of segments.
//!
//! - D1: No segment's `earliest` is before that of its parent in the heap.
//! - D2: A segment knows its place in the heap. Every segment with memory has one.
//!
//! `earliest` is maintained by the segment: no item in it that may expire does so before then.

use super::Full;
use super::block::Block;
use super::chunks::Chunks;
use super::geometry::SegmentId;
use super::segment::Segment;

/// The segments, ordered by the earliest deadline in them.
#[derive(Debug)]
pub(super) struct Deadlines {
    heap: Chunks<SegmentId>,
}

impl Deadlines {
    pub(super) const fn new(chunk_len: usize) -> Self {
        Self {
            heap: Chunks::new(chunk_len),
        }
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.heap.held_bytes()
    }

    /// The bytes that the next [`push`](Self::push) will allocate.
    pub(super) const fn push_bytes(&self) -> usize {
        self.heap.push_bytes()
    }

    /// The most bytes that a [`push`](Self::push) allocates.
    pub(super) const fn chunk_bytes_max(&self) -> usize {
        self.heap.chunk_bytes_max()
    }

    /// The segment with the earliest deadline.
    pub(super) fn first(&self) -> Option<SegmentId> {
        (self.heap.len() > 0).then(|| self.heap[0])
    }

    /// Adds a segment that is not in the heap.
    pub(super) fn push<B: Block>(
        &mut self,
        segments: &mut Chunks<Segment<B>>,
        id: SegmentId,
    ) -> Result<(), Full> {
        self.heap.push(id)?;
        self.rise(segments, self.heap.len() - 1);
        Ok(())
    }

    /// Removes a segment.
    pub(super) fn remove<B: Block>(&mut self, segments: &mut Chunks<Segment<B>>, id: SegmentId) {
        let place = segments[id as usize].place as usize;
        let last = self.heap.pop().expect("D2: it is there");
        self.heap.trim();
        if last != id {
            self.heap[place] = last;
            self.restore_order(segments, place);
        }
    }

    /// Changes a segment's `earliest`.
    pub(super) fn set<B: Block>(
        &mut self,
        segments: &mut Chunks<Segment<B>>,
        id: SegmentId,
        earliest: u32,
    ) {
        let segment = &mut segments[id as usize];
        if segment.earliest != earliest {
            segment.earliest = earliest;
            let place = segment.place as usize;
            self.restore_order(segments, place);
        }
    }

    /// Restores D1 after the segment at `place` has changed.
    fn restore_order<B: Block>(&mut self, segments: &mut Chunks<Segment<B>>, place: usize) {
        let place = self.rise(segments, place);
        self.sink(segments, place);
    }

    /// Moves the segment at `place` towards the front as far as D1 requires; returns its new place.
    fn rise<B: Block>(&mut self, segments: &mut Chunks<Segment<B>>, mut place: usize) -> usize {
        let id = self.heap[place];
        let earliest = segments[id as usize].earliest;
        while place > 0 {
            let parent = (place - 1) / 2;
            let above = self.heap[parent];
            if segments[above as usize].earliest <= earliest {
                break;
            }
            self.seat(segments, place, above);
            place = parent;
        }
        self.seat(segments, place, id);
        place
    }

    fn sink<B: Block>(&mut self, segments: &mut Chunks<Segment<B>>, mut place: usize) {
        let id = self.heap[place];
        let earliest = segments[id as usize].earliest;
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let child = children
                .into_iter()
                .filter(|child| *child < self.heap.len())
                .min_by_key(|child| segments[self.heap[*child] as usize].earliest);
            let Some(child) = child else { break };
            let below = self.heap[child];
            if segments[below as usize].earliest >= earliest {
                break;
            }
            self.seat(segments, place, below);
            place = child;
        }
        self.seat(segments, place, id);
    }

    fn seat<B: Block>(&mut self, segments: &mut Chunks<Segment<B>>, place: usize, id: SegmentId) {
        self.heap[place] = id;
        segments[id as usize].place =
            u32::try_from(place).expect("segments are numbered in 32 bits");
    }

    /// D1 and D2.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check<B: Block>(&self, segments: &Chunks<Segment<B>>) {
        self.heap.check();
        for (place, id) in self.heap.iter().enumerate() {
            let segment = &segments[*id as usize];
            assert_eq!(segment.place as usize, place, "D2: segment {id}");
            let parent = self.heap[place.saturating_sub(1) / 2];
            assert!(
                segments[parent as usize].earliest <= segment.earliest,
                "D1: segment {id} is before its parent {parent}"
            );
        }
        let with_memory = segments.iter().filter(|segment| segment.has_memory());
        assert_eq!(self.heap.len(), with_memory.count(), "D2");
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        fn the_first_is_the_earliest(changes: Vec<(u8, u32, bool)>) -> bool {
            let mut segments = Chunks::new(4);
            let mut heap = Deadlines::new(4);
            let mut inside = [false; 16];
            for _ in 0..16 {
                segments.push(Segment::<Vec<u8>>::default()).unwrap();
            }
            for (id, earliest, stays) in changes {
                let number = usize::from(id % 16);
                let id = SegmentId::from(id % 16);
                if !inside[number] {
                    segments[number].earliest = earliest;
                    segments[number].give_memory(Vec::with_capacity(1));
                    heap.push(&mut segments, id).unwrap();
                    inside[number] = true;
                } else if stays {
                    heap.set(&mut segments, id, earliest);
                } else {
                    heap.remove(&mut segments, id);
                    segments[number].take_memory();
                    inside[number] = false;
                }
                heap.check(&segments);
                let least = (0..16)
                    .filter(|number| inside[*number])
                    .map(|number| segments[number].earliest)
                    .min();
                let first = heap.first().map(|id| segments[id as usize].earliest);
                assert_eq!(first, least);
            }
            true
        }
    }
}

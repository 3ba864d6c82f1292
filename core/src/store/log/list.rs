//! Doubly linked lists of segments, or of other numbered elements.
//!
//! Removing an element from the middle takes as long as from an end. The links are in the elements, so a list
//! allocates nothing. An element is in at most one list for each [`Row`].
//!
//! - K1: Forwards and backwards, a list has the same elements.

use super::chunks::Chunks;

/// An element of lists.
pub(super) trait Linked {
    /// Its neighbours in the list of this kind.
    fn links(&mut self, row: Row) -> &mut Links;

    /// As [`links`](Self::links), for reading.
    #[cfg(any(test, feature = "verify"))]
    fn links_of(&self, row: Row) -> Links;
}

/// The pair of an element's links that a list uses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Row {
    /// The queues, and the spare and unused segments. The only one of other elements.
    Queue,
    /// Segments with about the same share of slack.
    Slack,
}

/// The neighbours of an element in one list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    older: Option<u32>,
    newer: Option<u32>,
}

/// A list of elements, from the oldest to the newest.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    row: Row,
    oldest: Option<u32>,
    newest: Option<u32>,
    len: usize,
}

impl List {
    pub(super) const fn new(row: Row) -> Self {
        Self {
            row,
            oldest: None,
            newest: None,
            len: 0,
        }
    }

    pub(super) const fn oldest(&self) -> Option<u32> {
        self.oldest
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Appends an element that is in no list of this kind as the newest.
    pub(super) fn push<T: Linked>(&mut self, elements: &mut Chunks<T>, id: u32) {
        let older = self.newest.replace(id);
        match older {
            Some(older) => elements[older as usize].links(self.row).newer = Some(id),
            None => self.oldest = Some(id),
        }
        *elements[id as usize].links(self.row) = Links { older, newer: None };
        self.len += 1;
    }

    /// Removes an element of this list.
    pub(super) fn unlink<T: Linked>(&mut self, elements: &mut Chunks<T>, id: u32) {
        let Links { older, newer } = core::mem::take(elements[id as usize].links(self.row));
        match older {
            Some(older) => elements[older as usize].links(self.row).newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => elements[newer as usize].links(self.row).older = older,
            None => self.newest = older,
        }
        self.len -= 1;
    }

    /// Appends all of `other` in constant time.
    pub(super) fn append<T: Linked>(&mut self, elements: &mut Chunks<T>, other: &mut Self) {
        let appended = core::mem::replace(other, Self::new(other.row));
        let Some(first) = appended.oldest else {
            return;
        };
        match self.newest {
            Some(newest) => {
                elements[newest as usize].links(self.row).newer = Some(first);
                elements[first as usize].links(self.row).older = Some(newest);
            }
            None => self.oldest = Some(first),
        }
        self.newest = appended.newest;
        self.len += appended.len;
    }

    /// All elements, from the oldest on, asserting K1.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn iter<'a, T: Linked>(
        &'a self,
        elements: &'a Chunks<T>,
    ) -> impl Iterator<Item = u32> + 'a {
        let mut before = None;
        let mut next = self.oldest;
        let mut count = 0;
        core::iter::from_fn(move || {
            let Some(id) = next else {
                assert_eq!(self.newest, before, "K1: the newest is not the last");
                assert_eq!(self.len, count, "K1: the length");
                return None;
            };
            let links = elements[id as usize].links_of(self.row);
            assert_eq!(links.older, before, "K1: the row differs by direction");
            count += 1;
            (before, next) = (Some(id), links.newer);
            Some(id)
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::segment::Segment;
    use super::*;

    fn segments() -> Chunks<Segment<Vec<u8>>> {
        let mut segments = Chunks::new(4);
        for _ in 0..6 {
            segments.push(Segment::default()).unwrap();
        }
        segments
    }

    #[test]
    fn a_segment_leaves_from_anywhere() {
        let mut segments = segments();
        let mut list = List::new(Row::Queue);
        for id in 0..5 {
            list.push(&mut segments, id);
        }
        for (unlinked, left) in [(2, &[0, 1, 3, 4][..]), (0, &[1, 3, 4]), (4, &[1, 3])] {
            list.unlink(&mut segments, unlinked);
            assert_eq!(list.iter(&segments).collect::<Vec<_>>(), left);
        }
    }

    #[test]
    fn a_list_goes_behind_another_at_once() {
        let mut segments = segments();
        let (mut one, mut two) = (List::new(Row::Queue), List::new(Row::Queue));
        for id in 0..3 {
            one.push(&mut segments, id);
            two.push(&mut segments, id + 3);
        }
        one.append(&mut segments, &mut two);
        assert_eq!(one.iter(&segments).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert_eq!((one.len(), two.len()), (6, 0));
        two.append(&mut segments, &mut one);
        assert_eq!(two.oldest(), Some(0));
        assert_eq!(two.iter(&segments).count(), 6);
    }

    #[test]
    fn a_segment_is_in_a_list_of_each_row() {
        let mut segments = segments();
        let (mut one, mut two) = (List::new(Row::Queue), List::new(Row::Slack));
        for id in 0..3 {
            one.push(&mut segments, id);
            two.push(&mut segments, 2 - id);
        }
        one.unlink(&mut segments, 1);
        assert_eq!(two.iter(&segments).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(one.iter(&segments).collect::<Vec<_>>(), [0, 2]);
    }
}

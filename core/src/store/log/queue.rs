//! The names of the queues.

/// Which queue a segment is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Queue {
    /// New items.
    Small,
    /// Items that were hit, or came again.
    Main,
    /// Locked items that an end of another queue has come across: they are not in the way there.
    Pinned,
    /// What a flush has left behind. No item in it is there any more, but for locked ones.
    Flushed,
}

impl Queue {
    #[cfg(any(test, feature = "verify"))]
    pub(super) const ALL: [Self; 4] = [Self::Small, Self::Main, Self::Pinned, Self::Flushed];
}

//! The names of the queues.

/// The queue of a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Queue {
    /// New items.
    Small,
    /// Items that were hit, or that were stored again soon after eviction.
    Main,
    /// Records that are not evicted with their segment: those of huge values, and of locked items met at the end of
    /// another queue, which they no longer obstruct.
    Pinned,
    /// Flushed segments. Only their locked items are still present.
    Flushed,
}

impl Queue {
    #[cfg(any(test, feature = "verify"))]
    pub(super) const ALL: [Self; 4] = [Self::Small, Self::Main, Self::Pinned, Self::Flushed];
}

//! What has come about, so that the comparison is about something.

/// How often the policy has had something to choose.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Choices {
    /// Items that went from the small queue.
    pub unasked: u64,
    /// Items that went on into the main one.
    pub promoted: u64,
    /// Items that were hit and went from the small queue all the same, since room was short.
    pub crowded: u64,
    /// Items that went another round.
    pub again: u64,
    /// Items that went from the main queue.
    pub from_main: u64,
    /// Segments after which an item needed more hits.
    pub raised: u64,
    /// Locked items that were passed over.
    pub passed: u64,
    /// Segments that were pinned whole.
    pub pinned_whole: u64,
    /// Items that found no segment free, and were carried into another queue than theirs.
    pub elsewhere: u64,
    /// Items that came again, and were known.
    pub known: u64,
    /// Segments that were emptied since they were slack.
    pub slack: u64,
    /// Those of them whose items had been locked.
    pub slack_pinned: u64,
    /// Those of them, half slack or more, that a crawl has begun with.
    pub slack_in_crawl: u64,
    /// Items that were carried out of slack segments.
    pub carried: u64,
    /// Segments that were swept.
    pub swept: u64,
    /// Those of them in which little had expired.
    pub swept_for_little: u64,
    /// Expired items that a sweep came by.
    pub expired_in_sweep: u64,
    /// Expired items that were come by when their segment was emptied.
    pub expired_in_drain: u64,
    /// Times that all that flushes had left behind was swept.
    pub flushed: u64,
    /// Items with a large value that went.
    pub large: u64,
    /// Items that were written anew, since another value did not fit in the place of theirs.
    pub replaced: u64,
    /// Those of them that were carried out of the way before.
    pub in_hand: u64,
    /// Items that stayed where they were with an earlier deadline.
    pub sooner: u64,
}

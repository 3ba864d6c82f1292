//! How often the fates of items were judged, and their counters: a run that has not seen them means
//! nothing.

macro_rules! gone {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each fate befell an item.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct Gone {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Gone {
            /// Adds the counts of another.
            pub const fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Each with its name.
            #[must_use]
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

gone! {
    /// Items were reclaimed.
    reclaimed,
    /// Of those, the ones that were never fetched.
    unfetched,
    /// Of those, went with the lock that had kept them.
    with_lock,
    /// Requests found an item expired.
    found_expired,
    /// Gets asked for flushed items, and the store remembered the flush.
    found_flushed,
    /// Items went with a crawl, and as many were counted.
    crawled,
    /// A crawl that looks at all has looked at all.
    crawled_all,
    /// Of evicted items, some were counted as used.
    active,
    /// All gauges were shown.
    shown,
    /// The store had expired items when the counts were shown.
    shown_expired,
    /// There were locked items when they were shown.
    shown_locked,
    /// The last eviction was shown.
    shown_eviction,
    /// The longest that an item was not asked for was shown, and was not 0.
    shown_oldest,
    /// Wins that are bound were shown.
    shown_wins,
}

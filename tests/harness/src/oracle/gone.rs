//! How often it was judged what became of items, and what was counted of it: what a run must have seen to mean anything.

macro_rules! gone {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often what has happened to items.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct Gone {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Gone {
            /// Adds what another has seen.
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
    /// Of those, nobody had fetched.
    unfetched,
    /// Of those, went with the lock that had kept them.
    with_lock,
    /// Requests found an item expired.
    found_expired,
    /// Gets came for what was flushed, and it was known.
    found_flushed,
    /// Items went with a crawl, and as many were counted.
    crawled,
    /// A crawl that looks at all has looked at all.
    crawled_all,
    /// Of evicted items, some were counted as used.
    active,
    /// All gauges were shown.
    shown,
    /// There were items that are there for nobody when they were shown.
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

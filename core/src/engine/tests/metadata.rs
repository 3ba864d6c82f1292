//! The metadata of locks: which grant has which, where it is shown, and what it takes.

use alloc::string::String;

use latchd_protocol::command::{Acquire, Lease, LockMetadata, Mode, Release, Wait};
use latchd_protocol::reply::LockInfo;

use super::*;

const C: Owner = Owner::from_number(3);

/// The bytes of a lock's metadata besides itself.
const METADATA_BYTES: usize = 96;

/// `ml <name> M<metadata>`.
fn with<'a>(name: &'a str, metadata: &'a str) -> Acquire<'a> {
    Acquire {
        metadata: LockMetadata::new(metadata.as_bytes()),
        ..Acquire::new(key(name))
    }
}

fn shared(acquire: Acquire<'_>) -> Acquire<'_> {
    let mode = Mode::Shared { max_sharers: None };
    Acquire { mode, ..acquire }
}

fn waiting(acquire: Acquire<'_>, ms: u64) -> Acquire<'_> {
    let wait = Wait::UpTo { ms };
    Acquire { wait, ..acquire }
}

fn leased(acquire: Acquire<'_>, ms: u64) -> Acquire<'_> {
    let lease = Some(Lease::For { ms });
    Acquire { lease, ..acquire }
}

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.event(Event::Opened(C));
    bench
}

impl Bench {
    fn acquire<'a>(&'a mut self, owner: Owner, acquire: Acquire<'a>) -> Reply<'a> {
        self.ask(owner, ItemCommand::Acquire(acquire))
    }

    fn is_granted(&mut self, owner: Owner, acquire: Acquire<'_>) {
        let reply = self.acquire(owner, acquire);
        assert!(matches!(reply, Reply::Granted(_)), "{reply:?}");
    }

    fn frees(&mut self, owner: Owner, name: &str) {
        let release = ItemCommand::Release(Release::new(key(name)));
        assert_eq!(self.ask(owner, release), Reply::Unlocked);
        self.core.check();
    }

    /// The metadata of a lock that is held, as the request of a third party shows it.
    fn metadata(&mut self, name: &str) -> Option<String> {
        let Reply::Contended(seen) = self.acquire(C, Acquire::new(key(name))) else {
            panic!("it is held");
        };
        text(seen)
    }

    fn table_bytes(&self) -> usize {
        self.core.check();
        self.core.locks().table_bytes() + self.core.waits().table_bytes()
    }
}

fn text(seen: LockInfo<'_>) -> Option<String> {
    let metadata = seen.metadata?.to_vec();
    Some(String::from_utf8(metadata).unwrap())
}

#[test]
fn a_lock_has_the_metadata_of_its_request() {
    let mut bench = bench();
    bench.is_granted(A, with("k", "job 7"));
    assert_eq!(bench.metadata("k").as_deref(), Some("job 7"));
    let Reply::WouldDeadlock(seen) = bench.acquire(A, waiting(Acquire::new(key("k")), 9)) else {
        panic!("it waits for itself");
    };
    assert_eq!(text(seen).as_deref(), Some("job 7"));
    // A request that is refused changes nothing.
    let Reply::Contended(_) = bench.acquire(B, with("k", "other")) else {
        panic!("it is held");
    };
    assert_eq!(bench.metadata("k").as_deref(), Some("job 7"));
    bench.frees(A, "k");
    bench.is_granted(A, Acquire::new(key("k")));
    assert_eq!(bench.metadata("k"), None);
}

#[test]
fn a_look_at_the_item_shows_it() {
    let mut bench = bench();
    bench.set(A, "k", "1");
    bench.is_granted(A, with("k", "job 7"));
    let look = Get {
        bump: false,
        ..Get::new(key("k"))
    };
    let seen = bench.hit(B, look).lock.expect("it is held");
    assert_eq!(text(seen).as_deref(), Some("job 7"));
    // Other gets have no use for it.
    let seen = bench.hit(B, meta_get("k")).lock.expect("it is held");
    assert_eq!(seen.metadata, None);
    bench.is_granted(A, with("other", "job 8"));
    bench.frees(A, "k");
    bench.ask(A, lock("k"));
    let seen = bench.hit(B, look).lock.expect("it is held");
    assert_eq!(seen.metadata, None);
}

#[test]
fn a_renewal_keeps_or_replaces_it() {
    let mut bench = bench();
    bench.is_granted(A, leased(with("k", "first"), 100));
    bench.is_granted(A, leased(Acquire::new(key("k")), 100));
    assert_eq!(bench.metadata("k").as_deref(), Some("first"));
    bench.is_granted(A, leased(with("k", "the second"), 100));
    assert_eq!(bench.metadata("k").as_deref(), Some("the second"));
    let off = Acquire {
        lease: Some(Lease::Off),
        ..with("k", "3")
    };
    bench.is_granted(A, off);
    assert_eq!(bench.metadata("k").as_deref(), Some("3"));
    bench.is_granted(A, leased(with("k", "4"), 100));
    bench.now_ms = 101;
    bench.is_granted(B, Acquire::new(key("k")));
    assert_eq!(bench.metadata("k"), None);
    assert_eq!(bench.core.locks().len(), 1);
}

#[test]
fn each_share_has_its_own() {
    let mut bench = bench();
    bench.is_granted(A, shared(with("k", "a")));
    bench.is_granted(B, shared(with("k", "bb")));
    assert_eq!(bench.metadata("k").as_deref(), Some("a"));
    bench.is_granted(B, leased(shared(with("k", "b")), 100));
    bench.frees(A, "k");
    assert_eq!(bench.metadata("k").as_deref(), Some("b"));
    bench.now_ms = 101;
    bench.event(Event::Tick);
    assert_eq!(bench.table_bytes(), 0);
}

#[test]
fn a_handed_over_lock_has_that_of_its_waiter() {
    let mut bench = bench();
    bench.is_granted(A, with("k", "holder"));
    let wait = waiting(with("k", "waiter"), 1_000);
    assert_eq!(bench.acquire(B, wait), Reply::Waits);
    assert_eq!(bench.metadata("k").as_deref(), Some("holder"));
    bench.frees(A, "k");
    assert_eq!(bench.metadata("k").as_deref(), Some("waiter"));
    // The same request is executed again when its wait is over.
    bench.is_granted(B, with("k", "waiter"));
    assert_eq!(bench.metadata("k").as_deref(), Some("waiter"));
    // A waiter without metadata gets none.
    assert_eq!(
        bench.acquire(A, waiting(Acquire::new(key("k")), 1_000)),
        Reply::Waits
    );
    bench.close(B);
    assert_eq!(bench.metadata("k"), None);
}

#[test]
fn a_wait_that_ends_leaves_nothing() {
    let mut bench = bench();
    bench.is_granted(A, Acquire::new(key("k")));
    let before = bench.table_bytes();
    for owner in [B, C] {
        let wait = waiting(with("k", "waiter"), 100);
        assert_eq!(bench.acquire(owner, wait), Reply::Waits);
    }
    bench.close(B);
    bench.now_ms = 101;
    bench.event(Event::Tick);
    assert_eq!(bench.table_bytes(), before);
}

#[test]
fn a_session_keeps_or_replaces_it() {
    let session = Owner::of_session(7);
    let mut bench = bench();
    bench.event(Event::Opened(session));
    bench.is_granted(session, with("own", "first"));
    bench.is_granted(session, Acquire::new(key("own")));
    assert_eq!(bench.metadata("own").as_deref(), Some("first"));
    bench.is_granted(session, with("own", "second"));
    assert_eq!(bench.metadata("own").as_deref(), Some("second"));
    // The same wait again keeps its place.
    bench.is_granted(A, Acquire::new(key("k")));
    for wait in [
        with("k", "first"),
        with("k", "the second"),
        Acquire::new(key("k")),
    ] {
        assert_eq!(bench.acquire(session, waiting(wait, 1_000)), Reply::Waits);
        bench.core.check();
    }
    bench.frees(A, "k");
    assert_eq!(bench.metadata("k").as_deref(), Some("the second"));
    bench.is_granted(session, with("k", "third"));
    assert_eq!(bench.metadata("k").as_deref(), Some("third"));
}

#[test]
fn it_counts_for_the_tables_and_the_owner() {
    let mut bench = bench();
    bench.is_granted(A, Acquire::new(key("k")));
    let (plain, held) = (bench.table_bytes(), bench.core.locks().held_by(A));
    bench.is_granted(B, with("l", "0123456789"));
    let more = METADATA_BYTES + 10;
    assert_eq!(bench.table_bytes(), 2 * plain + more);
    let with_metadata = bench.core.locks().held_by(B).unwrap();
    assert_eq!(with_metadata.bytes, held.unwrap().bytes + more);
    bench.is_granted(B, leased(with("l", "01234"), 100));
    assert_eq!(bench.table_bytes(), 2 * plain + METADATA_BYTES + 5);
    bench.now_ms = 101;
    bench.event(Event::Tick);
    assert_eq!(bench.table_bytes(), plain);
    // One that has ended with its owner counts until its key is updated.
    bench.is_granted(B, with("m", "01234"));
    bench.close(B);
    bench.event(Event::Tick);
    assert_eq!(bench.table_bytes(), plain);
}

#[test]
fn without_memory_for_it_nothing_changes() {
    let mut bench = bench();
    let long = "m".repeat(250);
    bench.is_granted(A, leased(with("k", "short"), 100));
    let held = bench.core.locks().held_by(A).unwrap().bytes;
    let full = Reply::Refused(Refusal::TooManyLocks);
    bench
        .core
        .change_limits(|limits| limits.lock_bytes_per_connection_max = held + 244);
    assert_eq!(bench.acquire(A, leased(with("k", &long), 1_000)), full);
    let table_bytes = bench.table_bytes();
    bench.core.change_limits(|limits| {
        limits.lock_bytes_per_connection_max = usize::MAX;
        limits.lock_table_bytes_max = table_bytes + 244;
    });
    assert_eq!(bench.acquire(A, leased(with("k", &long), 1_000)), full);
    assert_eq!(bench.metadata("k").as_deref(), Some("short"));
    bench
        .core
        .change_limits(|limits| limits.lock_table_bytes_max += 1);
    bench.is_granted(A, leased(with("k", &long), 1_000));
    assert_eq!(bench.metadata("k"), Some(long));
    // Shorter metadata is replaced without more memory; the lease was not renewed before.
    bench.is_granted(A, leased(with("k", "s"), 100));
    bench.now_ms = 101;
    bench.event(Event::Tick);
    assert_eq!(bench.table_bytes(), 0);
    // A lock that its metadata makes too large is not acquired.
    bench
        .core
        .change_limits(|limits| limits.lock_table_bytes_max = 300);
    assert_eq!(bench.acquire(A, with("k", "short")), full);
    bench.is_granted(A, Acquire::new(key("k")));
}

#[test]
fn stats_locks_shows_it_as_in_a_url() {
    let mut bench = bench();
    bench.is_granted(A, with("k", "job 7,a=b%"));
    let line = &bench.core.lock_lines()[0];
    assert!(
        line.value
            .ends_with(",holders=1,metadata=job%207%2Ca%3Db%25"),
        "{}",
        line.value
    );
}

//! The memory of the lock tables of several shards, and that of the items (L11, and D3 of the core).

use super::*;

/// Long names in a shard, which no other client uses.
fn long_names<'a>(
    shards: &'a Shards,
    shard: usize,
    client: &ShardSession,
) -> impl Iterator<Item = String> + use<'a> {
    let owner = client.owner.number();
    let names = (0..).map(move |number| format!("{number:_>200}of{owner}"));
    names.filter(move |name| shards.shard_of(key(name)) == shard)
}

fn table_bytes(shards: &Shards) -> usize {
    shards.manage(|manager| manager.table_bytes())
}

/// Acquires up to `count` locks of missing keys in a shard. Returns the number that the tables have memory for.
fn lock_many(shards: &Shards, shard: usize, client: &mut ShardSession, count: usize) -> usize {
    let names = long_names(shards, shard, client).take(count);
    names
        .take_while(|name| acquire(shards, client, name))
        .count()
}

/// L11 and D3: one shard may use the whole lock memory, all shards together use no more, and the items of every shard leave
/// memory free for it. Released memory is available to all shards.
#[test]
fn lock_memory_is_one_budget_over_all_shards() {
    let limits = Limits::new(16 << 20, 1 << 10);
    let shards = Shards::new(8, Config::new(limits, 0), nobody_waits());
    let mut client = session(1);
    for number in 0..20_000 {
        let name = format!("item{number}");
        store(&shards, &mut client, &name, &[b'v'; 1 << 10]);
    }
    let item_bytes = || usize::try_from(shards.stats(NOW).gauges.bytes).unwrap();
    let full = item_bytes();
    let mut holders: Vec<_> = (2..8).map(session).collect();
    for holder in &mut holders {
        lock_many(&shards, 0, holder, usize::MAX);
    }
    let lock_bytes = table_bytes(&shards);
    let max = limits.lock_table_bytes_max;
    assert!(lock_bytes > max - 4_096 && lock_bytes <= max);
    let left = item_bytes();
    assert!(full - left > lock_bytes / 2, "{full}, {left}");
    assert!(left + lock_bytes < limits.memory_bytes_max);
    assert_eq!(lock_many(&shards, 5, &mut client, 1), 0);
    for holder in &mut holders {
        ask(&shards, holder, GlobalCommand::UnlockAll, |_| ());
    }
    while shards.tick(NOW, 0) {}
    assert_eq!(lock_many(&shards, 5, &mut client, 1), 1);
}

/// D3: Half of a shard is pinned. The tables leave its other half alone, also where they are another shard's.
#[test]
fn no_table_grows_beyond_the_memory_of_any_shard() {
    let mut limits = Limits::new(4 << 20, 1 << 10);
    limits.lock_table_bytes_max = 4 << 20;
    limits.lock_bytes_per_connection_max = 4 << 20;
    let shards = Shards::new(2, Config::new(limits, 0), nobody_waits());
    let mut pins = session(1);
    for name in in_shard(&shards, 1) {
        store(&shards, &mut pins, &name, &[b'v'; 1 << 10]);
        if !lock(&shards, &mut pins, &name) {
            break;
        }
    }
    let taken = lock_many(&shards, 0, &mut session(2), 100_000);
    let bytes = table_bytes(&shards);
    assert!(taken > 1_000 && bytes < 5 << 19, "{taken}, {bytes}");
    shards.close(NOW, pins);
    while shards.tick(NOW, 0) {}
    shards.tick(NOW, 0);
    assert_eq!(lock_many(&shards, 0, &mut session(3), 500), 500);
}

/// L11: The tables of all shards are within a new limit together, or it is refused; released memory does not count.
#[test]
fn lower_limit_has_memory_for_all_tables() {
    let shards = Shards::new(
        2,
        Config::new(Limits::new(64 << 20, 1 << 10), 0),
        nobody_waits(),
    );
    let mut clients = [2, 3, 4, 5].map(session);
    for (shard, client) in [0, 0, 1, 1].into_iter().zip(&mut clients) {
        assert_eq!(lock_many(&shards, shard, client, 400), 400);
    }
    let all_bytes = table_bytes(&shards);
    // The tables may take a quarter of the memory: three quarters of the present tables.
    let limit = 3 * all_bytes;
    assert_eq!(shards.limit_memory(NOW, limit), Err(MemoryRefused::Locked));
    for client in &mut clients[..2] {
        for name in long_names(&shards, 0, client).take(400) {
            let release = ItemCommand::Release(Release::new(key(&name)));
            ask(&shards, client, release, |_| ());
        }
    }
    assert_eq!(shards.limit_memory(NOW, limit), Ok(()));
    assert_eq!(table_bytes(&shards), all_bytes / 2);
}

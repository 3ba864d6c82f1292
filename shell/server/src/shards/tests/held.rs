//! The locks and wins of one owner, over several shards (D4).

use latchd_core::reply::Refusal;

use super::*;

#[test]
fn owner_without_a_share_is_refused() {
    let mut limits = Limits::default();
    limits.locks_per_connection_max = 0;
    limits.bound_wins_per_connection_max = 0;
    let shards = Shards::new(4, limits, 0, None, nobody_waits());
    let bound = Get {
        steps: TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 30 })),
        recaches: true,
        binds: true,
        ..Get::new(key("key0"))
    };
    let acquire = ItemCommand::Acquire(Acquire::new(key("key0")));
    for (number, command) in [(1, acquire), (2, ItemCommand::Get(bound))] {
        ask(&shards, &mut session(number), command, |reply| {
            assert_eq!(reply, &Reply::Refused(Refusal::TooManyLocks));
        });
    }
}

//! The health check: every worker responds, and the clock's ticks reach the items.
//!
//! A worker that hangs does not read its mailbox. Nor does one that waits for a hanging shard. The check
//! sends it a message that it reads between the turns of clients, so the check does not delay them.

use std::time::Duration;

use async_io::Timer;
use smol::future::FutureExt;

use crate::clients::mailbox::Message;
use crate::server_state::ServerState;

/// The limit of a reply: a turn takes a millisecond, a tick comes every 200.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Whether every worker replies in time, and the last tick is recent.
pub(crate) async fn is_well(shared: &ServerState) -> bool {
    let (sender, replies) = smol::channel::bounded(shared.mailboxes.len());
    for mailbox in &*shared.mailboxes {
        mailbox.post(Message::Echo(sender.clone()));
    }
    drop(sender);
    let everybody = async {
        for _ in &*shared.mailboxes {
            if replies.recv().await.is_err() {
                // The worker has ended, and dropped its mailbox.
                return false;
            }
        }
        true
    };
    let nobody = async {
        Timer::after(PATIENCE).await;
        false
    };
    let since_tick = shared.since_tick();
    everybody.or(nobody).await && since_tick < PATIENCE
}

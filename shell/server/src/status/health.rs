//! Whether the server is well: every worker hears, and time passes for the items.
//!
//! A worker that hangs does not read its mail; one that waits for items that hang does not either. It is
//! asked as clients are, between their turns, so that an answer is worth something, and costs them
//! nothing.

use std::time::Duration;

use async_io::Timer;
use smol::future::FutureExt;

use crate::clients::mailbox::Message;
use crate::shared::Shared;

/// How long an answer may take: a turn takes a millisecond, a tick comes every 200.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Whether every worker answers in time, and the last tick is not long ago.
pub(crate) async fn is_well(shared: &Shared) -> bool {
    let (tell, told) = smol::channel::bounded(shared.mailboxes.len());
    for mailbox in &*shared.mailboxes {
        mailbox.post(Message::Echo(tell.clone()));
    }
    drop(tell);
    let everybody = async {
        for _ in &*shared.mailboxes {
            if told.recv().await.is_err() {
                // A worker has ended and its mail with it.
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

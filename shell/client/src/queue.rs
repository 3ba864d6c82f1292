//! Waits for a leased lock in the server's queue, as for a connection-bound one: the lock of the key stands
//! for the lease's place in the queue.

use async_channel::{Receiver, RecvError};
use latchd_client_core::{BoundNews, Failure};

use super::clock;
use super::drive::{Heard, drive};
use super::lock::{KeptOver, LockCall, LockTask};

impl LockTask {
    /// Waits for the lock of the key on a connection of its own, and continues on that one.
    ///
    /// # Errors
    /// The caller is gone. The connection is closed, which also ends its place in the queue.
    pub(super) async fn wait_in_queue(
        &mut self,
        calls: &Receiver<LockCall>,
    ) -> Result<(), RecvError> {
        let Some(mut bound) = self.leases.place(clock::now()) else {
            unreachable!("only the obtain of one key queues");
        };
        let mut driver = self.pool.driver().await;
        driver.lend(&mut bound);
        bound.knows(driver.lock_support());
        bound.obtain(clock::now());
        let news = match drive(&mut driver, &mut bound, calls.recv(), |_| {}).await {
            Heard::News(news) => news,
            Heard::Call(Err(gone)) => return Err(gone),
            Heard::Call(Ok(_)) => unreachable!("no caller has the lock yet"),
        };
        driver.keep_lock_support(bound.words());
        let now = clock::now();
        match news {
            BoundNews::Obtained => {
                driver.lend(&mut self.leases);
                self.leases.granted(now, bound.fence());
                self.line = KeptOver::Own(driver);
            }
            BoundNews::NotObtained(why) => {
                self.leases.not_granted(why);
                self.pool.give_back(driver);
            }
            BoundNews::Failed(failure) => {
                if let Failure::Unsupported(_) = failure {
                    self.pool.lacks_queue();
                    self.pool.give_back(driver);
                }
                self.leases.unqueued(now, &failure);
            }
            BoundNews::Read(_)
            | BoundNews::Written
            | BoundNews::Checked
            | BoundNews::Refreshed
            | BoundNews::Undone(_)
            | BoundNews::Released
            | BoundNews::NotHeld
            | BoundNews::Lost(_)
            | BoundNews::SessionEnded => unreachable!("nothing but the lock was asked for"),
        }
        Ok(())
    }

    /// Returns the connection to the pool, if the server holds nothing of this lock on it.
    pub(super) fn give_back(self) {
        if let (KeptOver::Own(driver), true) = (self.line, self.is_free) {
            self.pool.give_back(driver);
        }
    }
}

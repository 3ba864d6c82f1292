//! The row without an attack (the delays of the machine itself), and a crowd of honest clients.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::super::client::Client;
use super::super::{Attack, Outcome, Stage};

/// How many busy clients there are.
const CROWD: usize = 4;
/// How many requests each has under way.
const UNDER_WAY: usize = 100;

/// No attack runs.
pub const QUIET: Attack = Attack {
    name: "quiet",
    about: "no attack",
    has_peer: true,
    play: |stage| {
        let target = stage.start_large()?;
        let (seen, ()) = stage.watch(target.address, || {
            thread::sleep(stage.setting.span);
            Ok(())
        })?;
        let mut outcome = Outcome::seen(seen);
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// Busy clients send as many requests as they can, and read the answers.
pub(super) const BUSY: Attack = Attack {
    name: "busy",
    about: "4 clients pipeline gets, 100 at a time",
    has_peer: true,
    play: busy,
};

fn busy(stage: &Stage<'_>) -> io::Result<Outcome> {
    let target = stage.start_large()?;
    let is_over = AtomicBool::new(false);
    let (seen, ()) = stage.watch(target.address, || {
        thread::scope(|scope| {
            let crowd: Vec<_> = (0..CROWD)
                .map(|_| {
                    scope.spawn(|| {
                        let mut client = Client::connect(target.address)?;
                        while !is_over.load(Ordering::Relaxed) {
                            client.pipeline(UNDER_WAY, "HD", |_, bytes| {
                                bytes.extend_from_slice(b"mg innocent\r\n");
                            })?;
                        }
                        io::Result::Ok(())
                    })
                })
                .collect();
            thread::sleep(stage.setting.span);
            is_over.store(true, Ordering::Relaxed);
            crowd
                .into_iter()
                .try_for_each(|client| client.join().expect("it does not panic"))
        })
    })?;
    let mut outcome = Outcome::seen(seen);
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}

//! Runs several jobs at a time.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, Scope};

/// How many values may be built ahead.
const BUILT_MAX: usize = 1;

/// Builds a value for each of some inputs, in their order and on a thread of its own: while one is
/// used, the next is built. Dropping the returned value ends it.
pub(crate) fn ahead<'scope, T, U>(
    scope: &'scope Scope<'scope, '_>,
    things: impl IntoIterator<Item = T> + Send + 'scope,
    build: impl Fn(T) -> U + Send + 'scope,
) -> Receiver<U>
where
    U: Send + 'scope,
{
    let (sender, receiver) = mpsc::sync_channel(BUILT_MAX);
    scope.spawn(move || {
        for thing in things {
            if sender.send(build(thing)).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Runs a job for each of some inputs, on `each` threads per processor.
///
/// # Errors
/// The first error.
pub(crate) fn in_parallel<T: Sync>(
    each: usize,
    things: &[T],
    act: impl Fn(usize, &T) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let next = Mutex::new(things.iter().enumerate());
    let threads = thread::available_parallelism().map_or(1, usize::from) * each;
    thread::scope(|scope| {
        let work = || {
            loop {
                let thing = next.lock().expect("no panic poisons it").next();
                let Some((place, thing)) = thing else {
                    return Ok(());
                };
                act(place, thing)?;
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no panic poisons it"))
    })
}

//! Several things at a time.

use std::sync::Mutex;
use std::thread;

/// Does something with each of some things, on as many threads as there are processors.
///
/// # Errors
/// What was said first of those that went wrong.
pub(crate) fn in_parallel<T: Sync>(
    things: &[T],
    act: impl Fn(usize, &T) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let next = Mutex::new(things.iter().enumerate());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let work = || {
            loop {
                let thing = next.lock().expect("nobody panics with it").next();
                let Some((place, thing)) = thing else {
                    return Ok(());
                };
                act(place, thing)?;
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("nobody panics"))
    })
}

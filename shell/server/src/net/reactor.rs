//! Runs a future on a thread that waits in `poll` for a few descriptors, and for whatever else wakes the future.
//!
//! smol's reactor serves all threads of a process: a wait there takes seven more system calls, and wakes a second thread. A
//! thread that waits for clients all the time has this one for itself. Timers and channels wake it as any waker does.
//!
//! - R1: A wake-up is never lost. A waker notes it before it looks whether the thread sleeps; the thread notes that it sleeps before
//!   it looks for wake-ups.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::sync;

/// The reactor of one thread.
pub(crate) struct Reactor {
    thread: Arc<Thread>,
    /// A place for each descriptor.
    places: RefCell<Vec<Place>>,
}

/// What a task knows of a descriptor.
#[derive(Default)]
struct Place {
    /// The task that waits for it.
    waiting: Option<Waker>,
    is_ready: bool,
}

struct Thread {
    signal: sync::Waker,
    is_woken: AtomicBool,
    sleeps: AtomicBool,
}

impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) && self.sleeps.load(Ordering::SeqCst) {
            self.signal.wake();
        }
    }
}

impl Reactor {
    /// A reactor for so many descriptors.
    ///
    /// # Errors
    /// The kernel's, if there is no descriptor left.
    pub(crate) fn new(descriptors: usize) -> io::Result<Self> {
        let thread = Thread {
            signal: sync::Waker::new()?,
            is_woken: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
        };
        Ok(Self {
            thread: Arc::new(thread),
            places: RefCell::new((0..descriptors).map(|_| Place::default()).collect()),
        })
    }

    /// Waits until the descriptor at this place can be read, or has failed.
    pub(crate) async fn readable(&self, place: usize) {
        poll_fn(|context| {
            let mut places = self.places.borrow_mut();
            let place = places.get_mut(place).expect("each descriptor has a place");
            if std::mem::take(&mut place.is_ready) {
                place.waiting = None;
                return Poll::Ready(());
            }
            place.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Runs `future`, which waits for these descriptors by their places.
    ///
    /// # Errors
    /// The kernel's, if it cannot wait.
    pub(crate) fn run<T>(
        &self,
        descriptors: &[BorrowedFd<'_>],
        future: impl Future<Output = T>,
    ) -> io::Result<T> {
        let waker = Waker::from(Arc::clone(&self.thread));
        let mut future = pin!(future);
        loop {
            self.thread.is_woken.store(false, Ordering::SeqCst);
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Ok(done);
            }
            self.wait(descriptors)?;
        }
    }

    /// Waits until a task is woken, or a descriptor that a task waits for is ready. Wakes that task.
    fn wait(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut places = self.places.borrow_mut();
        let waited: Vec<usize> = (0..places.len())
            .filter(|place| places[*place].waiting.is_some())
            .collect();
        let signal = self.thread.signal.as_fd();
        let mut fds = vec![PollFd::from_borrowed_fd(signal, PollFlags::IN)];
        fds.extend(
            waited
                .iter()
                .map(|place| PollFd::from_borrowed_fd(descriptors[*place], PollFlags::IN)),
        );
        self.thread.sleeps.store(true, Ordering::SeqCst);
        let polled = if self.thread.is_woken.load(Ordering::SeqCst) {
            Ok(0)
        } else {
            poll(&mut fds, None)
        };
        self.thread.sleeps.store(false, Ordering::SeqCst);
        match polled {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut is_ready = fds.iter().map(|fd| !fd.revents().is_empty());
        if is_ready.next() == Some(true) {
            self.thread.signal.clear();
        }
        for (place, _) in waited
            .iter()
            .zip(is_ready)
            .filter(|(_, is_ready)| *is_ready)
        {
            let place = &mut places[*place];
            place.is_ready = true;
            if let Some(task) = place.waiting.take() {
                task.wake();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use smol::channel::bounded;
    use smol::future::FutureExt;

    use super::*;

    /// Clients come one by one, each after the one before was served; then another thread closes a channel.
    #[test]
    fn a_thread_waits_for_descriptors_and_channels() {
        const CLIENTS: usize = 100;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = bounded::<()>(1);
        let clients = thread::spawn(move || {
            for _ in 0..CLIENTS {
                let mut client = TcpStream::connect(address).unwrap();
                assert_eq!(client.read(&mut [0]).unwrap(), 0);
            }
            drop(stop);
        });
        let reactor = Reactor::new(1).unwrap();
        let mut served = 0;
        let serving = async {
            loop {
                match listener.accept() {
                    Ok(_) => served += 1,
                    Err(_) => reactor.readable(0).await,
                }
            }
        };
        let stopping = async { stopped.recv().await.is_err() };
        let ended = reactor.run(&[listener.as_fd()], stopping.or(serving));
        assert!(ended.unwrap());
        clients.join().unwrap();
        assert_eq!(served, CLIENTS);
    }
}

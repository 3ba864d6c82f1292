//! Proves that the core and the client's machines need no standard library: this crate brings a panic handler of its own,
//! which the standard library would bring a second time, and an allocator of its own.
//!
//! Built by `.ci/run`; nothing is ever run.
#![no_std]

extern crate alloc;
// Linked as a whole.
extern crate latchd_client_core;

use core::alloc::{GlobalAlloc, Layout};
use core::time::Duration;

use latchd_core::{Action, Config, Instant, Output, Server};

struct NoMemory;

// SAFETY: it never gives memory, so there is none to give wrongly.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Everything a transport needs of the core, in one place, so that all of it is linked.
pub fn serve(input: &[u8], send: &mut impl FnMut(Output)) {
    let now = Instant::from_millis(0);
    let mut server = Server::new(Config::default());
    let conn = server.open(now);
    server.advance(now, Duration::from_secs(1_700_000_000));
    server.receive(now, conn, input);
    loop {
        match server.poll() {
            Action::Send(_, out) => send(out),
            Action::Read(_) | Action::Close(_) => {}
            Action::Wait(_) => break,
        }
    }
    server.close(now, conn);
}

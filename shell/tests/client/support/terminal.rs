//! A terminal in which a program runs, and a typist.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{DUE, eventually};

/// A program with a terminal of its own, and a typist.
pub(crate) struct Terminal {
    program: Child,
    keyboard: File,
    shown: Arc<Mutex<String>>,
    /// The end of the part of `shown` that was waited for.
    seen: usize,
}

impl Terminal {
    /// Runs a program. Its terminal is that of a new session if it is started by `setsid --ctty`.
    pub(crate) fn start(program: &mut Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        let program = program
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave)
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let shared = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut chunk = [0; 1024];
            while let Ok(length @ 1..) = screen.read(&mut chunk) {
                let text = String::from_utf8_lossy(&chunk[..length]);
                shared.lock().unwrap().push_str(&text);
            }
        });
        Self {
            program,
            keyboard,
            shown,
            seen: 0,
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the terminal shows this, behind the text that was waited for before.
    pub(crate) fn expect(&mut self, text: &str) {
        let started = Instant::now();
        loop {
            let shown = self.shown.lock().unwrap();
            if let Some(place) = shown[self.seen..].find(text) {
                self.seen += place + text.len();
                return;
            }
            assert!(
                started.elapsed() < DUE,
                "{text:?} is not shown: {:?}",
                &shown[self.seen..]
            );
            drop(shown);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All that has been shown.
    pub(crate) fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits for the program's end, and returns its exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        eventually(|| self.program.try_wait().unwrap()).code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

//! The program `latchd`: its library does everything.

use std::process::ExitCode;

fn main() -> ExitCode {
    latchd::main()
}

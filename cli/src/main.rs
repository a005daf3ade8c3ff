//! The program `alluvion`.

use std::process::ExitCode;

fn main() -> ExitCode {
    alluvion_cli::run()
}

//! `alluvion doctor`: what the machine can do, by trying it.

mod drivers;
mod finding;
mod host;
mod page;
mod probes;
mod report;
#[cfg(test)]
mod tests;
mod undo;

use std::io::{self, IsTerminal, Write};

use alluvion::{Machine, Sim};
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use page::Page;
use report::Report;

/// Tries what the machine can do for memory, and says what to do about what is missing.
///
/// Allocates from a pool, maps a page, exports one, captures a small graph, registers memory of the host; and gives
/// everything back. A machine without a GPU is no error: the report says what is missing.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    /// Which devices to examine; by default those of the driver that ALLUVION_DRIVER names, or of CUDA
    #[arg(long, value_enum)]
    driver: Option<Examined>,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  alluvion doctor                   the GPUs of this machine
  alluvion doctor --json > before   to compare later, or to send to somebody
  alluvion doctor --driver hip      the same GPUs of AMD, through HIP
  alluvion doctor --driver sim      a simulated GPU, to see what the program tries

Each line is one of
  ok       the feature was tried, and works
  note     a fact about the machine, neither good nor bad
  missing  the machine does not have the feature; the line below says what to do about it
  failed   the machine says that it has the feature, and the feature does not work

Exit codes: 0 nothing has failed, 1 something has, 2 the command line was not understood.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Examined {
    /// NVIDIA's GPUs, through the CUDA driver
    Cuda,
    /// NVIDIA's GPUs, through the CUDA runtime, libcudart
    Cudart,
    /// AMD's GPUs, through HIP: not run on hardware yet
    Hip,
    /// MetaX's GPUs, through MACA: not run on hardware yet
    Maca,
    /// A simulated GPU
    Sim,
}

impl Examined {
    fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Cudart => "cudart",
            Self::Hip => "hip",
            Self::Maca => "maca",
            Self::Sim => "sim",
        }
    }
}

impl Doctor {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let sim;
        let machine = match self.driver {
            None => Machine::of_environment(),
            Some(Examined::Cuda) => Machine::cuda(),
            Some(Examined::Cudart) => Machine::cudart(),
            Some(Examined::Hip) => Machine::hip(),
            Some(Examined::Maca) => Machine::maca(),
            Some(Examined::Sim) => {
                sim = Sim::new();
                Ok(sim.machine().clone())
            }
        };
        let asked =
            machine.as_ref().map_or_else(|_| self.asked(), |machine| machine.driver().name().to_owned());
        let report = Report::of(machine.as_ref(), &asked);
        self.print(&report).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Unread,
            _ => Failure::while_doing("writing the findings", error),
        })?;
        if report.has_failed() {
            return Err(Failure::Failed(
                "something that should work does not: see the lines that say so".to_owned(),
            ));
        }
        Ok(())
    }

    /// The name of the driver that was asked for, where there is none.
    fn asked(&self) -> String {
        match self.driver {
            None => {
                let named = std::env::var("ALLUVION_DRIVER").unwrap_or_default();
                if named.trim().is_empty() { "cuda".to_owned() } else { named.trim().to_owned() }
            }
            Some(examined) => examined.name().to_owned(),
        }
    }

    fn print(&self, report: &Report) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, report)?;
            writeln!(out)?;
        } else {
            let is_coloured = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
            write!(out, "{}", Page { report, is_coloured })?;
        }
        out.flush()
    }
}

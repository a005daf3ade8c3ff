//! A report for people to read.

use core::fmt::{self, Display};

use super::finding::{Finding, Verdict};
use super::report::Report;

/// A report as lines, with colours or without.
pub(super) struct Page<'r> {
    pub(super) report: &'r Report,
    pub(super) is_coloured: bool,
}

/// As wide as the longest name, and a little more.
const NAME_WIDTH: usize = 30;

impl Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { driver, other_drivers, host, devices } = self.report;
        match (driver.name, &driver.cuda, &driver.version) {
            (Some(name), Some(cuda), _) => writeln!(f, "driver  {name}, CUDA {cuda}")?,
            (Some(name), None, Some(version)) => writeln!(f, "driver  {name} {version}")?,
            _ => writeln!(f, "driver  none that works")?,
        }
        self.findings(f, &driver.findings)?;
        if !other_drivers.is_empty() {
            writeln!(f, "other drivers")?;
            self.findings(f, other_drivers)?;
        }
        if !host.is_empty() {
            writeln!(f, "host")?;
            self.findings(f, host)?;
        }
        for device in devices {
            writeln!(f, "gpu {}   {}", device.ordinal, device.about())?;
            self.findings(f, &device.findings)?;
        }
        if devices.is_empty() {
            writeln!(f, "No GPU was examined. `--driver sim` shows what there is to see.")?;
        }
        Ok(())
    }
}

impl Page<'_> {
    fn findings(&self, f: &mut fmt::Formatter<'_>, findings: &[Finding]) -> fmt::Result {
        for Finding { name, verdict, detail, advice } in findings {
            let (on, off) = if self.is_coloured { (colour(*verdict), "\x1b[0m") } else { ("", "") };
            writeln!(f, "  {on}{:<7}{off}  {name:<NAME_WIDTH$}  {detail}", verdict.word())?;
            if let Some(advice) = advice {
                writeln!(f, "           -> {advice}")?;
            }
        }
        Ok(())
    }
}

fn colour(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "\x1b[32m",
        Verdict::Note => "\x1b[36m",
        Verdict::Missing => "\x1b[33m",
        Verdict::Failed => "\x1b[31m",
    }
}

//! The stacks of layers that are measured: each a type of its own, as a user's would be who names it.

/// Evaluates an expression for each stack, with its name, outermost layer first, and the stack itself over a fresh `$source`.
macro_rules! each_layered {
    ($source:expr, |$name:ident, $stack:ident| $body:expr) => {{
        use alluvion::ResourceExt;
        use alluvion::adaptor::{Allowance, LogConfig};
        use alluvion::relief::Relief;

        /// Never reached: it is the count that is measured.
        const LIMIT: usize = 1 << 50;
        let log = || LogConfig::default().write_to(std::io::sink());
        let jobs = Allowance::new("jobs", LIMIT);
        $crate::workload::layered::each_layered!(@all $name, $stack, $body, [
            // Nothing, then a layer more each time.
            "none" => $source;
            "stats" => $source.stats();
            "stats | limiting" => $source.limiting(LIMIT).stats();
            "stats | tracking | limiting" => $source.limiting(LIMIT).tracking().stats();
            "stats | tracking | limiting | failure-callback" =>
                $source.failure_callback(|_| Relief::None).limiting(LIMIT).tracking().stats();
            "logging | stats | tracking | limiting | failure-callback" =>
                $source.failure_callback(|_| Relief::None).limiting(LIMIT).tracking().stats().logging(log()?);
            // Each alone.
            "limiting" => $source.limiting(LIMIT);
            "budget, two levels" => $source.budget(jobs.child("job", LIMIT));
            "failure-callback" => $source.failure_callback(|_| Relief::None);
            "fallback" => $source.fallback($source)?;
            "aligned to 4 KiB" => $source.aligned(4096)?;
            "thread-safe" => $source.thread_safe();
            "tracking" => $source.tracking();
            "logging" => $source.logging(log()?);
        ]);
    }};
    (@all $name:ident, $stack:ident, $body:expr, [$($label:literal => $make:expr;)*]) => {
        $({
            let ($name, $stack) = ($label, $make);
            $body
        })*
    };
}

pub(crate) use each_layered;

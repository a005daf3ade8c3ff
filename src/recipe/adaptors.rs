//! The adaptors that a recipe may have. A new one is a function here and a line in `ALL`.
//!
//! `FailureCallback` is not here, because a line has no functions in it, and `ThreadSafe`, because all that a recipe makes is
//! shared between threads already.

use super::Call;
use super::ingredient::{Ingredient, Make, Parameter};
use super::under::{Under, over};
use super::value::Kind;
use crate::adaptor::{
    Aligned, AlignedConfig, Allowance, Budget, CallStacks, Fallback, Guard, GuardConfig, Limiting, LogConfig,
    Logging, Prefetch, Stats, Tracking,
};
use crate::error::Error;
use crate::resource::AnyResource;

pub(super) static ALL: &[Ingredient] = &[
    Ingredient {
        name: "logging",
        about: "Logs every allocation and free in RMM's format.",
        parameters: &[
            Parameter::new(
                "file",
                Kind::Text,
                "the file, packed if it ends in .gz; the one that ALLUVION_LOG_FILE names if left out",
            ),
            Parameter::new("tags", Kind::Flag, "adds a column for tags; false if left out"),
            Parameter::new("reserved", Kind::Flag, "adds a column for reserved bytes; false if left out"),
        ],
        make: Make::Layer(logging),
    },
    Ingredient {
        name: "stats",
        about: "Counts live and peak bytes and blocks, in total and by tag.",
        parameters: &[Parameter::new(
            "slack",
            Kind::Size,
            "how far a thread's bytes may be from the common count; 4MiB if left out",
        )],
        make: Make::Layer(stats),
    },
    Ingredient {
        name: "tracking",
        about: "Records every live block, refuses wrong frees, and reports leaks.",
        parameters: &[Parameter::new(
            "stacks",
            Kind::WordOrCount(&["none", "all"]),
            "keeps the call stack of all allocations, of every N-th one, or of none; none if left out",
        )],
        make: Make::Layer(tracking),
    },
    Ingredient {
        name: "guard",
        about: "Finds writes beside a block and writes after its free; not over null.",
        parameters: &[
            Parameter::new("redzone", Kind::Size, "guard bytes on each side of a block; 256 if left out"),
            Parameter::new(
                "quarantine",
                Kind::Size,
                "freed bytes held back before they are used again; 16MiB if left out",
            ),
            Parameter::new(
                "verify",
                Kind::Size,
                "bytes checked of a block that leaves the quarantine; 64KiB if left out",
            ),
        ],
        make: Make::Layer(guard),
    },
    Ingredient {
        name: "limiting",
        about: "Refuses requests that would make more bytes live than its limit.",
        parameters: &[Parameter::needed("bytes", Kind::Size, "the limit")],
        make: Make::Layer(limiting),
    },
    Ingredient {
        name: "budget",
        about: "A limit with a name, and a soft limit whose crossings are counted.",
        parameters: &[
            Parameter::needed("hard", Kind::Size, "the limit"),
            Parameter::new("soft", Kind::Size, "the soft limit; none if left out"),
            Parameter::new("name", Kind::Text, "the name in errors; budget if left out"),
        ],
        make: Make::Layer(budget),
    },
    Ingredient {
        name: "fallback",
        about: "Asks a second stack when the one under it is out of memory.",
        parameters: &[Parameter::needed("second", Kind::Recipe, "the second stack, on the same device")],
        make: Make::Layer(fallback),
    },
    Ingredient {
        name: "aligned",
        about: "Aligns blocks to more than was asked for.",
        parameters: &[
            Parameter::needed("alignment", Kind::Size, "the alignment, a power of two"),
            Parameter::new(
                "threshold",
                Kind::Size,
                "aligns only blocks of at least this size; all if left out",
            ),
        ],
        make: Make::Layer(aligned),
    },
    Ingredient {
        name: "prefetch",
        about: "Migrates managed memory to the device before it is used.",
        parameters: &[],
        make: Make::Layer(prefetch),
    },
];

fn logging(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let mut config = LogConfig::default();
    if let Some(tags) = call.flag("tags") {
        config = config.tags(tags);
    }
    if let Some(reserved) = call.flag("reserved") {
        config = config.reserved(reserved);
    }
    let log = match call.text("file") {
        Some(file) => config.create(file)?,
        None => config.from_env()?,
    };
    over!(under, |upstream| Logging::new(upstream, log))
}

fn stats(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let slack = call.bytes("slack", under.resource())?;
    over!(under, |upstream| match slack {
        Some(bytes) => Stats::with_slack(upstream, bytes),
        None => Stats::new(upstream),
    })
}

fn tracking(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let stacks = call_stacks(call)?;
    over!(under, |upstream| Tracking::new(upstream).call_stacks(stacks))
}

#[cfg(feature = "backtrace")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature it can fail")]
fn call_stacks(call: &Call<'_>) -> Result<CallStacks, Error> {
    Ok(match (call.word("stacks"), call.count("stacks")) {
        (Some("all"), _) => CallStacks::All,
        (_, Some(nth)) => CallStacks::EveryNth(nth),
        _ => CallStacks::None,
    })
}

#[cfg(not(feature = "backtrace"))]
fn call_stacks(call: &Call<'_>) -> Result<CallStacks, Error> {
    if call.word("stacks") == Some("all") || call.count("stacks").is_some() {
        return Err(Error::unsupported(
            "call stacks",
            "the library was built without its feature `backtrace`",
            "build it with that feature, or leave `stacks` out",
        ));
    }
    Ok(CallStacks::None)
}

fn guard(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let mut config = GuardConfig::default();
    if let Some(bytes) = call.bytes("redzone", under.resource())? {
        config = config.redzone(bytes);
    }
    if let Some(bytes) = call.bytes("quarantine", under.resource())? {
        config = config.quarantine(bytes);
    }
    if let Some(bytes) = call.bytes("verify", under.resource())? {
        config = config.verify(bytes);
    }
    let upstream = under.for_the_device(
        "a guard over a source that is not known to be accessible to the device",
        "it writes to the blocks, and reads them",
    )?;
    Ok(Under::Device(AnyResource::new(Guard::new(upstream, config)?)))
}

fn limiting(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let bytes = call.needed_bytes("bytes", under.resource())?;
    over!(under, |upstream| Limiting::new(upstream, bytes))
}

fn budget(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let hard = call.needed_bytes("hard", under.resource())?;
    let mut allowance = Allowance::new(call.text("name").unwrap_or("budget"), hard);
    if let Some(soft) = call.bytes("soft", under.resource())? {
        allowance = allowance.soft(soft);
    }
    over!(under, |upstream| Budget::new(upstream, allowance))
}

fn fallback(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let second = call.needed_recipe("second")?.build(under.resource().device())?;
    over!(under, |upstream| Fallback::new(upstream, second)?)
}

fn aligned(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let alignment = call.needed_bytes("alignment", under.resource())?;
    let mut config = AlignedConfig::new(alignment);
    if let Some(bytes) = call.bytes("threshold", under.resource())? {
        config = config.threshold(bytes);
    }
    over!(under, |upstream| Aligned::new(upstream, config)?)
}

fn prefetch(under: Under, _: &Call<'_>) -> Result<Under, Error> {
    let upstream = under.for_the_device(
        "a prefetch over a source that is not known to be accessible to the device",
        "it brings the blocks to the device",
    )?;
    Ok(Under::Device(AnyResource::new(Prefetch::new(upstream))))
}

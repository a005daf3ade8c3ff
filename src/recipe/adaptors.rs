//! The adaptors that a recipe may have. A new one is a function here and a line in `ALL`; the rest is on
//! its card.
//!
//! `FailureCallback` is not here, because a line has no functions in it, and `ThreadSafe`, because all that a recipe makes is
//! shared between threads already.

use super::Call;
use super::ingredient::{Ingredient, Make};
use super::under::{Under, over};
use crate::adaptor::{
    Aligned, AlignedConfig, Allowance, Budget, CallStacks, Fallback, Guard, GuardConfig, Limiting, LogConfig,
    Logging, Prefetch, SharedConfig, Stats, Tracking,
};
use crate::error::Error;
use crate::resource::{AnyResource, Resource};

pub(super) static ALL: &[Ingredient] = &[
    Ingredient { card: Logging::CARD, make: Make::Layer(logging) },
    Ingredient { card: Stats::CARD, make: Make::Layer(stats) },
    Ingredient { card: Tracking::CARD, make: Make::Layer(tracking) },
    Ingredient { card: Guard::CARD, make: Make::Layer(guard) },
    Ingredient { card: Limiting::CARD, make: Make::Layer(limiting) },
    Ingredient { card: Budget::CARD, make: Make::Layer(budget) },
    Ingredient { card: Fallback::CARD, make: Make::Layer(fallback) },
    Ingredient { card: Aligned::CARD, make: Make::Layer(aligned) },
    Ingredient { card: Prefetch::CARD, make: Make::Layer(prefetch) },
];

fn logging(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let mut config = LogConfig::default();
    if let Some(tags) = call.flag("tags") {
        config = config.tags(tags);
    }
    if let Some(reserved) = call.flag("reserved") {
        config = config.reserved(reserved);
    }
    if let Some(devices) = call.flag("devices") {
        config = config.devices(devices);
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
    let mut allowance = match call.text("shared") {
        Some(name) => Allowance::shared(&shared(name, hard, under.resource(), call)?)?,
        None => {
            for argument in ["member", "guaranteed"] {
                if call.is_given(argument) {
                    return Err(call.wrong(argument, "it is for a shared limit, and `shared` is left out"));
                }
            }
            Allowance::new(call.text("name").unwrap_or("budget"), hard)
        }
    };
    if let Some(soft) = call.bytes("soft", under.resource())? {
        allowance = allowance.soft(soft);
    }
    over!(under, |upstream| Budget::new(upstream, allowance))
}

/// The limit of a budget that processes share.
fn shared(name: &str, hard: usize, under: &dyn Resource, call: &Call<'_>) -> Result<SharedConfig, Error> {
    if call.is_given("name") {
        return Err(call.wrong("name", "a shared limit has the name that `shared` says"));
    }
    let config = SharedConfig::new(name, hard);
    let guaranteed = call.bytes("guaranteed", under)?;
    match (call.text("member"), guaranteed) {
        (Some(member), Some(bytes)) => Ok(config.member(member).guarantee(member, bytes)),
        (Some(member), None) => Ok(config.member(member)),
        (None, Some(_)) => Err(call.wrong("guaranteed", "it is for a member, and `member` is left out")),
        (None, None) => Ok(config),
    }
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

//! The suballocators that a recipe may have. A new one is a function here and a line in `ALL`; the rest is on
//! its card.

use super::Call;
use super::ingredient::{Ingredient, Make};
use super::under::{Under, over};
use crate::error::Error;
use crate::suballoc::{
    Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig, Growth, PageBudget, Pool, PoolConfig, Reuse,
};

pub(super) static ALL: &[Ingredient] = &[
    Ingredient { card: Pool::CARD, make: Make::Layer(pool) },
    Ingredient { card: Arena::CARD, make: Make::Layer(arena) },
    Ingredient { card: FixedSize::CARD, make: Make::Layer(fixed_size) },
    Ingredient { card: Binning::CARD, make: Make::Layer(binning) },
];

fn pool(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let mut config = PoolConfig::default();
    if let Some(bytes) = call.bytes("initial", under.resource())? {
        config = config.initial(bytes);
    }
    if let Some(bytes) = call.bytes("maximum", under.resource())? {
        config = config.maximum(bytes);
    }
    match (call.times("budget"), call.bytes("budget", under.resource())?) {
        (Some(times), _) => config = config.budget(PageBudget::TimesPeak(times)),
        (_, Some(bytes)) => config = config.budget(PageBudget::Bytes(bytes)),
        _ => {}
    }
    if let Some(bytes) = call.bytes("registered", under.resource())? {
        config = config.registered(bytes);
    }
    match (call.word("growth"), call.bytes("growth", under.resource())?) {
        (Some("spare"), _) => config = config.growth(Growth::Spare),
        (Some("doubling"), _) => config = config.growth(Growth::Doubling),
        (Some("exact"), _) => config = config.growth(Growth::Exact),
        (_, Some(bytes)) => config = config.growth(Growth::Step(bytes)),
        _ => {}
    }
    match call.word("reuse") {
        Some("own") => config = config.reuse(Reuse::Own),
        Some("completed") => config = config.reuse(Reuse::Completed),
        Some("wait") => config = config.reuse(Reuse::Wait),
        _ => {}
    }
    if let Some(checked) = call.flag("checked") {
        config = config.checked(checked);
    }
    if let Some(file) = call.text("snapshot_on_out_of_memory") {
        config = config.snapshot_on_out_of_memory(file);
    }
    over!(under, |upstream| Pool::new(upstream, config)?)
}

fn arena(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let mut config = ArenaConfig::default();
    if let Some(bytes) = call.bytes("bytes", under.resource())? {
        config = config.bytes(bytes);
    }
    if let Some(checked) = call.flag("checked") {
        config = config.checked(checked);
    }
    if let Some(file) = call.text("snapshot_on_out_of_memory") {
        config = config.snapshot_on_out_of_memory(file);
    }
    over!(under, |upstream| Arena::new(upstream, config)?)
}

fn fixed_size(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let mut config = FixedSizeConfig::default();
    if let Some(bytes) = call.bytes("block", under.resource())? {
        config = config.block(bytes);
    }
    if let Some(blocks) = call.number("blocks")? {
        config = config.blocks(blocks);
    }
    if let Some(bytes) = call.bytes("maximum", under.resource())? {
        config = config.maximum(bytes);
    }
    if let Some(checked) = call.flag("checked") {
        config = config.checked(checked);
    }
    if let Some(file) = call.text("snapshot_on_out_of_memory") {
        config = config.snapshot_on_out_of_memory(file);
    }
    over!(under, |upstream| FixedSize::new(upstream, config)?)
}

/// RMM's choice, and that of the programs that measure it.
const BINS: (usize, usize) = (256 << 10, 4 << 20);

fn binning(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let exponent = |name: &str, default: usize| {
        let bytes = call.bytes(name, under.resource())?.unwrap_or(default);
        if bytes.is_power_of_two() {
            Ok(bytes.ilog2())
        } else {
            Err(call.wrong(name, "a bin is a power of two"))
        }
    };
    let (from, to) = (exponent("from", BINS.0)?, exponent("to", BINS.1)?);
    if from > to {
        return Err(call.wrong("from", "the smallest bin is larger than the largest"));
    }
    let blocks: Option<usize> = call.number("blocks")?;
    let checked = call.flag("checked");
    let snapshot = call.text("snapshot_on_out_of_memory");
    over!(under, |upstream| {
        let mut bins = Binning::over(upstream).range(from..=to);
        if let Some(blocks) = blocks {
            bins = bins.blocks(blocks);
        }
        if let Some(checked) = checked {
            bins = bins.checked(checked);
        }
        if let Some(file) = snapshot {
            bins = bins.snapshot_on_out_of_memory(file);
        }
        bins.build()?
    })
}

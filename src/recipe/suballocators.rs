//! The suballocators that a recipe may have. A new one is a function here and a line in `ALL`.

use super::Call;
use super::ingredient::{Ingredient, Make, Parameter};
use super::under::{Under, over};
use super::value::Kind;
use crate::error::Error;
use crate::suballoc::{
    Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig, Growth, Pool, PoolConfig, Reuse,
};

const CHECKED: Parameter = Parameter::new(
    "checked",
    Kind::Flag,
    "refuses wrong frees; true in debug builds and false in release builds if left out",
);

pub(super) static ALL: &[Ingredient] = &[
    Ingredient {
        name: "pool",
        about: "Takes memory as it is needed, keeps what is freed, and serves every size from it.",
        parameters: &[
            Parameter::new("initial", Kind::Size, "bytes taken when it is made; none if left out"),
            Parameter::new("maximum", Kind::Size, "the most bytes that it takes; no limit if left out"),
            Parameter::new(
                "growth",
                Kind::WordOrSize(&["spare", "doubling", "exact"]),
                "how much it takes at a time: a policy, or a size; spare if left out",
            ),
            Parameter::new(
                "reuse",
                Kind::Word(&["own", "completed", "wait"]),
                "which memory freed on other streams a stream may take; wait if left out",
            ),
            CHECKED,
        ],
        make: Make::Layer(pool),
    },
    Ingredient {
        name: "arena",
        about: "Takes a fixed amount when it is made, and gives streams large parts of it.",
        parameters: &[
            Parameter::new("bytes", Kind::Size, "the amount; half of what is free if left out"),
            CHECKED,
        ],
        make: Make::Layer(arena),
    },
    Ingredient {
        name: "fixed-size",
        about: "Serves every request with blocks of one size; larger requests fail.",
        parameters: &[
            Parameter::new("block", Kind::Size, "the size of a block; 1MiB if left out"),
            Parameter::new("blocks", Kind::Count, "how many blocks it takes at a time; 128 if left out"),
            Parameter::new("maximum", Kind::Size, "the most bytes that it takes; no limit if left out"),
            CHECKED,
        ],
        make: Make::Layer(fixed_size),
    },
    Ingredient {
        name: "binning",
        about: "Serves small requests from bins, one for each power of two, and passes the others on.",
        parameters: &[
            Parameter::new("from", Kind::Size, "the smallest bin, a power of two; 256KiB if left out"),
            Parameter::new("to", Kind::Size, "the largest bin, a power of two; 4MiB if left out"),
            Parameter::new("blocks", Kind::Count, "how many blocks a bin takes at a time; 128 if left out"),
            CHECKED,
        ],
        make: Make::Layer(binning),
    },
];

fn pool(under: Under, call: &Call<'_>) -> Result<Under, Error> {
    let mut config = PoolConfig::default();
    if let Some(bytes) = call.bytes("initial", under.resource())? {
        config = config.initial(bytes);
    }
    if let Some(bytes) = call.bytes("maximum", under.resource())? {
        config = config.maximum(bytes);
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
    over!(under, |upstream| {
        let mut bins = Binning::over(upstream).range(from..=to);
        if let Some(blocks) = blocks {
            bins = bins.blocks(blocks);
        }
        if let Some(checked) = checked {
            bins = bins.checked(checked);
        }
        bins.build()?
    })
}

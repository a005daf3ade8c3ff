//! `Smallest`: the smallest device on which a log runs.

use alluvion::Error;
use alluvion::recipe::Recipe;
use serde_json::json;

use super::standing::{Standing, source_name};
use super::{Lanes, Log, log_order, mib, recipe_name};
use crate::failure::Failure;
use crate::rig::{Driver, Rig, Simulated};
use crate::workload::Block;

/// The search goes from 1 to this many times the live peak.
const MOST: f64 = 8.0;

/// It ends where the answer is known as exactly as this, in live peaks.
const EXACT: f64 = 0.01;

/// How many devices are tried: 7 live peaks are halved until 0.01 is left, and the largest comes first.
pub(super) const TRIES: u64 = 11;

/// Devices have whole pages.
const PAGE: u64 = 2 << 20;

/// No simulated device has more memory.
pub(super) const MOST_SIMULATED_BYTES: u64 = 1 << 45;

/// The smallest device on which a log runs twice without a failure.
#[derive(Clone, Debug)]
pub(crate) enum Smallest {
    At {
        bytes: u64,
        /// Over the live peak.
        ratio: f64,
    },
    /// It fails even on a device of eight times the live peak. With the event that failed there and why, unless the stack itself
    /// could not be made.
    Above { failure: Option<(usize, Error)> },
}

/// Whose memory is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// That of a simulated device: all that is in it counts.
    Device,
    /// What the stack takes from its source.
    Source,
    /// What the pool of the driver at the end of the stack holds.
    DriverPool,
}

/// What came of a try.
enum Run {
    Done,
    Failed(Option<(usize, Error)>),
}

impl Smallest {
    /// `round_done` is called after each try.
    pub(crate) fn of(recipe: &Recipe, log: &Log, rig: &Rig, round_done: impl Fn()) -> Result<Self, Failure> {
        let bound = Bound::of(recipe, rig)?;
        let peak = log.peak_live_bytes(|_| false);
        let largest = device_bytes(peak, MOST);
        if !rig.is_hardware() && largest > MOST_SIMULATED_BYTES {
            return Err(Failure::Failed(format!(
                "{}: {} are live at once, and the search goes to {MOST} times that: a simulated device has {} at most",
                log.name,
                mib(peak),
                mib(MOST_SIMULATED_BYTES)
            )));
        }
        let mut failure = None;
        let found = bisect(|ratio| {
            let run = attempt(recipe, log, rig, bound, device_bytes(peak, ratio))?;
            round_done();
            Ok(match run {
                Run::Done => true,
                Run::Failed(first) => {
                    failure = first;
                    false
                }
            })
        })?;
        Ok(match found {
            Some(ratio) => Self::At { bytes: device_bytes(peak, ratio), ratio },
            None => Self::Above { failure },
        })
    }

    /// As the peers' programs print theirs: `smallest,STACK,LOG,RATIO`, and then the bytes.
    pub(super) fn line(&self, recipe: &Recipe, log: &Log) -> String {
        let (stack, log) = (field(&recipe_name(recipe)), field(&log.name));
        match self {
            Self::At { bytes, ratio } => format!("smallest,{stack},{log},{ratio:.2},{bytes}\n"),
            Self::Above { .. } => format!("smallest,{stack},{log},above {MOST},\n"),
        }
    }

    /// One line, for machines to read.
    pub(super) fn json(&self, recipe: &Recipe, log: &Log, driver: &str) -> String {
        let (bytes, ratio) = match self {
            Self::At { bytes, ratio } => (Some(bytes), Some(ratio)),
            Self::Above { .. } => (None, None),
        };
        let mut entry = json!({
            "trace": log.name,
            "resource": recipe.to_string(),
            "driver": driver,
            "peak_live": log.peak_live_bytes(|_| false),
            "smallest": bytes,
            "ratio": ratio,
        });
        if let Self::Above { failure: Some((event, error)) } = self {
            entry["first_failure"] = json!({ "event": event, "error": error.to_string() });
        }
        format!("{entry}\n")
    }

    /// Why there is no such device below eight times the live peak.
    pub(super) fn note(&self, recipe: &Recipe, log: &Log) -> Option<String> {
        let Self::Above { failure } = self else { return None };
        let about =
            format!("{}, {}: on a device of {MOST} times the live peak", log.name, recipe_name(recipe));
        Some(match failure {
            Some((event, error)) => format!("{about} event {event} failed first: {error}"),
            None => format!("{about} there is not memory enough to make the stack"),
        })
    }
}

impl Bound {
    fn of(recipe: &Recipe, rig: &Rig) -> Result<Self, Failure> {
        let bound = match (rig.name, source_name(recipe)) {
            (_, Some(source @ "cuda-async-managed")) => {
                return Err(Failure::usage(format!(
                    "the stack `{recipe}`: what the driver keeps in `{source}` has no limit; name another source"
                )));
            }
            ("null", _) | (_, Some("managed" | "pinned" | "system" | "null")) => Self::Source,
            ("sim", _) => Self::Device,
            (_, Some("cuda-async")) => Self::DriverPool,
            (_, None) if rig.device.capabilities()?.memory_pools => Self::DriverPool,
            _ => Self::Source,
        };
        let has_second = recipe.ingredients().any(|ingredient| ingredient.name() == "fallback");
        if bound != Self::Device && has_second {
            return Err(Failure::usage(format!(
                "the stack `{recipe}`: the second stack of `fallback` has a source of its own, which no limit of the first \
                 reaches; search on a simulated device, with `--driver sim`"
            )));
        }
        if bound == Self::DriverPool
            && recipe.source().is_some_and(|source| source.to_string().contains("maximum="))
        {
            return Err(Failure::usage(format!(
                "the stack `{recipe}`: the maximum of `cuda-async` is what is searched; leave it out"
            )));
        }
        Ok(bound)
    }
}

/// Memory for the live peak times `ratio`: in whole pages, and one more for what is less than a page.
fn device_bytes(peak: u64, ratio: f64) -> u64 {
    ((peak as f64 * ratio) as u64 / PAGE * PAGE).saturating_add(PAGE)
}

/// The least ratio that fits, to a hundredth. As the peers' programs search theirs, so that the answers compare.
fn bisect(mut fits: impl FnMut(f64) -> Result<bool, Failure>) -> Result<Option<f64>, Failure> {
    let (mut low, mut high) = (1.0, MOST);
    if !fits(high)? {
        return Ok(None);
    }
    while high - low > EXACT {
        let middle = f64::midpoint(low, high);
        *(if fits(middle)? { &mut high } else { &mut low }) = middle;
    }
    Ok(Some(high))
}

/// On a new stack, over so much memory.
fn attempt(recipe: &Recipe, log: &Log, rig: &Rig, bound: Bound, bytes: u64) -> Result<Run, Failure> {
    let limit = usize::try_from(bytes).unwrap_or(usize::MAX);
    match bound {
        Bound::Device => {
            let simulated = Simulated { memory_bytes: limit, ..Simulated::default() };
            let rig = Rig::open_with(Driver::Sim, simulated)?;
            play_twice(Standing::within(recipe, &rig, usize::MAX)?, log, &rig)
        }
        Bound::Source => play_twice(Standing::within(recipe, rig, limit)?, log, rig),
        Bound::DriverPool => {
            play_twice(Standing::within(&with_maximum(recipe, bytes)?, rig, usize::MAX)?, log, rig)
        }
    }
}

/// The same stack, whose pool of the driver has that maximum.
fn with_maximum(recipe: &Recipe, bytes: u64) -> Result<Recipe, Error> {
    let source = recipe.source().map_or_else(|| "cuda-async".to_owned(), |source| source.to_string());
    let source = match source.strip_suffix(')') {
        Some(open) => format!("{open}, maximum={bytes})"),
        None => format!("{source}(maximum={bytes})"),
    };
    let layers = recipe.layers().to_string();
    let separator = if layers.is_empty() { "" } else { " | " };
    format!("{layers}{separator}{source}").parse()
}

/// Two rounds in the order of the log: the second meets what the first has left in the stack. What is live in the end of a round
/// is given back.
fn play_twice(stack: Option<Standing>, log: &Log, rig: &Rig) -> Result<Run, Failure> {
    let Some(stack) = stack else { return Ok(Run::Failed(None)) };
    let trace = &log.trace;
    let lanes = Lanes::on_one(trace, &rig.device, &stack.resource)?;
    let mut live: Vec<Option<Block<'_, _>>> = Vec::new();
    live.resize_with(trace.blocks as usize, || None);
    for _ in 0..2 {
        let played = log_order(&trace.events, &lanes, &mut live, |at, error| Err((at, error)));
        lanes.give_back(live.iter_mut().filter_map(Option::take));
        rig.device.synchronize()?;
        match played {
            Ok(_) => {}
            Err((at, error)) if error.is_out_of_memory() => return Ok(Run::Failed(Some((at, error)))),
            Err((at, error)) => {
                return Err(Failure::Failed(format!(
                    "{}: event {at} of {}: {error}",
                    log.name,
                    trace.events.len()
                )));
            }
        }
    }
    Ok(Run::Done)
}

/// A field of a row whose separator is a comma: a recipe may have some.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use alluvion::trace::Trace;

    use super::*;

    /// Blocks by name, in MiB: `+name size` allocates, `-name` frees.
    fn log(steps: &[(&str, u64)]) -> Log {
        let mut rows = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
        let mut names = Vec::new();
        for (step, mib) in steps {
            let (sign, name) = step.split_at(1);
            let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            let action = if sign == "+" { "allocate" } else { "free" };
            rows += &format!("1,00:00:00.000000,{action},{:#x},{},0\n", (at + 1) << 40, mib << 20);
        }
        Log { name: "made-up".into(), trace: Trace::from_rmm_csv(rows.as_bytes()).unwrap() }
    }

    fn rig(driver: Driver) -> Rig {
        let simulated = Simulated { memory_bytes: MOST_SIMULATED_BYTES as usize, ..Simulated::default() };
        Rig::open_with(driver, simulated).unwrap()
    }

    fn smallest(recipe: &str, log: &Log, driver: Driver) -> Result<Smallest, Failure> {
        Smallest::of(&recipe.parse().unwrap(), log, &rig(driver), || ())
    }

    #[track_caller]
    fn ratio(recipe: &str, log: &Log, driver: Driver) -> f64 {
        match smallest(recipe, log, driver) {
            Ok(Smallest::At { bytes, ratio }) => {
                assert_eq!(bytes, device_bytes(log.peak_live_bytes(|_| false), ratio));
                ratio
            }
            other => panic!("{recipe}: {other:?}"),
        }
    }

    /// The least that the search may answer: 7 live peaks, halved ten times, above one.
    const LEAST: f64 = 1.0 + 7.0 / 1024.0;

    #[test]
    fn the_search_finds_the_least_that_fits_to_a_hundredth() {
        for wanted in [0.5, 1.0, 1.0001, 1.3, 2.0, 4.999, 7.999, 8.0] {
            let mut tries = 0;
            let found = bisect(|ratio| {
                tries += 1;
                Ok(ratio >= wanted)
            });
            let found = found.unwrap().unwrap();
            assert!(found >= wanted && (found - wanted < EXACT || found == LEAST), "{found} for {wanted}");
            assert_eq!(tries, TRIES);
        }
        assert_eq!(bisect(|ratio| Ok(ratio > 8.0)).unwrap(), None);
        assert!(bisect(|_| Err(Failure::Unread)).is_err(), "what fails ends it");
        assert_eq!(device_bytes(376 << 20, 1.59), (596 << 20) + PAGE);
    }

    /// What comes and goes is as large as what it makes room for, so that any stack needs the live peak and no more.
    #[test]
    fn a_log_that_needs_its_peak_runs_on_a_device_of_its_peak() {
        let log = log(&[("+a", 64), ("+b", 32), ("-a", 64), ("+c", 64), ("-b", 32), ("-c", 64)]);
        for recipe in [
            "cuda",
            "mapped",
            "pool | mapped",
            "pool | cuda",
            "pool(growth=exact) | cuda",
            "stats | pool | cuda",
            "cuda-async",
        ] {
            assert_eq!(ratio(recipe, &log, Driver::Sim), LEAST, "{recipe}");
        }
    }

    /// `p` stands in the segment that `a` was, of which 60 MiB are of no use to `c`.
    fn with_a_hole() -> Log {
        log(&[("+a", 64), ("-a", 64), ("+p", 4), ("+c", 124), ("-c", 124), ("-p", 4)])
    }

    #[test]
    fn a_hole_that_a_pool_of_segments_cannot_use_counts() {
        let log = with_a_hole();
        assert_eq!(log.peak_live_bytes(|_| false), 128 << 20);
        assert_eq!(ratio("cuda", &log, Driver::Sim), LEAST);
        assert_eq!(ratio("pool | mapped", &log, Driver::Sim), LEAST, "pages move");
        // 64 and 124 MiB, of which a page is on top of the ratio: 186 of 128 MiB.
        let wanted = 186.0 / 128.0;
        // Not over a pool of the driver, which rounds what it holds.
        for (stack, driver) in
            [("pool(growth=exact) | cuda", Driver::Sim), ("pool(growth=exact)", Driver::Null)]
        {
            let found = ratio(stack, &log, driver);
            assert!((wanted..wanted + EXACT).contains(&found), "{driver:?}: {found}");
        }
    }

    /// A block that is live in the end is given back, and the second round has its memory.
    #[test]
    fn what_is_left_live_is_freed_between_the_rounds() {
        let log = log(&[("+a", 64), ("+b", 64)]);
        assert_eq!(ratio("cuda", &log, Driver::Sim), LEAST);
        assert_eq!(ratio("pool(growth=exact) | cuda", &log, Driver::Sim), LEAST);
    }

    /// The stack takes memory before the first event.
    #[test]
    fn a_device_on_which_the_stack_cannot_be_made_is_too_small() {
        let log = log(&[("+a", 64), ("-a", 64)]);
        let found = ratio("pool(initial=128MiB) | cuda", &log, Driver::Sim);
        assert!((126.0 / 64.0..126.0 / 64.0 + EXACT).contains(&found), "{found}");
        let smallest = smallest("pool(initial=1GiB) | cuda", &log, Driver::Sim).unwrap();
        assert!(matches!(smallest, Smallest::Above { failure: None }), "{smallest:?}");
        let words = smallest.note(&"pool".parse().unwrap(), &log);
        assert!(words.is_some_and(|words| words.ends_with("not memory enough to make the stack")));
    }

    #[test]
    fn what_fails_on_every_device_is_told_with_its_first_failure() {
        let log = log(&[("+a", 4), ("+b", 64), ("-a", 4), ("-b", 64)]);
        let recipe: Recipe = "limiting(8MiB) | pool | cuda".parse().unwrap();
        let smallest = Smallest::of(&recipe, &log, &rig(Driver::Sim), || ()).unwrap();
        assert!(
            matches!(&smallest, Smallest::Above { failure: Some((1, error)) } if error.is_out_of_memory())
        );
        assert_eq!(
            smallest.line(&recipe, &log),
            "smallest,limiting(bytes=8MiB) | pool | cuda,made-up,above 8,\n"
        );
        assert!(
            smallest
                .note(&recipe, &log)
                .is_some_and(|words| words.contains("event 1 failed first: out of memory"))
        );
    }

    #[test]
    fn a_source_without_a_limit_is_refused() {
        let log = log(&[("+a", 4)]);
        let words = |recipe, driver| smallest(recipe, &log, driver).unwrap_err().into_words();
        assert!(words("cuda-async-managed", Driver::Sim).contains("name another source"));
        assert!(words("fallback(managed) | pool", Driver::Null).contains("`--driver sim`"));
        assert_eq!(ratio("pinned", &log, Driver::Sim), LEAST, "its memory is bounded too");
    }

    #[test]
    fn a_log_that_no_simulated_device_holds_is_refused() {
        let log = log(&[("+a", 5 << 20)]);
        for driver in [Driver::Sim, Driver::Null] {
            let words = smallest("", &log, driver).unwrap_err().into_words();
            assert!(words.contains("5242880.0 MiB are live at once"), "{words}");
        }
    }

    #[test]
    fn the_maximum_of_the_driver_s_pool_is_written_into_the_stack() {
        for (recipe, wanted) in [
            ("", "cuda-async(maximum=4MiB)"),
            ("pool", "pool | cuda-async(maximum=4MiB)"),
            ("stats | cuda-async", "stats | cuda-async(maximum=4MiB)"),
            ("cuda-async(threshold=0)", "cuda-async(threshold=0, maximum=4MiB)"),
        ] {
            assert_eq!(with_maximum(&recipe.parse().unwrap(), 4 << 20).unwrap(), wanted.parse().unwrap());
        }
    }

    #[test]
    fn a_stack_with_commas_is_one_field() {
        assert_eq!(
            field("pool(initial=4MiB, growth=exact) | cuda"),
            "\"pool(initial=4MiB, growth=exact) | cuda\""
        );
        assert_eq!(field("pool | cuda"), "pool | cuda");
        assert_eq!(field("logging(file=\"a,b\")"), "\"logging(file=\"\"a,b\"\")\"");
    }
}

//! The page for Prometheus, read back: every line is one that the format has, and every figure is where it belongs.

use std::collections::HashMap;

use alluvion::adaptor::{Aligned, Allowance, Budget, Guard, GuardConfig, Log};
use alluvion::metrics::Metrics;
use alluvion::relief::Relief;
use alluvion::resource::FigureKind;
use alluvion::source::{Cuda, CudaAsync};
use alluvion::suballoc::{FixedSizeConfig, SuballocBook};
use alluvion::tag::with_tag;
use alluvion::{AnyResource, DeviceVec, Layout, PoolConfig, Resource, ResourceExt, Sim};

/// One sample: the labels in order, and the value.
type Sample = (Vec<(String, String)>, f64);

/// Reads a page as the format's specification says, version 0.0.4, and fails at what it does not know.
fn parse(page: &str) -> HashMap<String, (String, Vec<Sample>)> {
    let mut families: HashMap<String, (String, Vec<Sample>)> = HashMap::new();
    let mut helped = Vec::new();
    let mut current = String::new();
    assert!(page.is_empty() || page.ends_with('\n'), "the last line has its end");
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, _) = rest.split_once(' ').expect(line);
            assert!(!helped.contains(&name), "{name} has two helps");
            helped.push(name);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert!(["gauge", "counter"].contains(&kind), "{line}");
            assert_eq!(helped.last(), Some(&name), "the help comes first");
            assert!(
                families.insert(name.to_owned(), (kind.to_owned(), Vec::new())).is_none(),
                "{name} twice"
            );
            current = name.to_owned();
        } else {
            let end = line.find(['{', ' ']).expect(line);
            let (name, rest) = line.split_at(end);
            assert_eq!(name, current, "the samples of a figure stand together");
            let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            assert!(name.chars().all(is_good) && !name.starts_with(|c: char| c.is_ascii_digit()), "{line}");
            let (labels, value) = labels(rest);
            let samples = &mut families.get_mut(name).expect(line).1;
            assert!(samples.iter().all(|(other, _)| *other != labels), "{line} twice");
            samples.push((labels, value.trim().parse().expect(line)));
        }
    }
    families
}

/// `{a="b",c="d"}`, and what comes after it.
fn labels(text: &str) -> (Vec<(String, String)>, &str) {
    let mut labels = Vec::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (labels, text) };
    loop {
        let (name, after) = rest.split_once("=\"").expect(text);
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next().expect(text) {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next().expect(text).1 {
                    'n' => '\n',
                    c @ ('"' | '\\') => c,
                    c => panic!("\\{c} in {text}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(labels.iter().all(|(other, _)| other != name), "{text}");
        labels.push((name.to_owned(), value));
        match after[end + 1..].split_at(1) {
            ("}", after) => return (labels, after),
            (",", after) => rest = after,
            _ => panic!("{text}"),
        }
    }
}

fn value(page: &HashMap<String, (String, Vec<Sample>)>, name: &str, wanted: &[(&str, &str)]) -> f64 {
    let has = |labels: &[(String, String)], (name, value): &(&str, &str)| {
        labels.iter().any(|label| label.0 == *name && label.1 == *value)
    };
    let samples = &page.get(name).unwrap_or_else(|| panic!("{name}")).1;
    let mut found = samples.iter().filter(|(labels, _)| wanted.iter().all(|label| has(labels, label)));
    let sample = found.next().unwrap_or_else(|| panic!("{name} of {wanted:?} in {samples:?}"));
    assert!(found.next().is_none(), "{name} of {wanted:?} is one");
    sample.1
}

#[test]
fn every_layer_that_keeps_a_book_is_on_the_page() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let under = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(8 << 20)).unwrap();
    let stack =
        AnyResource::new(under.fixed_size(FixedSizeConfig::default().block(1 << 20).blocks(2)).unwrap());
    let other = CudaAsync::new(&sim.device(0)).unwrap();
    let _block = DeviceVec::<u8, _>::uninit_in(1 << 20, stream.as_ref(), stack.clone()).unwrap();

    let mut page = Metrics::new();
    page.add_stack("blocks", &stack);
    page.add_stack("a \"quoted\"\\\nname", &other);
    let page = parse(&page.to_string());

    let status = stack.find::<SuballocBook>().unwrap().status();
    let outer = [("resource", "blocks"), ("depth", "0"), ("layer", "FixedSize"), ("device", "0")];
    assert_eq!(value(&page, "alluvion_live_bytes", &outer), status.live_bytes as f64);
    assert_eq!(value(&page, "alluvion_live_blocks", &outer), 1.0);
    assert_eq!(value(&page, "alluvion_misses_total", &outer), status.misses as f64);
    assert_eq!(value(&page, "alluvion_fragmentation_ratio", &outer), status.fragmentation());
    let inner = [("resource", "blocks"), ("depth", "1"), ("layer", "Pool")];
    assert_eq!(value(&page, "alluvion_reserved_bytes", &inner), f64::from(8 << 20));
    assert_eq!(value(&page, "alluvion_live_bytes", &inner), status.reserved_bytes as f64);
    assert_eq!(value(&page, "alluvion_layer", &[("resource", "blocks"), ("layer", "Cuda")]), 1.0);
    assert_eq!(value(&page, "alluvion_layer", &[("resource", "a \"quoted\"\\\nname")]), 1.0);
    let total = sim.device(0).memory_info().unwrap().total_bytes;
    assert_eq!(value(&page, "alluvion_memory_total_bytes", &[("resource", "blocks")]), total as f64);
    assert_eq!(page["alluvion_hits_total"].0, "counter");
    assert_eq!(page["alluvion_live_bytes"].0, "gauge");
}

#[test]
fn allowances_are_on_the_page_with_those_above_them() {
    let sim = Sim::new();
    let gpu = Allowance::new("gpu", 8 << 20).soft(1 << 20);
    let queries = Budget::new(Cuda::new(&sim.device(0)), gpu.child("queries", 4 << 20));
    let limited = Cuda::new(&sim.device(0)).limiting(1 << 20);
    let stream = sim.device(0).stream().unwrap();
    let _block = DeviceVec::<u8, _>::uninit_in(3 << 20, stream.as_ref(), &queries).unwrap();
    assert!(limited.allocate_sync(Layout::from_bytes(2 << 20).unwrap()).is_err());
    let mut page = Metrics::new();
    page.add_stack("queries", &queries);
    page.add_stack("limited", &limited);
    let page = parse(&page.to_string());
    for (allowance, limit) in [("gpu", 8 << 20), ("gpu/queries", 4 << 20)] {
        let labels = [("allowance", allowance)];
        assert_eq!(value(&page, "alluvion_allowance_limit_bytes", &labels), f64::from(limit));
        assert_eq!(value(&page, "alluvion_allowance_used_bytes", &labels), f64::from(3 << 20));
    }
    assert_eq!(value(&page, "alluvion_allowance_crossings_total", &[("allowance", "gpu")]), 1.0);
    assert_eq!(page["alluvion_allowance_soft_bytes"].1.len(), 1, "the others have none");
    let refused = [("resource", "limited"), ("layer", "Limiting"), ("depth", "0")];
    assert_eq!(value(&page, "alluvion_allowance_refusals_total", &refused), 1.0);
}

#[test]
fn every_adaptor_says_what_it_counts() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let log = Log::write_to(std::io::sink()).unwrap();
    // Two blocks of half a mebibyte, and what it takes to align them.
    let limited = || Cuda::new(&sim.device(0)).limiting((1 << 20) + (16 << 10));
    let upstream = limited().fallback(limited());
    let asked = upstream.unwrap().failure_callback(|_| Relief::None);
    let stack = asked.aligned(4096).unwrap().tracking().stats().logging(log.clone());
    let [one, two] = ["one", "two"].map(|tag| {
        with_tag(tag, || DeviceVec::<u8, _>::uninit_in(1 << 19, stream.as_ref(), &stack).unwrap())
    });
    let third = with_tag("two", || DeviceVec::<u8, _>::uninit_in(1 << 19, stream.as_ref(), &stack).unwrap());
    assert!(DeviceVec::<u8, _>::uninit_in(1 << 20, stream.as_ref(), &stack).is_err());
    drop((one, third));
    let mut page = Metrics::new();
    page.add_stack("stack", &stack);
    let moved = stack.find::<Aligned>().unwrap().moved_blocks();
    drop(two);
    let page = parse(&page.to_string());
    for (name, labels, expected) in [
        ("alluvion_live_bytes", &[("layer", "Stats")][..], 1 << 19),
        ("alluvion_peak_live_bytes", &[("layer", "Stats")], 3 << 19),
        ("alluvion_allocations_total", &[("layer", "Stats")], 3),
        ("alluvion_frees_total", &[("layer", "Stats")], 2),
        ("alluvion_failures_total", &[("layer", "Stats")], 1),
        ("alluvion_tag_allocated_bytes_total", &[("tag", "two")], 2 << 19),
        ("alluvion_live_bytes", &[("layer", "Tracking")], 1 << 19),
        ("alluvion_tag_live_bytes", &[("layer", "Tracking"), ("tag", "two")], 1 << 19),
        ("alluvion_misuses_total", &[("layer", "Tracking")], 0),
        ("alluvion_log_rows_total", &[("layer", "Logging"), ("log", "writer")], 6),
        ("alluvion_log_failed", &[("layer", "Logging")], 0),
        ("alluvion_fallback_served_total", &[("layer", "Fallback")], 1),
        ("alluvion_appeals_failed_total", &[("layer", "FailureCallback")], 1),
        ("alluvion_aligned_moved_blocks", &[("layer", "Aligned")], moved as i32),
    ] {
        assert_eq!(value(&page, name, labels), f64::from(expected), "{name}");
    }
}

#[test]
fn guards_and_doors_say_what_they_count() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stack = Cuda::new(&sim.device(0)).thread_safe().guard(GuardConfig::default()).unwrap();
    let _block = DeviceVec::<u8, _>::uninit_in(1000, stream.as_ref(), &stack).unwrap();
    drop(DeviceVec::<u8, _>::uninit_in(1000, stream.as_ref(), &stack).unwrap());
    stack.find::<Guard>().unwrap().check().unwrap();
    let mut page = Metrics::new();
    page.add_stack("stack", &stack);
    let page = parse(&page.to_string());
    assert_eq!(value(&page, "alluvion_live_blocks", &[("layer", "Guard")]), 1.0);
    assert_eq!(value(&page, "alluvion_guard_verified_total", &[]), 1.0);
    assert_eq!(value(&page, "alluvion_guard_found_total", &[]), 0.0);
    assert_eq!(value(&page, "alluvion_reentries_refused_total", &[("layer", "ThreadSafe")]), 0.0);
}

#[test]
fn what_a_name_may_not_have_is_replaced() {
    let mut page = Metrics::new();
    page.add(
        "9 lives:é",
        FigureKind::Gauge,
        "Two\nlines\\",
        &[("a-b", "1"), ("a b", "2"), ("", "3")],
        f64::NEG_INFINITY,
    );
    page.add("9 lives:é", FigureKind::Counter, "another", &[], f64::NAN);
    page.add("", FigureKind::Counter, "", &[], 3_usize);
    let text = page.to_string();
    assert_eq!(
        text,
        "# HELP __lives:_ Two\\nlines\\\\\n# TYPE __lives:_ gauge\n__lives:_ NaN\n\
         __lives:_{a_b=\"1\",_=\"3\"} -Inf\n# HELP _ \n# TYPE _ counter\n_ 3\n"
    );
    assert_eq!(parse(&text).len(), 2);
}

#[test]
fn a_page_added_to_twice_has_each_figure_once() {
    let sim = Sim::new();
    let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
    let mut page = Metrics::new();
    page.add_stack("", &pool);
    let once = page.to_string();
    page.add_stack("", &pool);
    assert_eq!(page.to_string(), once);
    parse(&once);
}

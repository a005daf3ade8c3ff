//! Stacks that are written down: what is understood, what is built, and where errors point.

use alluvion::adaptor::{Allowance, Fallback, Logging, Stats};
use alluvion::driver::{Call, Code, DeviceAttribute};
use alluvion::recipe::{Auto, Parameter, Recipe, help, ingredients};
use alluvion::sim::{Fault, SimConfig};
use alluvion::source::{Cuda, CudaAsync, Mapped, Null};
use alluvion::suballoc::SuballocBook;
use alluvion::tag::with_tag;
use alluvion::testing::Bench;
use alluvion::trace::Trace;
use alluvion::{DeviceVec, Error, ErrorKind, Resource, ResourceExt, Sim};
use proptest::prelude::*;

use crate::trials::trials;

fn sim() -> Sim {
    Sim::with_config(SimConfig::default().memory_bytes(1 << 30))
}

#[track_caller]
fn parse(line: &str) -> Recipe {
    line.parse().unwrap_or_else(|error: Error| panic!("{error}"))
}

/// How it prints.
#[track_caller]
fn plain(line: &str) -> String {
    let recipe = parse(line);
    let plain = recipe.to_string();
    assert_eq!(parse(&plain), recipe, "{line}");
    plain
}

#[test]
fn what_is_written_in_many_ways_prints_in_one() {
    let cases = [
        ("", ""),
        ("  ", ""),
        ("pool", "pool"),
        ("pool()", "pool"),
        ("pool|cuda_async", "pool | cuda-async"),
        ("cuda-async", "cuda-async"),
        ("pool(1GiB)", "pool(initial=1GiB)"),
        ("pool(1 GiB, 2048 MiB)", "pool(initial=1GiB, maximum=2GiB)"),
        ("pool(maximum=50%, initial=64k)", "pool(initial=64KiB, maximum=50%)"),
        ("pool( 0 , growth = DOUBLING )", "pool(initial=0, growth=doubling)"),
        ("pool(growth=256MiB, reuse=own, checked=on)", "pool(growth=256MiB, reuse=own, checked=true)"),
        ("pool(registered=64m) | mapped", "pool(registered=64MiB) | mapped"),
        ("\tfixed_size(1.5k, 16)\n| cuda", "fixed-size(block=1536, blocks=16) | cuda"),
        ("binning(1MiB, 4MiB) | pool", "binning(from=1MiB, to=4MiB) | pool"),
        ("pinned(numa=anywhere, portable=no)", "pinned(portable=false, numa=anywhere)"),
        ("pinned(numa=3)", "pinned(numa=3)"),
        ("cuda(gpu=1)", "cuda(gpu=1)"),
        ("pool(\"1GiB\")", "pool(initial=1GiB)"),
        ("limiting(8GiB)|budget(1g, name=a/b-c.d)", "limiting(bytes=8GiB) | budget(hard=1GiB, name=a/b-c.d)"),
        (r#"budget(1, name="a \"b\" \\, c")"#, r#"budget(hard=1, name="a \"b\" \\, c")"#),
        ("fallback(pool|managed)|pool", "fallback(second=pool | managed) | pool"),
        ("fallback( second = fallback(cuda) | pool )", "fallback(second=fallback(second=cuda) | pool)"),
        ("fallback(second=) | stats(64k)", "fallback(second=) | stats(slack=64KiB)"),
        ("logging(a.csv.gz, tags=yes)", "logging(file=a.csv.gz, tags=true)"),
        ("budget(1, name=\"\")", "budget(hard=1, name=\"\")"),
    ];
    for (written, wanted) in cases {
        assert_eq!(plain(written), wanted, "{written}");
    }
    assert_ne!(parse("pool(1GiB)"), parse("pool"));
    assert_ne!(parse("pool"), parse("pool | cuda"));
    assert_ne!(parse("pool | arena"), parse("arena | pool"), "nothing is put in another order");
    assert_eq!(format!("{:?}", parse("pool|cuda")), "Recipe(pool | cuda)");
}

#[test]
fn a_recipe_is_taken_apart() {
    let recipe = parse("arena(1MiB) | pool | cuda(gpu=7)");
    assert_eq!(recipe.ingredients().map(|it| it.name()).collect::<Vec<_>>(), ["arena", "pool", "cuda"]);
    assert_eq!(recipe.layers().to_string(), "arena(bytes=1MiB) | pool");
    assert_eq!(recipe.source().map(|source| source.to_string()), Some("cuda(gpu=7)".into()));
    assert_eq!((recipe.gpu(), parse("cuda").gpu(), parse("pool").source()), (Some(7), None, None));
}

/// The whole message of the one error that the documentation does not show.
#[test]
fn an_error_shows_the_line_and_the_place() {
    let error = "fixed-size(64KiB, blocks=many) | cuda".parse::<Recipe>().unwrap_err();
    let wanted = [
        "malformed: line 1, column 26: `blocks` is `many`: it is not a whole number",
        "  fixed-size(64KiB, blocks=many) | cuda",
        "                           ^^^^",
    ];
    assert_eq!(error.to_string(), wanted.join("\n"));
    assert_eq!((error.kind(), error.line(), error.column()), (ErrorKind::Malformed, Some(1), Some(26)));
}

#[test]
fn what_is_not_understood_is_pointed_at() {
    let cases = [
        ("poool", 1, "nothing is called `poool`; did you mean `pool`?"),
        ("CudaAsync", 1, "did you mean `cuda-async`?"),
        ("stack", 1, "nothing is called `stack`; there are "),
        ("pool |", 7, "the line ends here; expected the name of a layer or a source"),
        ("| pool", 1, "`|` is not expected here; expected the name"),
        ("pool || cuda", 7, "expected the name of a layer"),
        ("pool cuda", 6, "`c` is not expected here; expected `|` and another ingredient"),
        ("pool > cuda", 6, "`>` is not expected here"),
        ("cuda | pool", 8, "`cuda` is a source, and nothing stands under one"),
        ("cuda | cuda-async", 8, "nothing stands under one"),
        ("pool(", 6, "the line ends here; expected a size for `initial`"),
        ("pool(1GiB", 10, "the line ends here; expected `,` or `)`"),
        ("pool(1GiB,", 11, "the line ends here"),
        ("pool(1GiB 2GiB)", 11, "expected `,` or `)`"),
        ("pool)", 5, "`)` is not expected here; expected `|`"),
        ("pool(,)", 6, "expected a size for `initial`"),
        ("pool(initial=)", 14, "expected a size for `initial`"),
        ("pool(initial=1x)", 14, "there is no such unit"),
        ("pool(initial=-1)", 14, "it is not a size"),
        ("pool(initial=101%)", 14, "from 0% to 100%"),
        ("pool(initial=99999999999GiB)", 14, "more than an allocation can have"),
        ("pool(inital=1GiB)", 6, "`pool` takes no `inital`; did you mean `initial`?"),
        ("pool(colour=red)", 6, "there are initial, maximum, growth, reuse, checked, budget"),
        ("pool(initial=1, initial=2)", 17, "`initial` is given twice"),
        ("pool(1, initial=2)", 9, "`initial` is given twice"),
        ("pool(initial=1, 2)", 17, "without a name comes after one that has a name"),
        ("pool(1, 2, exact, own, true, 3, 4, file, 5)", 42, "`pool` takes 8 arguments"),
        ("null(0, 1)", 9, "`null` takes one argument"),
        ("pool(growth=slow)", 13, "it is not spare, doubling, exact or a size"),
        ("pool(reuse=1)", 12, "it is not own, completed or wait"),
        ("limiting", 1, "`limiting` needs bytes=SIZE"),
        ("pool | budget(soft=1GiB)", 8, "`budget` needs hard=SIZE"),
        ("fallback | pool", 1, "`fallback` needs second=RECIPE"),
        ("fallback(pool | pooll) | pool", 17, "did you mean `pool`?"),
        ("fallback(cuda | pool) | pool", 17, "`cuda` is a source, and nothing stands under one"),
        ("fallback(pool | ) | pool", 17, "expected the name of a layer"),
        ("fallback(fallback(fallback(fallback(pool))))", 37, "more than 4 deep"),
        ("prefetch(1)", 10, "`prefetch` takes no arguments"),
        ("prefetch(far=1)", 10, "it takes no arguments"),
        ("pool(checked)", 6, "did you mean `checked=...`?"),
        ("pool(checked=maybe)", 14, "it is not true or false"),
        ("fixed-size(blocks=-1)", 19, "it is not a whole number"),
        ("fixed-size(blocks=99999999999999999999)", 19, "it is not a whole number"),
        ("pool(\"1GiB)", 6, "the quote that opens here is not closed"),
        ("pool | ☃", 8, "`☃` is not expected here"),
        ("pool(☃)", 6, "expected a size"),
        ("\u{0}", 1, "`\\0` is not expected here"),
    ];
    for (line, column, wanted) in cases {
        let error = line.parse::<Recipe>().expect_err(line);
        assert_eq!((error.kind(), error.column()), (ErrorKind::Malformed, Some(column)), "{line}: {error}");
        assert!(error.to_string().contains(wanted), "{line}: {error}");
    }
    // The second line is told from the first.
    let error = "pool |\n  cudda".parse::<Recipe>().unwrap_err();
    assert_eq!((error.line(), error.column()), (Some(2), Some(3)), "{error}");
    assert!(error.to_string().ends_with("\n    cudda\n    ^^^^^"), "{error}");
}

#[test]
fn a_line_may_be_long_but_not_endless() {
    let most = vec!["pool"; 32].join("|");
    assert_eq!(parse(&most).ingredients().count(), 32);
    for line in [vec!["pool"; 33].join("|"), "pool ".repeat(1000), "☃".repeat(2000), "(".repeat(4096)] {
        let error = line.parse::<Recipe>().expect_err(&line);
        assert!(error.to_string().len() < 600, "{error}");
    }
    // What is shown is cut at both ends around the place.
    let far = format!("{}| pool(x=1) | {}", " ".repeat(500), " ".repeat(500));
    let error = format!("pool{far}").parse::<Recipe>().unwrap_err();
    let said = error.to_string();
    let lines: Vec<&str> = said.lines().collect();
    let caret = lines[2].find('^').unwrap();
    assert_eq!(lines[1].chars().nth(caret), Some('x'), "{said}");
    assert!(lines[1].trim().starts_with('…') && lines[1].ends_with('…'), "{said}");
}

#[test]
fn the_stack_is_as_it_is_written() {
    let sim = sim();
    let cases = [
        ("", "CudaAsync(gpu 0)"),
        ("cuda", "Cuda(gpu 0)"),
        ("pool | pool(64MiB) | cuda", "Pool(0 B) > Pool(64 MiB) > Cuda(gpu 0)"),
        ("arena(16MiB) | managed", "Arena(16 MiB) > Managed(gpu 0)"),
        ("fixed_size(64KiB, 32) | pool", "FixedSize(2 MiB of 64 KiB) > Pool(2 MiB) > CudaAsync(gpu 0)"),
        ("binning(4KiB, 16KiB, 16) | cuda", "Binning(3 bins, 4 KiB to 16 KiB) > Cuda(gpu 0)"),
        ("pool(4MiB) | pinned(threads=1)", "Pool(4 MiB) > Pinned(gpu 0)"),
        ("cuda-async(initial=32MiB, maximum=64MiB, internal=false, gpu=0)", "CudaAsync(gpu 0)"),
        ("cuda-async-managed", "CudaAsyncManaged(gpu 0)"),
        ("mapped", "Mapped(gpu 0)"),
        ("limiting(1GiB) | pool | cuda", "Limiting(1 GiB) > Pool(0 B) > Cuda(gpu 0)"),
        ("budget(1GiB, 1MiB, name=jobs) | cuda", "Budget(jobs, 1 GiB) > Cuda(gpu 0)"),
        ("aligned(4096, 64KiB) | cuda", "Aligned(4 KiB from 64 KiB) > Cuda(gpu 0)"),
        ("prefetch | pool | managed", "Prefetch"),
        ("stats | limiting(1GiB) | pool | cuda", "Stats(0 B) > Limiting(1 GiB) > Pool(0 B) > Cuda(gpu 0)"),
        ("fallback(pool(1MiB) | managed) | cuda", "Fallback("),
        ("guard(redzone=1k) | pool | cuda", "Guard("),
        ("tracking(stacks=none) | stats | cuda", "Tracking("),
    ];
    for (line, wanted) in cases {
        let resource = parse(line).build(&sim.device(0)).unwrap_or_else(|error| panic!("{line}: {error}"));
        let described = resource.describe().to_string();
        assert!(described.starts_with(wanted.trim_end_matches(')')), "{line}: {described}");
        let stream = sim.device(0).stream().unwrap();
        let numbers = DeviceVec::from_slice_in(&[1_u8; 2000], stream.as_ref(), &resource).unwrap();
        assert_eq!(numbers.to_vec(stream.as_ref()).unwrap(), [1; 2000]);
    }
    assert!(sim.hazards().is_empty());
}

/// With what cannot be left out, and with every argument that there is.
#[test]
fn every_ingredient_is_made() {
    let sim = Sim::with_config(
        SimConfig::default().memory_bytes(1 << 30).attribute(DeviceAttribute::PageableMemoryAccess, 1),
    );
    let path = std::env::temp_dir().join(format!("alluvion-ingredient-{}.csv", std::process::id()));
    let shared = format!("ingredient-{}", std::process::id());
    let argument = |ingredient: &str, parameter: &Parameter| {
        let value = match (ingredient, parameter.name(), parameter.expects().as_str()) {
            ("logging", "file", _) => format!("\"{}\"", path.display()),
            ("aligned", "alignment", _) => "4096".into(),
            ("tracking", ..) => "none".into(),
            ("budget", "shared", _) => shared.clone(),
            (_, "gpu", _) => "0".into(),
            (_, "maximum", _) => "64MiB".into(),
            (_, _, "a size") => "2MiB".into(),
            (_, _, "a whole number") => "8".into(),
            (_, _, words) if words.starts_with("a number from") => "1.05".into(),
            (_, _, "a recipe") => "pool | managed".into(),
            (_, _, "a text") => "name".into(),
            (_, _, words) => words.split([',', ' ']).next().expect("there is a word").to_owned(),
        };
        format!("{}={value}", parameter.name())
    };
    for ingredient in ingredients().filter(|ingredient| ingredient.name() != "null") {
        let all: Vec<&Parameter> = ingredient.parameters().iter().collect();
        // Without a file, a log goes where the environment says.
        let needed = all
            .iter()
            .copied()
            .filter(|it| it.is_needed() || (ingredient.name(), it.name()) == ("logging", "file"));
        // A shared limit has no other name, and there are some on Linux alone.
        let all = all.iter().copied().filter(|it| {
            let of_shared = ["shared", "member", "guaranteed"].contains(&it.name());
            ingredient.name() != "budget"
                || if cfg!(target_os = "linux") { it.name() != "name" } else { !of_shared }
        });
        for parameters in [needed.collect::<Vec<_>>(), all.collect()] {
            let arguments: Vec<String> =
                parameters.into_iter().map(|parameter| argument(ingredient.name(), parameter)).collect();
            let end = if ingredient.is_source() { "" } else { " | cuda" };
            let line = format!("{}({}){end}", ingredient.name(), arguments.join(", "));
            let resource = parse(&line).build(&sim.device(0)).unwrap_or_else(|error| panic!("{error}"));
            let stream = sim.device(0).stream().unwrap();
            let numbers = DeviceVec::from_slice_in(&[7_u8; 1000], stream.as_ref(), &resource).unwrap();
            assert_eq!(numbers.to_vec(stream.as_ref()).unwrap(), [7; 1000], "{line}");
        }
    }
    let _ = std::fs::remove_file(path);
    #[cfg(target_os = "linux")]
    crate::shared_directory::remove_from_shared_memory(&shared);
    assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
}

#[test]
fn every_argument_arrives() {
    let sim = sim();
    let device = sim.device(0);
    // With a block of so many MiB after the other.
    let reserved = |line: &str, blocks: &[usize]| -> usize {
        let resource = parse(line).build(&device).unwrap_or_else(|error| panic!("{line}: {error}"));
        let stream = device.stream().unwrap();
        let take =
            |mib: &usize| DeviceVec::<u8, _>::uninit_in(mib << 20, stream.as_ref(), &resource).unwrap();
        let _taken: Vec<_> = blocks.iter().map(take).collect();
        resource.find::<SuballocBook>().expect("a pool has a stock").status().reserved_bytes >> 20
    };
    // A segment of 30 MiB, and what is taken beside it for 3 more.
    assert_eq!(reserved("pool | cuda", &[30, 3]), 30 + 4);
    assert_eq!(reserved("pool(growth=spare) | cuda", &[30, 3]), 30 + 4);
    assert_eq!(reserved("pool(growth=doubling) | cuda", &[30, 3]), 30 + 30);
    assert_eq!(reserved("pool(growth=exact) | cuda", &[30, 3]), 30 + 3);
    assert_eq!(reserved("pool(growth=16MiB) | cuda", &[30, 3]), 30 + 16);
    assert_eq!(reserved("pool(maximum=40MiB, growth=doubling) | cuda", &[30, 3]), 40);
    assert_eq!(reserved("pool(initial=64MiB) | cuda", &[3]), 64);
    assert_eq!(reserved("pool(initial=25%) | cuda", &[3]), 256);
    assert_eq!(reserved("fixed-size(4MiB, 3, maximum=12MiB) | cuda", &[3]), 12);
    assert_eq!(reserved("arena(50%) | cuda", &[3]), 512);
    let folder = std::env::temp_dir().join(format!("alluvion-recipe-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["pool(maximum=1MiB", "arena(1MiB", "fixed-size(1MiB, 1, maximum=1MiB"] {
        let file = folder.join("pool.json");
        let line = format!("{name}, snapshot_on_out_of_memory={:?}) | cuda", file.to_str().unwrap());
        let resource = parse(&line).build(&device).unwrap_or_else(|error| panic!("{line}: {error}"));
        let failed = DeviceVec::<u8, _>::uninit_in(2 << 20, device.default_stream().as_ref(), &resource);
        let failed = failed.map(drop).unwrap_err();
        let report = failed.out_of_memory_report().unwrap();
        assert!(report.snapshot_file.is_some() && file.exists(), "{line}: {report}");
        std::fs::remove_file(&file).unwrap();
    }
    std::fs::remove_dir(&folder).unwrap();
    let pool = parse("cuda-async(initial=64MiB)").build(&device).unwrap();
    let source = pool.find::<CudaAsync>().expect("it is one");
    assert!(source.reserved_bytes().unwrap() >= 64 << 20);
}

#[test]
fn a_ledger_is_kept_if_the_recipe_says_so() {
    let sim = sim();
    for (line, is_checked) in [("pool(checked=true) | cuda", true), ("pool(checked=false) | cuda", false)] {
        let resource = parse(line).build(&sim.device(0)).unwrap();
        let stock = resource.find::<SuballocBook>().unwrap();
        assert_eq!(format!("{stock:?}").contains("ledger: Some"), is_checked);
    }
}

#[test]
fn what_breaks_a_rule_is_pointed_at() {
    let sim = sim();
    let cases = [
        ("pool(initial=2MiB, maximum=1MiB)", 1, "an initial size above the maximum"),
        ("pool | pool(growth=1) | cuda", 8, "a growth step below 256 bytes"),
        ("pool | arena(100)", 8, "an arena below 256 bytes"),
        ("fixed-size(0)", 1, "a block size of zero"),
        ("fixed-size(blocks=0)", 1, "no blocks at a time"),
        ("binning(3MiB)", 9, "a bin is a power of two"),
        ("binning(to=3MiB)", 12, "a bin is a power of two"),
        ("binning(from=8MiB)", 14, "the smallest bin is larger than the largest"),
        ("pool | cuda(gpu=1)", 17, "the stack is built on another device"),
        ("pinned(numa=4294967296)", 13, "it is larger than it can be"),
        ("pool | cuda-async(initial=2MiB, threshold=1MiB)", 8, "an initial size above the release threshold"),
        ("pool | cuda-async(initial=2MiB, maximum=1MiB)", 8, "an initial size above the maximum"),
        ("cuda-async(maximum=0)", 1, "a maximum of 0 bytes"),
        ("pool | limiting(1GiB) | aligned(3)", 25, "not a power of two"),
        ("fallback(pool | arena(100)) | cuda", 17, "an arena below 256 bytes"),
        ("fallback(null) | cuda", 10, "a source that the device may not touch"),
        ("fallback(cuda(gpu=1)) | cuda", 19, "the stack is built on another device"),
        ("pool | null", 8, "a source that the device may not touch"),
    ];
    for (line, column, wanted) in cases {
        let error = parse(line).build(&sim.device(0)).expect_err(line);
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::InvalidAlignment), "{error}");
        assert_eq!(error.column(), Some(column), "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.to_string().ends_with('^'), "{error}");
    }
    let error = parse("pool | system").build(&sim.device(0)).unwrap_err();
    assert!(error.is_unsupported() && error.unsupported_detail().is_some(), "{error}");
    assert_eq!(error.column(), Some(8), "{error}");
    let error = parse("logging(/no/such/folder/log.csv) | cuda").build(&sim.device(0)).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Unwritable, Some(1)), "{error}");
    assert!(error.to_string().contains("column 1: /no/such/folder/log.csv: "), "{error}");
    let error = parse("pool(initial=2GiB)").build(&sim.device(0)).unwrap_err();
    assert!(error.is_out_of_memory() && error.column().is_none(), "{error}");
    let live = sim.live();
    assert_eq!(
        (live.device, live.pinned, live.bytes, live.pools),
        (0, 0, 0, 0),
        "what was made has gone back"
    );
}

#[test]
fn layers_stand_over_a_source_of_your_own() {
    let sim = sim();
    let device = sim.device(0);
    let over_null = parse("binning(blocks=4) | pool").over(Null::new(&device)).unwrap();
    assert_eq!(
        over_null.describe().to_string(),
        "Binning(5 bins, 256 KiB to 4 MiB) > Pool(32 MiB) > Null(gpu 0)"
    );
    assert!(over_null.find::<Null>().is_some() && over_null.find::<SuballocBook>().is_some());
    let error = parse("pool | cuda").over(Null::new(&device)).err().expect("it has a source");
    assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some(8)), "{error}");
    let over_cuda = parse("pool(1MiB)").over_device(Cuda::new(&device)).unwrap();
    assert_eq!(over_cuda.describe().to_string(), "Pool(1 MiB) > Cuda(gpu 0)");
    assert!(parse("cuda").over_device(Cuda::new(&device)).is_err());
    // What touches blocks is not put over what has no memory.
    let error = parse("pool | guard").over(Null::new(&device)).err().expect("there is no memory");
    assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some(8)), "{error}");
    let error = parse("pool | prefetch").over(Null::new(&device)).err().expect("there is no memory");
    assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some(8)), "{error}");
    assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    let nothing = parse("").over(Null::new(&device)).unwrap();
    assert_eq!(nothing.describe().to_string(), "Null(gpu 0)");
}

#[test]
fn the_books_of_the_layers_are_found() {
    let sim = sim();
    let resource = parse("budget(512MiB, 1MiB) | limiting(50%) | pool | cuda").build(&sim.device(0)).unwrap();
    let stream = sim.device(0).stream().unwrap();
    let numbers = DeviceVec::<u8, _>::zeroed_in(2 << 20, stream.as_ref(), resource.clone()).unwrap();
    let outer = resource.find::<Allowance>().expect("a budget has one");
    assert_eq!((outer.used_bytes(), outer.soft_bytes(), outer.crossings()), (2 << 20, Some(1 << 20), 1));
    let under_it = resource.upstream().expect("it is a layer");
    let inner = (&under_it).find::<Allowance>().expect("a limit has one");
    assert_eq!((inner.used_bytes(), inner.limit_bytes()), (2 << 20, 512 << 20));
    drop(numbers);
    assert_eq!((outer.used_bytes(), inner.used_bytes()), (0, 0));
}

#[test]
fn a_second_stack_serves_what_the_first_cannot() {
    let sim = sim();
    let resource =
        parse("stats | fallback(pool | managed) | limiting(1MiB) | cuda").build(&sim.device(0)).unwrap();
    let stream = sim.device(0).stream().unwrap();
    let first = DeviceVec::<u8, _>::zeroed_in(1 << 20, stream.as_ref(), &resource).unwrap();
    let second = DeviceVec::<u8, _>::zeroed_in(1 << 20, stream.as_ref(), &resource).unwrap();
    assert_eq!(resource.find::<Fallback>().expect("a fallback has one").live_bytes(), 1 << 20);
    assert_eq!(resource.find::<Stats>().expect("it is counted").counts().bytes.live, 2 << 20);
    drop((first, second));
    // Over addresses alone, what is out of memory is served with memory.
    let over_null = parse("fallback(cuda) | limiting(1MiB)").over(Null::new(&sim.device(0))).unwrap();
    assert!(over_null.find::<Fallback>().is_some() && over_null.find::<Null>().is_some());
}

#[test]
fn a_log_is_written() {
    let path = std::env::temp_dir().join(format!("alluvion-recipe-{}.csv", std::process::id()));
    let sim = sim();
    let line = format!("logging(\"{}\", tags=true, reserved=true) | pool | cuda", path.display());
    let resource = parse(&line).build(&sim.device(0)).unwrap();
    let stream = sim.device(0).stream().unwrap();
    let numbers = || DeviceVec::<u8, _>::zeroed_in(1 << 20, stream.as_ref(), &resource).unwrap();
    drop(with_tag("job", numbers));
    resource.find::<Logging>().expect("it has a log").flush().unwrap();
    let text = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let trace = Trace::from_rmm_csv(&text[..]).unwrap();
    assert_eq!((trace.events.len(), trace.tags.last().map(String::as_str)), (2, Some("job")));
    assert_eq!(trace.moments[0].reserved_bytes, Some(2 << 20));
}

/// A cached block of 500 MB, a limit of 1 GB, and a request for 800 MB: what is cached is given back for it (cupy 7678).
#[test]
fn scenario_05_cached_memory_makes_room_under_every_limit() {
    let sim = Sim::with_config(SimConfig::default().memory_bytes(2 << 30));
    let lines = [
        "pool(maximum=1GB, growth=exact) | cuda",
        "limiting(1GB) | pool | cuda",
        "pool | limiting(1GB) | cuda",
        "pool | budget(1GB) | cuda-async",
        "limiting(1GB) | pool(maximum=1GB) | limiting(1GB) | cuda",
        "aligned(4096) | pool | limiting(1GB) | cuda",
    ];
    for line in lines {
        let resource = parse(line).build(&sim.device(0)).unwrap();
        let stream = sim.device(0).stream().unwrap();
        let bytes = |bytes| DeviceVec::<u8, _>::uninit_in(bytes, stream.as_ref(), &resource);
        drop(bytes(500_000_000).unwrap_or_else(|error| panic!("{line}: {error}")));
        let large = bytes(800_000_000).unwrap_or_else(|error| panic!("{line}: {error}"));
        let error = bytes(300_000_000).err().unwrap_or_else(|| panic!("{line}: more than the limit"));
        assert!(error.is_out_of_memory(), "{line}: {error}");
        drop(large);
        assert!(bytes(500_000_000).is_ok(), "{line}: as before");
    }
}

#[test]
fn help_and_the_list_tell_of_everything() {
    let (help, page) = (help(), include_str!("../../src/recipe/mod.rs"));
    let mut rows = page.lines().filter(|line| line.starts_with("//! | `"));
    for ingredient in ingredients() {
        let row = format!("//! | `{}` | {} |", ingredient.name(), ingredient.about());
        assert!(
            !cfg!(target_os = "linux") || rows.next() == Some(&row),
            "the documentation of the room has no row {row}"
        );
        assert!(help.contains(&format!("  {}", ingredient.name())), "{}", ingredient.name());
        assert!(help.contains(ingredient.about()), "{}", ingredient.name());
        for parameter in ingredient.parameters() {
            assert!(help.contains(parameter.about()), "{} {}", ingredient.name(), parameter.name());
            assert!(!parameter.expects().is_empty());
        }
    }
    assert!(!cfg!(target_os = "linux") || rows.next().is_none(), "it has a row too many");
    let sources: Vec<bool> = ingredients().map(|ingredient| ingredient.is_source()).collect();
    assert!(sources.is_sorted(), "layers, then sources");
    assert!(help.lines().all(|line| line.len() <= 130), "{help}");
}

/// A value that is one of its kind, by the kind's name.
fn value(expects: &str) -> BoxedStrategy<String> {
    let size = prop_oneof![
        (0_usize..1 << 50).prop_map(|bytes| bytes.to_string()),
        (0_u32..4000, prop::sample::select(vec!["k", "KiB", " MiB", "g", "GB", "kB", "TiB"]))
            .prop_map(|(count, unit)| format!("{count}{unit}")),
        (0_u8..=100).prop_map(|percent| format!("{percent}%")),
    ];
    let words: Vec<String> = expects
        .replace(" or ", ", ")
        .split(", ")
        .filter(|word| !word.contains(' '))
        .map(str::to_owned)
        .collect();
    let word = |words: Vec<String>| prop::sample::select(words);
    match expects {
        "a size" => size.boxed(),
        "a whole number" => any::<u64>().prop_map(|count| count.to_string()).boxed(),
        times if times.starts_with("a number from") => {
            let times = (100..=10_000_u32).prop_map(|hundredths| (f64::from(hundredths) / 100.0).to_string());
            prop_oneof![
                times,
                size.prop_filter("it has a unit, and is not 0", |size| {
                    size.ends_with(|c: char| c.is_alphabetic()) && !size.starts_with('0')
                })
            ]
            .boxed()
        }
        "a text" => ".{0,12}"
            .prop_map(|text: String| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
            .boxed(),
        "a recipe" => Just("pool | cuda".to_owned()).boxed(),
        both if both.ends_with("a size") => prop_oneof![word(words), size].boxed(),
        both if both.ends_with("a whole number") => {
            prop_oneof![word(words), any::<u32>().prop_map(|count| count.to_string())].boxed()
        }
        _ => word(words).boxed(),
    }
}

/// An ingredient with some of its arguments, by name and in any order, or by place.
fn step(is_source: bool) -> impl Strategy<Value = String> {
    let those: Vec<_> = ingredients().filter(|ingredient| ingredient.is_source() == is_source).collect();
    prop::sample::select(those).prop_flat_map(|ingredient| {
        let values: Vec<_> = ingredient
            .parameters()
            .iter()
            .map(|parameter| {
                let value = value(&parameter.expects());
                let is_given = if parameter.is_needed() { Just(true).boxed() } else { any::<bool>().boxed() };
                (Just(parameter.name()), value, is_given)
            })
            .collect();
        (Just(ingredient.name()), values, 0_usize..8, any::<bool>()).prop_map(
            |(name, values, by_place, snake)| {
                let mut arguments = Vec::new();
                let mut is_in_row = true;
                for (at, (parameter, value, is_given)) in values.into_iter().enumerate() {
                    is_in_row &= is_given && at < by_place;
                    if is_given {
                        arguments.push(if is_in_row { value } else { format!(" {parameter} = {value}") });
                    }
                }
                let name = if snake { name.replace('-', "_") } else { name.to_owned() };
                if arguments.is_empty() { name } else { format!("{name}({})", arguments.join(",")) }
            },
        )
    })
}

fn line() -> impl Strategy<Value = String> {
    (prop::collection::vec(step(false), 0..6), prop::option::of(step(true)))
        .prop_map(|(layers, source)| layers.into_iter().chain(source).collect::<Vec<_>>().join(" | "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(trials(2000)))]

    #[test]
    fn what_prints_is_read_as_the_same(line in line()) {
        let recipe: Recipe = line.parse().unwrap_or_else(|error: Error| panic!("{line}: {error}"));
        let plain = recipe.to_string();
        let again: Recipe = plain.parse().unwrap_or_else(|error: Error| panic!("{plain}: {error}"));
        prop_assert_eq!(&again, &recipe);
        prop_assert_eq!(again.to_string(), plain);
    }

}

/// Returns `false` for lines that write files, and for those that pin: pages of the host are made present before a driver is asked
/// whether it pins as many, and a random size is as much as this host has.
fn is_only_of_the_device(line: &str) -> bool {
    !["logging", "snapshot_on_out_of_memory", "budget", "pinned"].iter().any(|word| line.contains(word))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(trials(200)))]

    /// Whatever is written, it is built or refused, and nothing stays behind.
    #[test]
    fn whatever_is_built_goes_back(line in line().prop_filter("it writes files, or takes memory of this host", |line| is_only_of_the_device(line))) {
        let sim = Sim::with_config(Bench::config());
        let recipe: Recipe = line.parse().expect("it is a recipe");
        if let Ok(resource) = recipe.build(&sim.device(0)) {
            drop(resource);
        }
        prop_assert!(sim.hazards().is_empty(), "{}: {:?}", line, sim.hazards());
    }
}

#[test]
fn auto_is_the_best_that_the_device_has() {
    use DeviceAttribute::{MemoryPools, VirtualMemory};
    for (lacks, recipe, made) in [
        (&[][..], "pool | mapped", "Pool(0 B) > Mapped(gpu 0)"),
        (&[VirtualMemory], "pool | cuda-async", "Pool(0 B) > CudaAsync(gpu 0)"),
        (&[MemoryPools], "pool | mapped", "Pool(0 B) > Mapped(gpu 0)"),
        (&[VirtualMemory, MemoryPools], "pool | cuda", "Pool(0 B) > Cuda(gpu 0)"),
    ] {
        let config = lacks.iter().fold(SimConfig::default(), |config, &lacks| config.attribute(lacks, 0));
        let sim = Sim::with_config(config);
        let auto = Auto::of(&sim.device(0)).unwrap();
        assert_eq!(auto.recipe(), recipe);
        assert_eq!(
            auto.why().contains("no pages: the device has no virtual memory management"),
            lacks.contains(&VirtualMemory)
        );
        assert_eq!(parse("auto").build(&sim.device(0)).unwrap().describe().to_string(), made);
        assert_eq!(parse(recipe).build(&sim.device(0)).unwrap().describe().to_string(), made);
    }
}

/// Some shared GPUs say that they map pages, and do not. A device that is full, and one that is lost, is no such device.
#[test]
fn auto_tries_a_page_and_believes_what_that_says() {
    let made = |call, code| {
        let sim = Sim::with_config(SimConfig::default());
        sim.inject(Fault::every(call, code));
        let made = parse("stats | auto").build(&sim.device(0)).map(|stack| stack.describe().to_string());
        (made, sim.live())
    };
    for (call, code) in [
        (Call::MemoryCreate, Code::NOT_SUPPORTED),
        (Call::MemoryMap, Code::NOT_PERMITTED),
        (Call::MemorySetAccess, Code::INVALID_DEVICE),
    ] {
        let (made, live) = made(call, code);
        assert_eq!(made.unwrap(), "Stats(0 B) > Pool(0 B) > CudaAsync(gpu 0)");
        assert_eq!((live.reservations, live.physical, live.mappings), (0, 0, 0), "{call:?}");
    }
    let (full, live) = made(Call::MemoryCreate, Code::OUT_OF_MEMORY);
    assert!(full.unwrap_err().is_out_of_memory());
    assert_eq!((live.reservations, live.physical), (0, 0));
    let (lost, _) = made(Call::MemoryMap, Code::ILLEGAL_ADDRESS);
    assert!(lost.unwrap_err().is_context_lost());
    // An unknown error says nothing about pages.
    let (failed, live) = made(Call::MemoryMap, Code::UNKNOWN);
    assert_eq!(failed.unwrap_err().code(), Some(Code::UNKNOWN));
    assert_eq!((live.reservations, live.physical), (0, 0));
}

#[test]
fn the_peers_of_auto_are_those_of_its_source() {
    let sim = Sim::with_config(SimConfig::default().devices(2));
    let stack = parse("auto(peers=all)").build(&sim.device(0)).unwrap();
    let mapped = stack.find::<Mapped>().expect("it has pages");
    assert_eq!(mapped.config().peer_devices().len(), 1);
    let error = parse("auto(gpu=1)").build(&sim.device(0)).unwrap_err();
    assert_eq!(error.column(), Some(10), "{error}");
}

/// `registered` is in the pool that is built.
#[test]
fn segments_that_stay_are_a_word() {
    let sim = sim();
    let stack = parse("stats | pool(registered=4MiB, initial=1MiB) | mapped").build(&sim.device(0)).unwrap();
    let book = stack.find::<SuballocBook>().unwrap();
    assert_eq!(book.segments().iter().map(|segment| segment.bytes).collect::<Vec<_>>(), [2 << 20]);
    let stream = sim.device(0).stream().unwrap();
    let _numbers = DeviceVec::<u8, _>::zeroed_in(3 << 20, &stream, &stack).unwrap();
    let mut bytes: Vec<usize> = book.segments().iter().map(|segment| segment.bytes).collect();
    bytes.sort_unstable();
    assert_eq!(bytes, [2 << 20, 4 << 20]);
}

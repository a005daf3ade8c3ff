//! The headers of NVTX themselves: a program in C that includes them tells the tool the same, word for word. They are looked for where
//! `NVTX3_INCLUDE` says, and in the CUDA toolkit; where there are none this says so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use alluvion::source::Cuda;
use alluvion::tag::with_tag;
use alluvion::{PoolConfig, Resource, ResourceExt};

use crate::raw_block::{Held, layout_of};
use crate::{LOG, TOOL, announced_sim, log_of};

fn include() -> Option<PathBuf> {
    let named = env::var_os("NVTX3_INCLUDE").map(PathBuf::from);
    let places = named.into_iter().chain(["/usr/local/cuda/include".into()]);
    places.into_iter().find(|place: &PathBuf| place.join("nvtx3/nvToolsExtMem.h").exists())
}

/// A block of a pool, a refusal, and a trim.
fn use_the_library() {
    let sim = announced_sim();
    let stream = sim.device(0).stream().unwrap();
    let config = PoolConfig::default().initial(4 << 20).maximum(4 << 20);
    let pool = Cuda::new(&sim.device(0)).pool(config).unwrap();
    let block = with_tag("query", || Held::of(&pool, 1000, stream.as_ref()));
    pool.allocate(layout_of(1 << 30), stream.as_ref()).expect_err("it is more than the maximum");
    block.free(stream.as_ref());
    stream.synchronize().unwrap();
    pool.trim(0).unwrap();
}

#[test]
fn a_program_with_the_headers_tells_the_same() {
    let Some(log) = log_of("headers::a_program_with_the_headers_tells_the_same", "", use_the_library) else {
        return;
    };
    let Some(include) = include() else {
        println!("skipped: there are no headers of NVTX; NVTX3_INCLUDE may name their folder");
        return;
    };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvtx");
    let (program, its_log) = (directory.join("headers"), directory.join("headers.log"));
    let built = Command::new("cc")
        .args(["-std=gnu11", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(include)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvtx/headers.c"))
        .arg("-ldl")
        .status();
    assert!(built.expect("the compiler that programs are linked with is there").success());
    let word = |begin: &str| {
        let line = log.lines().find(|line| line.starts_with(begin)).expect("it was told");
        line.split(' ').nth(1).expect("an address").to_owned()
    };
    fs::write(&its_log, "").expect("the directory is writable");
    let status = Command::new(program)
        .args([word("heap "), word("region ")])
        .env("NVTX_INJECTION64_PATH", TOOL.as_os_str())
        .env(LOG, &its_log)
        .status();
    assert!(status.expect("it can be started").success());
    assert_eq!(log, fs::read_to_string(its_log).expect("it is there"));
}

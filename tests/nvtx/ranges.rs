//! Ranges and marks in the domain `alluvion`.

use alluvion::source::{Cuda, Mapped};
use alluvion::suballoc::Reuse;
use alluvion::tag::{Tag, with_tag};
use alluvion::testing::Stall;
use alluvion::{PoolConfig, Resource, ResourceExt};

use crate::raw_block::Held;
use crate::{announced_sim, note, told};

const MIB: usize = 1 << 20;

#[test]
fn the_ways_of_finding_memory_are_ranges_and_marks() {
    let picture = told("ranges::the_ways_of_finding_memory_are_ranges_and_marks", "", || {
        let sim = announced_sim();
        let device = sim.device(0);
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        alluvion::nvtx::start();
        let config = PoolConfig::default().maximum(4 * MIB).reuse(Reuse::Wait);
        let pool = Cuda::new(&device).pool(config).unwrap();
        let block = Held::of(&pool, 3 * MIB, first.as_ref());
        // Not over before the other stream has to wait for it.
        let stall = Stall::on(first.as_ref());
        block.free(first.as_ref());
        let stolen = with_tag("query", || Held::of(&pool, 3 * MIB, second.as_ref()));
        pool.allocate(stolen.layout, second.as_ref()).expect_err("there is no room");
        drop(stall);
        stolen.free(second.as_ref());
        second.synchronize().unwrap();
        pool.trim(0).unwrap();
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    for wanted in ["grow", "query", "steal", "wait on the device", "out of memory", "trim"] {
        assert!(picture.told.iter().any(|told| told == wanted), "{wanted}: {:?}", picture.told);
    }
}

#[test]
fn scopes_are_ranges_also_where_they_panic() {
    let picture = told("ranges::scopes_are_ranges_also_where_they_panic", "", || {
        let heard = alluvion::nvtx::start();
        assert!(heard.ranges() && heard.memory());
        with_tag("outer", || with_tag("inner", || ()));
        let thrown =
            std::panic::catch_unwind(|| with_tag("torn", || std::panic::resume_unwind(Box::new(()))));
        assert!(thrown.is_err());
        // What no closure bounds, from one path to another.
        let first = Tag::NONE.within("a").within("b");
        let second = Tag::NONE.within("a").within("c").within("d");
        assert_eq!(first.make_current(), Tag::NONE);
        assert_eq!(second.make_current(), first);
        note("mark 0 now d");
        Tag::NONE.make_current();
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert_eq!(picture.told, ["outer", "inner", "torn", "a", "b", "c", "d", "now d"]);
}

/// A tool that begins late hears of no end whose beginning it has not heard of.
#[test]
fn a_scope_that_began_before_the_tool_is_none_to_it() {
    let picture = told("ranges::a_scope_that_began_before_the_tool_is_none_to_it", "", || {
        with_tag("before", || {
            alluvion::nvtx::start();
            with_tag("after", || ());
        });
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert_eq!(picture.told, ["after"]);
}

#[test]
fn pages_that_move_are_marks() {
    let picture = told("ranges::pages_that_move_are_marks", "", || {
        let sim = announced_sim();
        let (device, page) = (sim.device(0), 2 * MIB);
        let stream = device.stream().unwrap();
        let pool = Mapped::new(&device).unwrap().pool(PoolConfig::default().maximum(4 * page)).unwrap();
        let blocks = [(); 4].map(|()| Held::of(&pool, page, stream.as_ref()));
        let [first, second, third, fourth] = blocks;
        first.free(stream.as_ref());
        third.free(stream.as_ref());
        stream.synchronize().unwrap();
        let long = Held::of(&pool, 2 * page, stream.as_ref());
        for block in [second, fourth, long] {
            block.free(stream.as_ref());
        }
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert!(picture.told.iter().any(|told| told == "move"), "{:?}", picture.told);
}

//! What a tag costs on the heap.

use alluvion::source::Null;
use alluvion::tag::with_tag;
use alluvion::testing::Bench;
use alluvion::{Resource, ResourceExt};

use crate::heap::heap_of;
use crate::raw_block::layout_of;

/// A thread takes memory for the tags that it uses, whatever their numbers are: those count the tags of all threads.
#[test]
fn tags_take_memory_by_how_many_a_thread_uses() {
    for number in 0..20_000 {
        with_tag(&format!("request {number}"), || ());
    }
    let bench = Bench::sim();
    let bytes_of = |tags: std::ops::Range<usize>| {
        let (stats, used) = (Null::new(&bench.device()).stats(), tags.len());
        // What any thread takes.
        stats.allocate_sync(layout_of(1)).unwrap();
        let names: Vec<_> = tags.map(|number| format!("request {number}")).collect();
        let allocate = |name| with_tag(name, || stats.allocate_sync(layout_of(1)).is_ok());
        let (_, bytes) = heap_of(|| assert!(names.iter().all(|name| allocate(name))));
        // That of no tag among them.
        assert_eq!(stats.book().by_tag().len(), used + 1);
        bytes
    };
    let (low, high, many) = (bytes_of(0..1), bytes_of(19_999..20_000), bytes_of(18_000..19_000));
    assert_eq!(low, high);
    assert!(low < 8 << 10, "{low} bytes for one tag");
    assert!(many < 200 * 1000, "{many} bytes for a thousand");
}

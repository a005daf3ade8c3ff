//! What belongs to a captured graph.

use std::ptr::null_mut;

use calluvion::*;

use crate::support::*;

#[test]
fn a_graph_keeps_what_was_used_inside_until_it_is_gone() {
    let sim = Sim::new(1);
    let (stack, bare) = (sim.recipe("stats | pool | cuda"), sim.recipe("cuda"));
    let stream = sim.stream();
    let (mut memory, mut block, mut given_back) = (std::ptr::dangling_mut(), null_mut(), 7);
    // SAFETY: live handles and places; the graph touches memory of its own.
    unsafe {
        let raw = alv_stream_handle(stream);
        assert_eq!(alv_capture_raw(stack, raw, &raw mut memory), ALV_INVALID_ARGUMENT, "it captures nothing");
        assert!(memory.is_null());
        assert_eq!(alv_sim_begin_capture(sim.0, 0, raw), ALV_OK);
        assert_eq!(alv_sim_begin_capture(sim.0, 0, raw), ALV_FOREIGN);
        assert_eq!(alv_capture_raw(bare, raw, &raw mut memory), ALV_UNSUPPORTED);
        assert_eq!(alv_capture_raw(stack, raw, &raw mut memory), ALV_OK);
        assert_eq!(alv_allocate_raw(stack, 1000, 0, raw, &raw mut block), ALV_OK);
        assert_eq!(alv_fill_raw(stack, block, 7, 1000, raw), ALV_OK);
        assert_eq!(alv_sim_end_capture(sim.0, 0, raw), ALV_OK);
        assert_eq!(alv_sim_end_capture(sim.0, 0, raw), ALV_FOREIGN);
        assert_eq!((alv_graph_memory_end(memory), alv_graph_memory_bytes(memory)), (ALV_OK, 2 << 20));
        assert_eq!(alv_graph_memory_end(memory), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_graph_memory_give_back(memory, &raw mut given_back), ALV_IN_USE);
        assert_eq!(given_back, 7);
        alv_deallocate_raw(stack, block, 1000, 0, raw);
        assert_eq!(alv_graph_memory_retain(memory), memory);
        alv_graph_memory_release(memory);
        assert_eq!(alv_graph_memory_give_back(memory, &raw mut given_back), ALV_OK);
        assert_eq!((given_back, alv_graph_memory_bytes(memory)), (2 << 20, 0));
        assert_eq!(alv_graph_memory_give_back(memory, null_mut()), ALV_OK);
        alv_graph_memory_release(memory);
        alv_stream_release(stream);
    }
    [bare, stack].into_iter().for_each(release);
}

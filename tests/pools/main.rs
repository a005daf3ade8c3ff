//! Pools, arenas, bins and blocks of one size, by what they are asked for.

#[path = "../support/every_source.rs"]
mod every_source;
#[path = "../support/raw_block.rs"]
mod raw_block;

mod aliases;
mod asking;
mod at_once;
mod beside_sleepers;
mod captures_of_others;
mod edges;
mod exact_sizes;
mod faults;
mod graph_programs;
mod graph_rig;
mod graphs;
mod growing_bins;
mod in_place;
mod input;
mod left_to_graphs;
mod many_streams;
mod misuse;
mod out_of_memory;
mod page_books;
mod paged;
mod pages;
mod segments;
mod sleep;
mod sleep_copies;
mod sleep_meanwhile;
mod sleep_on_disk;
mod snapshots;
mod stack_graphs;
mod stack_sleep;
mod steals;
mod suballocator_input;
mod too_large;
mod upstreams;

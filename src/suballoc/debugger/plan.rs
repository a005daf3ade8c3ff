//! `Plan`: where in the data of a suballocator the fields are that a debugger follows.

/// Makes the struct, and the list of its fields, which the script is held against.
macro_rules! plan {
    ($($(#[$about:meta])* $field:ident,)*) => {
        /// Where in the data of a suballocator the fields are that a debugger follows: offsets and sizes in bytes, and the few numbers
        /// that the data is written with. The compiler places the fields as it likes, anew in each build.
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub(in crate::suballoc) struct Plan {
            $($(#[$about])* pub(in crate::suballoc) $field: u32,)*
        }

        impl Plan {
            /// To be filled in by those who know.
            pub(in crate::suballoc) const BLANK: Self = Self { $($field: 0,)* };
        }

        #[cfg(all(test, not(loom)))]
        const FIELDS: &[&str] = &[$(stringify!($field),)*];
    };
}

plan! {
    /// The bytes of a unit.
    unit,
    /// The nodes of a chunk, of which the array of nodes has addresses.
    chunk_nodes,
    node_bytes,
    node_address,
    node_epoch,
    node_units,
    node_before,
    node_after,
    node_holder,
    /// Holders that are no owner: see `Owner`.
    holder_out,
    holder_vacant,
    holder_absent,
    holder_moving,
    holder_asleep,
    holder_hollow,
    /// The places that the array of owners leads to.
    owner_bytes,
    owner_stream,
    /// From the beginning of a cache.
    cache_shown,
    cache_heads,
    /// How many stacks a cache has.
    cache_stacks,
    /// The address of its large blocks, or 0.
    cache_large,
    /// Which of them are there, a bit each.
    cache_large_full,
    cache_hits,
    cache_misses,
    entry_bytes,
    entry_address,
    entry_link,
    large_bytes,
    large_address,
    large_epoch,
    /// How many bits of the number of a stream are its place, and its generation.
    stream_place_bits,
    stream_generation_bits,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The script has the same fields, in the same order.
    #[test]
    fn the_script_reads_the_same_fields() {
        let script = include_str!("../../../gdb/alluvion.py");
        let (_, rest) = script.split_once("PLAN = \"\"\"").expect("it has a list of the fields");
        let (list, _) = rest.split_once("\"\"\"").expect("the list ends");
        assert_eq!(list.split_whitespace().collect::<Vec<_>>(), FIELDS);
    }
}

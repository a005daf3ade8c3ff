//! `alluvion export` from outside: each format is read back.

mod memory_viz;
mod pickle;
#[path = "../program/mod.rs"]
mod program;
mod text_formats;
mod usage;

/// A log without tags: what is reserved is what a pool does with it.
const PLAIN: &str = "Thread,Time,Action,Pointer,Size,Stream
590,23:59:59.999990,allocate,0x302000000,1000000,0
591,23:59:59.999995,allocate,0x302200000,300,0x7f65
590,00:00:00.000005,free,0x302000000,1000000,0
590,00:00:00.000006,allocate,0x302000000,2000000,0
590,00:00:00.000007,allocate failure,(nil),99999999999,0
";

/// A log that says all that one can: tags, and what was reserved.
const TAGGED: &str = "Thread,Time,Action,Pointer,Size,Stream,Tag,Reserved
590,09:00:00.000001,allocate,0x302000000,1000,0,query;join,2097152
590,09:00:00.000002,allocate,0x302000400,10,0,query,2097152
590,09:00:00.000003,allocate,0x302600000,100,0x9,,4194304
590,09:00:00.000004,free,0x302000000,1000,0,,4194304
590,09:00:00.000005,allocate failure,(nil),4096,0,query;sort,4194304
590,09:00:00.000006,free,0x302000400,10,0,,2097152
590,09:00:00.000007,free,0x302600000,100,0x9,,
590,09:00:00.000008,allocate,0x302000000,512,0,query;join,2097152
";

const SNAPSHOT: &str = r#"{"format": "alluvion-snapshot", "version": 1, "unix_microseconds": 1700000000000000,
"device": {"driver": "cuda", "ordinal": 2},
"status": {"live_bytes": 768, "live_blocks": 2, "free_bytes": 512, "cached_bytes": 256, "pending_bytes": 512,
 "reserved_bytes": 1536, "peak_reserved_bytes": 4096, "largest_free_bytes": 256, "metadata_bytes": 100, "hits": 7,
 "misses": 6, "steals": 5, "waits": 4, "events_recorded": 3, "upstream_calls": 2},
"out_of_memory": {"cause": "limit", "requested_bytes": 9999, "message": "out of memory", "align": 256},
"segments": [{"address": "0x302000000", "bytes": 1280}, {"address": "0x302200000", "bytes": 256}],
"blocks": [
 {"address": "0x302000000", "bytes": 512, "state": "live", "tag": "query;join"},
 {"address": "0x302000200", "bytes": 256, "state": "live"},
 {"address": "0x302000300", "bytes": 256, "state": "cached", "stream": "0:1"},
 {"address": "0x302000400", "bytes": 256, "state": "pending", "stream": "0:2", "epoch": 9},
 {"address": "0x302200000", "bytes": 256, "state": "free"}]}
"#;

/// Logs of real programs, with their live peaks.
fn real_traces() -> [(String, u64); 2] {
    [("etl", 394_289_152), ("streams", 1_335_353_856)]
        .map(|(name, peak)| (format!("{}/../tests/traces/{name}.csv.gz", env!("CARGO_MANIFEST_DIR")), peak))
}

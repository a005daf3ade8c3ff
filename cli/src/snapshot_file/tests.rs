//! What a file must be to be believed.

use super::*;

/// A snapshot of two segments; `change` makes it wrong.
fn with(change: impl FnOnce(&mut serde_json::Value)) -> Result<SnapshotFile, String> {
    let mut file = serde_json::json!({
        "format": "alluvion-snapshot",
        "version": 1,
        "unix_microseconds": 1_700_000_000_000_000_u64,
        "device": {"driver": "sim", "ordinal": 0},
        "status": {
            "live_bytes": 256, "live_blocks": 1, "free_bytes": 512, "cached_bytes": 256, "pending_bytes": 256,
            "reserved_bytes": 1024, "peak_reserved_bytes": 1024, "largest_free_bytes": 256,
            "metadata_bytes": 1000, "hits": 1, "misses": 2, "steals": 3, "waits": 4, "events_recorded": 5,
            "upstream_calls": 6, "of a later version": 7
        },
        "segments": [{"address": "0x1000", "bytes": 768}, {"address": "0x1300", "bytes": 256}],
        "blocks": [
            {"address": "0x1000", "bytes": 256, "state": "live", "tag": "query;join"},
            {"address": "0x1100", "bytes": 256, "state": "cached", "stream": "0:1"},
            {"address": "0x1200", "bytes": 256, "state": "pending", "stream": "0:2", "epoch": 3},
            {"address": "0x1300", "bytes": 256, "state": "free"}
        ]
    });
    change(&mut file);
    SnapshotFile::read(file.to_string().as_bytes())
}

#[test]
fn what_fits_together_is_read() {
    let file = with(|_| ()).expect("it fits together");
    assert_eq!(file.blocks[0].tag, "query;join");
    assert_eq!(file.blocks[2].state, State::Pending { stream: "0:2".to_owned(), epoch: 3 });
    assert_eq!(
        file.blocks.iter().map(|block| block.state.stream()).collect::<Vec<_>>(),
        [None, Some("0:1"), Some("0:2"), None]
    );
    let tiles: Vec<_> = file.tiles().map(|(segment, blocks)| (segment.address, blocks.len())).collect();
    assert_eq!(tiles, [(0x1000, 3), (0x1300, 1)], "segments may touch");
    assert_eq!(file.status.upstream_calls, 6);
}

#[test]
fn figures_of_pages_and_of_sleep_may_be_left_out() {
    let older = with(|_| ()).expect("it fits together").status;
    assert_eq!([older.pages, older.moves, older.moved_bytes, older.graph_bytes, older.asleep_bytes], [0; 5]);
    let names = ["pages", "moves", "moved_bytes", "graph_bytes", "asleep_bytes"];
    let later = with(|file| {
        for (name, number) in names.into_iter().zip(1..) {
            file["status"][name] = number.into();
        }
    });
    let status = later.expect("it fits together").status;
    let library = status.in_library();
    assert_eq!([library.pages, library.graph_bytes, library.asleep_bytes], [1, 4, 5]);
    assert_eq!([library.moves, library.moved_bytes], [2, 3]);
    let passed_on = serde_json::to_value(status).unwrap();
    assert_eq!(names.map(|name| passed_on[name].as_u64()), [1, 2, 3, 4, 5].map(Some));
}

#[test]
fn what_does_not_fit_is_told() {
    type Change = fn(&mut serde_json::Value);
    let wrong: [(Change, &str); 19] = [
        (|file| file["format"] = "other".into(), "its format is `other`"),
        (|file| file["version"] = 2.into(), "its version is 2"),
        (|file| file["segments"] = 3.into(), "it is no snapshot: invalid type"),
        (|file| file["status"]["hits"] = (-1).into(), "it is no snapshot: invalid value"),
        (|file| drop(file["device"].as_object_mut().unwrap().remove("ordinal")), "missing field `ordinal`"),
        (|file| file["segments"][0]["bytes"] = 0.into(), "the segment at 0x1000 is empty"),
        (|file| file["segments"][0]["bytes"] = 769.into(), "0x1300 begins before the one before it ends"),
        (|file| file["segments"][1]["bytes"] = u64::MAX.into(), "ends beyond all addresses"),
        (|file| file["segments"][1]["address"] = "1300".into(), "the address of a segment is `1300`"),
        (|file| file["segments"][1]["address"] = "0x".into(), "the address of a segment is `0x`"),
        (|file| file["blocks"][1]["address"] = "0x1\n".into(), "the address of a block is `0x1\\n`"),
        (|file| file["blocks"][1]["address"] = "0x1180".into(), "is at 0x1180 where one should be at 0x1100"),
        (|file| file["blocks"][2]["bytes"] = 512.into(), "has 512 bytes, in a segment that has 256"),
        (|file| file["blocks"][0]["bytes"] = 0.into(), "the block at 0x1000 has 0 bytes"),
        (|file| drop(file["blocks"].as_array_mut().unwrap().pop()), "no block is at 0x1300"),
        (|file| drop(file["segments"].as_array_mut().unwrap().pop()), "the block at 0x1300 is in no segment"),
        (|file| file["blocks"][0]["state"] = "lost".into(), "the block at 0x1000 is `lost`"),
        (|file| file["blocks"][3]["stream"] = "0:1".into(), "the block at 0x1300 is free, and such have no"),
        (
            |file| drop(file["blocks"][2].as_object_mut().unwrap().remove("epoch")),
            "is pending without a stream and an epoch",
        ),
    ];
    for (change, words) in wrong {
        let error = with(change).expect_err(words);
        assert!(error.contains(words), "{error:?} does not say {words:?}");
    }
}

#[test]
fn nothing_is_a_snapshot_too() {
    let empty = with(|file| {
        file["segments"] = serde_json::json!([]);
        file["blocks"] = serde_json::json!([]);
    });
    assert_eq!(empty.expect("a pool may have nothing").tiles().count(), 0);
}

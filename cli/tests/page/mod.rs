//! A page that the program has written, taken apart again.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use alluvion::trace::{EventKind, Trace};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::MultiGzDecoder;
use serde_json::Value;

pub(crate) fn alluvion(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_alluvion")).args(arguments).output().expect("the program starts")
}

/// A trace of the project.
pub(crate) fn trace_path(name: &str) -> String {
    format!("{}/../tests/traces/{name}.csv.gz", env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn snapshot_path(name: &str) -> String {
    format!("{}/../tests/snapshots/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read_trace(path: &str) -> Trace {
    let mut text = Vec::new();
    let file = fs::File::open(path).expect("the trace is there");
    MultiGzDecoder::new(file).read_to_end(&mut text).expect("it is packed");
    Trace::from_rmm_csv(&text[..]).expect("it is well formed")
}

/// A file that only this test uses.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("viz");
    fs::create_dir_all(&folder).expect("the folder can be made");
    folder.join(name)
}

/// What the page carries.
pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) heading: Value,
    pub(crate) columns: Vec<u8>,
}

/// Draws `input` to the scratch file `name`, and returns where that is.
#[track_caller]
fn write(name: &str, input: &str, more: &[&str]) -> String {
    let output = scratch(name);
    let output = output.to_str().expect("its name is text");
    let done = alluvion(&[&["viz", input, "-o", output], more].concat());
    let errors = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{errors}");
    assert!(errors.is_empty(), "{errors}");
    let said = String::from_utf8(done.stdout).expect("it prints text");
    assert!(said.starts_with(output) && said.lines().count() == 1, "{said}");
    output.to_owned()
}

/// The pieces of data that a page carries, each packed by itself.
fn packed(text: &str) -> Vec<Vec<u8>> {
    let pieces = text.split("<script type=\"application/octet-stream\" class=\"data\">").skip(1);
    let decode = |piece: &str| {
        let (piece, _) = piece.split_once("</script>").expect("each piece ends");
        BASE64_STANDARD.decode(piece).expect("each piece is base64")
    };
    pieces.map(decode).collect()
}

/// The place of a block that is nowhere.
pub(crate) const NOWHERE: u64 = u64::MAX;

impl Page {
    /// Draws `input` to the scratch file `name`, and takes the page apart.
    #[track_caller]
    pub(crate) fn draw(name: &str, input: &str, more: &[&str]) -> Self {
        Self::open(&write(name, input, more))
    }

    /// Draws a log of several devices: what the list says of each, and the part of each.
    #[track_caller]
    pub(crate) fn draw_devices(name: &str, input: &str, more: &[&str]) -> (Vec<Value>, Vec<Self>) {
        let text = fs::read_to_string(write(name, input, more)).expect("the page is there");
        let (_, list) = text
            .split_once("<script type=\"application/json\" id=\"devices-data\">")
            .expect("it has a list of devices");
        let (list, _) = list.split_once("</script>").expect("the list ends");
        let list: Vec<Value> = serde_json::from_str(list).expect("it is a list");
        let pieces = packed(&text);
        let mut rest = &pieces[..];
        let mut parts = Vec::new();
        for device in &list {
            let (part, after) = rest.split_at(device["pieces"].as_u64().expect("a number") as usize);
            parts.push(Self::unpack(String::new(), &part.concat()));
            rest = after;
        }
        assert!(rest.is_empty(), "each piece is of a device");
        (list, parts)
    }

    #[track_caller]
    pub(crate) fn open(path: &str) -> Self {
        let text = fs::read_to_string(path).expect("the page is there");
        let packed = packed(&text).concat();
        Self::unpack(text, &packed)
    }

    fn unpack(text: String, packed: &[u8]) -> Self {
        let mut bytes = Vec::new();
        MultiGzDecoder::new(packed).read_to_end(&mut bytes).expect("together they are packed");
        let length = u32::from_le_bytes(bytes[..4].try_into().expect("it has a length")) as usize;
        let heading = serde_json::from_slice(&bytes[4..4 + length]).expect("it has a heading");
        Self { text, heading, columns: bytes.split_off(4 + length) }
    }

    pub(crate) fn column(&self, name: &str) -> Vec<u64> {
        let place = &self.heading["columns"][name];
        let number = |key: &str| place[key].as_u64().expect("the column has it") as usize;
        let width = match place["type"].as_str().expect("the column has a type") {
            "u8" => 1,
            "u16" => 2,
            "u32" => 4,
            other => panic!("{other}"),
        };
        let bytes = &self.columns[number("at")..][..number("count") * width];
        let of = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        bytes.chunks(width).map(of).collect()
    }

    pub(crate) fn wide(&self, name: &str) -> Vec<u64> {
        let mut numbers = self.column(&format!("{name}.low"));
        let high = format!("{name}.high");
        if !self.heading["columns"][&high].is_null() {
            for (number, high) in numbers.iter_mut().zip(self.column(&high)) {
                *number |= high << 32;
            }
        }
        numbers
    }

    /// Of each event, its block and whether it frees it.
    pub(crate) fn events(&self) -> Vec<(u32, EventKind)> {
        let mut known = 0;
        let back = self.column("event.back").into_iter();
        back.map(|back| match back {
            0 => {
                known += 1;
                (known - 1, EventKind::Allocate)
            }
            _ => (known - back as u32, EventKind::Free),
        })
        .collect()
    }

    /// The address of each block, if it is anywhere.
    pub(crate) fn addresses(&self) -> Vec<Option<u64>> {
        let (places, lengths) = (self.wide("region.place"), self.wide("region.bytes"));
        let starts: Vec<u64> =
            self.texts("regions").iter().map(|start| u64::from_str_radix(&start[2..], 16).unwrap()).collect();
        let address = |place: u64| {
            let at = places.partition_point(|begin| *begin <= place) - 1;
            assert!(place - places[at] < lengths[at], "place {place} is in a region");
            starts[at] + (place - places[at])
        };
        self.wide("block.place").into_iter().map(|place| (place != NOWHERE).then(|| address(place))).collect()
    }

    pub(crate) fn texts(&self, key: &str) -> Vec<String> {
        let texts = self.heading[key].as_array().expect("it is a list");
        texts.iter().map(|text| text.as_str().expect("of texts").to_owned()).collect()
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.heading[key].as_str().expect("it is a text")
    }

    /// Plays the page's events, and calls `each` after each with the blocks that are there: where each begins, where it ends,
    /// and its number. Panics if two overlap.
    pub(crate) fn play(&self, mut each: impl FnMut(usize, &BTreeMap<u64, (u64, u32)>)) {
        let (sizes, places) = (self.wide("block.bytes"), self.wide("block.place"));
        let unit = self.heading["unit"].as_u64().unwrap();
        let (covered, since) = (self.column("covered.block"), self.column("covered.step"));
        let mut covered = since.into_iter().zip(covered).peekable();
        let mut there = BTreeMap::new();
        let mut gone = std::collections::HashSet::new();
        for (step, (block, kind)) in self.events().into_iter().enumerate() {
            while let Some((_, block)) = covered.next_if(|(since, _)| *since <= step as u64) {
                there.remove(&places[block as usize]);
                gone.insert(block as u32);
            }
            let place = places[block as usize];
            match kind {
                _ if place == NOWHERE || gone.contains(&block) => {}
                EventKind::Allocate => {
                    let end = place + sizes[block as usize].next_multiple_of(unit);
                    if let Some((_, (before, other))) = there.range(..end).next_back() {
                        assert!(*before <= place, "step {step}: {block} lies over {other}");
                    }
                    there.insert(place, (end, block));
                }
                EventKind::Free => assert_eq!(there.remove(&place).map(|(_, number)| number), Some(block)),
            }
            each(step, &there);
        }
    }
}

//! What a tool has been told, line by line, and whether it is right at each moment.

use std::collections::BTreeMap;

/// What the tool knows: each piece by its address.
#[derive(Default)]
pub(crate) struct Picture {
    heaps: BTreeMap<u64, u64>,
    regions: BTreeMap<u64, u64>,
    names: BTreeMap<u64, String>,
    depth: usize,
    /// Marks, and ranges that began.
    pub(crate) told: Vec<String>,
    /// The most regions at once, and registers, resizes and unregisters.
    pub(crate) most: usize,
    pub(crate) registers: usize,
    pub(crate) resizes: usize,
    pub(crate) unregisters: usize,
    pub(crate) heaps_seen: Vec<String>,
    /// Pieces of which the tool was told that they are written, in their order.
    pub(crate) written: Vec<(u64, u64)>,
}

/// Whether a piece lies in one of `pieces` as a whole.
fn is_in(pieces: &BTreeMap<u64, u64>, address: u64, bytes: u64) -> bool {
    let around = pieces.range(..=address).next_back();
    around.is_some_and(|(from, length)| address + bytes <= from + length)
}

/// Whether a piece touches one of `pieces`.
fn overlaps(pieces: &BTreeMap<u64, u64>, address: u64, bytes: u64) -> bool {
    let before = pieces.range(..address + bytes).next_back();
    before.is_some_and(|(from, length)| from + length > address)
}

impl Picture {
    /// The picture at the end of a log. Panics at the first line that is wrong.
    pub(crate) fn of(log: &str) -> Self {
        let mut picture = Self::default();
        for (number, line) in log.lines().enumerate() {
            if let Err(fault) = picture.follow(line) {
                let first = number.saturating_sub(20);
                let before: Vec<&str> = log.lines().skip(first).take(number + 1 - first).collect();
                panic!("{fault}:\n{}", before.join("\n"));
            }
        }
        picture
    }

    fn follow(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split(' ').collect();
        let address = |at: usize| u64::from_str_radix(words[at], 16).expect("an address");
        let bytes = |at: usize| words[at].parse::<u64>().expect("a number");
        let require = |holds: bool, fault: &str| if holds { Ok(()) } else { Err(fault.to_owned()) };
        match words[0] {
            "domain" => require(words[1] == "alluvion", "another domain")?,
            "began" => {}
            "heap" => {
                let (from, length) = (address(1), bytes(2));
                require(!overlaps(&self.heaps, from, length), "a heap over a heap")?;
                self.heaps.insert(from, length);
                self.heaps_seen.push(words[3].to_owned());
            }
            "unheap" => {
                let from = address(1);
                let length = self.heaps.remove(&from).ok_or("the end of no heap")?;
                require(!overlaps(&self.regions, from, length), "a heap ends with regions in it")?;
            }
            "region" => {
                let (from, length, heap) = (address(1), bytes(2), address(3));
                require(length > 0, "an empty region")?;
                require(!overlaps(&self.regions, from, length), "a region over a region")?;
                let around = self.heaps.get(&heap).ok_or("a region of no heap")?;
                require(heap <= from && from + length <= heap + around, "a region outside of its heap")?;
                self.regions.insert(from, length);
                self.registers += 1;
                self.most = self.most.max(self.regions.len());
            }
            "resize" => {
                let (from, length) = (address(1), bytes(2));
                self.regions.remove(&from).ok_or("a resize of no region")?;
                require(!overlaps(&self.regions, from, length), "a region grows over a region")?;
                require(is_in(&self.heaps, from, length), "a region grows out of its heap")?;
                self.regions.insert(from, length);
                self.resizes += 1;
            }
            "written" => {
                let piece = (address(1), bytes(2));
                require(is_in(&self.regions, piece.0, piece.1), "what was written is in no region")?;
                self.written.push(piece);
            }
            "unregion" => {
                self.regions.remove(&address(1)).ok_or("the end of no region")?;
                self.names.remove(&address(1));
                self.unregisters += 1;
            }
            "name" => {
                require(self.regions.contains_key(&address(1)), "the name of no region")?;
                self.names.insert(address(1), words[2..].join(" "));
            }
            "mark" => self.told.push(words[2..].join(" ")),
            "push" => {
                self.depth += 1;
                self.told.push(words[2..].join(" "));
            }
            "pop" => self.depth = self.depth.checked_sub(1).ok_or("the end of no range")?,
            // What the program under test knows.
            "live" => {
                let known = self.regions.get(&address(1)).ok_or("a live block is no region")?;
                require(*known == bytes(2), "a live block has another length")?;
                if let Some(name) = words.get(3) {
                    let known = self.names.get(&address(1)).map_or("", String::as_str);
                    require(known == *name, "a live block has another name")?;
                }
            }
            "inside" => {
                require(is_in(&self.regions, address(1), bytes(2)), "what may be used is in no region")?;
            }
            "dead" => {
                require(
                    !overlaps(&self.regions, address(1), bytes(2)),
                    "what may not be used is in a region",
                )?;
            }
            "unheard" => require(!overlaps(&self.heaps, address(1), bytes(2)), "a heap of what is none")?,
            _ => return Err("what the tool found is wrong".to_owned()),
        }
        Ok(())
    }

    /// Nothing is left: all that was registered is not any more.
    pub(crate) fn assert_empty(&self) {
        assert!(self.heaps.is_empty() && self.regions.is_empty(), "{:x?} {:x?}", self.heaps, self.regions);
        assert_eq!((self.registers, self.depth), (self.unregisters, 0));
    }
}

#[test]
#[should_panic(expected = "a region over a region")]
fn an_overlap_is_noticed() {
    Picture::of("heap 1000 4096 Pool\nregion 1000 256 1000\nregion 10ff 8 1000");
}

#[test]
#[should_panic(expected = "a heap ends with regions in it")]
fn a_region_that_is_left_is_noticed() {
    Picture::of("heap 1000 4096 Pool\nregion 1100 256 1000\nunheap 1000");
}

//! Checks every access when it is submitted, and reports hazards.
//!
//! An access is judged by the submitted order, not by the work that has run: it may touch a byte if every conflicting access
//! before it is ordered before it, by its stream, by events, by the legacy stream's rules, or because the host has waited for it.
//! Work that a host function may have reported to the host counts as waited for, too.

use std::collections::HashMap;
use std::sync::Arc;

use super::allocation::AllocationKind;
use super::backing::BackingId;
use super::clock::{LaneClock, Point};
use super::hazard::{Access, AccessMode, Hazard, HazardKind, StreamLabel};
use super::history::History;
use super::machine::SimMachine;
use super::memory::{AccessRefusal, Accessor, DEVICE_START};
use crate::driver::{Call, DeviceAttribute};

/// The most hazards that are kept.
const HAZARDS_KEPT: usize = 4096;

/// The history of every byte that work may access.
#[derive(Debug, Default)]
pub(super) struct Watch {
    histories: HashMap<BackingId, History>,
    /// The history of ordinary memory of the host, by address.
    pageable: History,
}

impl Watch {
    pub(super) fn forget(&mut self, backing: BackingId) {
        self.histories.remove(&backing);
    }
}

/// The edge that the second access lacks, in words.
fn missing_edge(first: &Access, second: &Access) -> String {
    let (from, to, submission) = (first.place(), second.place(), first.submission);
    if second.stream == StreamLabel::Host {
        return format!(
            "the host has not waited for {from}, nor for an event recorded on it after #{submission}"
        );
    }
    format!(
        "{to} never waited for an event recorded on {from} after #{submission}, and the host did not wait in between"
    )
}

impl SimMachine {
    pub(super) fn report(&mut self, hazard: Hazard) {
        if self.process.hazards.len() < HAZARDS_KEPT {
            self.process.hazards.push(hazard);
        }
    }

    /// Reports two accesses that should have been ordered.
    fn report_pair(&mut self, kind: HazardKind, first: &Access, second: &Access) {
        let missing = missing_edge(first, second);
        self.report(Hazard { kind, first: Some(first.clone()), second: Some(second.clone()), missing });
    }

    /// Checks an access that is ordered after `needs`, and records it.
    pub(super) fn watch(&mut self, access: Access, accessor: Accessor, needs: &LaneClock) {
        if let Some(hazard) = self.judge(&access, accessor) {
            self.report(hazard);
        }
        self.check_ready(&access, needs);
        if access.mode != AccessMode::Touch {
            self.check_races(&Arc::new(access), needs);
        }
    }

    /// The hazard of an access to a wrong address, if it is one.
    pub(super) fn judge(&self, access: &Access, accessor: Accessor) -> Option<Hazard> {
        let (address, bytes) = (access.address, access.bytes);
        let hazard = |kind, first: Option<&Access>, missing: String| {
            Some(Hazard { kind, first: first.cloned(), second: Some(access.clone()), missing })
        };
        if address < DEVICE_START && !self.process.memory.is_mapped(address) {
            return match accessor {
                Accessor::Kernel(ordinal)
                    if self.has(ordinal, DeviceAttribute::PageableMemoryAccess).is_err() =>
                {
                    match self.process.allocations.freed_containing(address) {
                        Some(freed) => {
                            hazard(HazardKind::UseAfterFree, Some(&freed.freed), "the memory is gone".into())
                        }
                        None => hazard(
                            HazardKind::OutOfBounds,
                            None,
                            format!("gpu {ordinal} cannot reach ordinary memory of the host"),
                        ),
                    }
                }
                _ => None,
            };
        }
        match self.process.memory.pieces(address, bytes, accessor, access.mode == AccessMode::Write) {
            Err(AccessRefusal::Forbidden(at)) => {
                return hazard(
                    HazardKind::NoAccess,
                    None,
                    format!("what is mapped at {at:#x} was not opened to it"),
                );
            }
            Err(AccessRefusal::Unmapped(at)) if self.process.allocations.containing(address).is_none() => {
                return match self.process.allocations.freed_containing(at) {
                    Some(freed) if freed.kind == AllocationKind::Mapped => hazard(
                        HazardKind::UseAfterFree,
                        Some(&freed.freed),
                        format!("nothing is mapped at {at:#x} any more"),
                    ),
                    Some(freed) => {
                        hazard(HazardKind::UseAfterFree, Some(&freed.freed), "the memory is gone".into())
                    }
                    None => hazard(HazardKind::OutOfBounds, None, format!("nothing is mapped at {at:#x}")),
                };
            }
            Err(AccessRefusal::Unmapped(_)) | Ok(_) => {}
        }
        if let Some((start, allocation)) = self.process.allocations.containing(address) {
            let left = start + allocation.bytes;
            let over = address.saturating_add(bytes).saturating_sub(left);
            return match over {
                0 => self.judge_in_blocks(access),
                _ => hazard(
                    HazardKind::OutOfBounds,
                    Some(&allocation.made),
                    format!("it ends {over} bytes behind the end of the allocation"),
                ),
            };
        }
        if self.process.memory.is_virtual(address) {
            return self.judge_in_blocks(access);
        }
        match self.process.allocations.freed_containing(address) {
            Some(freed) => hazard(
                HazardKind::UseAfterFree,
                Some(&freed.freed),
                format!("it was submitted after the free, #{}", freed.freed.submission),
            ),
            None => {
                hazard(HazardKind::OutOfBounds, None, format!("no allocation has the address {address:#x}"))
            }
        }
    }

    /// Stream-ordered memory may be used by work that comes after its allocation.
    fn check_ready(&mut self, access: &Access, needs: &LaneClock) {
        let allocation = self.process.allocations.containing(access.address);
        let made = [allocation.map(|(_, allocation)| &allocation.made), self.made_in_blocks(access.address)];
        let is_ready = |made: &&Access| made.point.is_none_or(|point| self.lanes.covers(needs, point));
        let early = made.into_iter().flatten().find(|made| !is_ready(made)).cloned();
        if let Some(made) = early {
            self.report_pair(HazardKind::UseBeforeReady, &made, access);
        }
    }

    fn check_races(&mut self, access: &Arc<Access>, needs: &LaneClock) {
        let mut found = Vec::new();
        let lanes = &self.lanes;
        let own = access.point;
        let ordered = |point: Point| own == Some(point) || lanes.covers(needs, point);
        let is_observed = |point: Point| lanes.is_observed(point);
        let (address, bytes) = (access.address, access.bytes);
        if address < DEVICE_START && !self.process.memory.is_mapped(address) {
            let history = &mut self.watch.pageable;
            history.note(address, address.saturating_add(bytes), access, &ordered, &mut found);
            history.sweep(&is_observed);
        } else {
            for piece in self.process.memory.mapped_pieces(address, bytes) {
                let history = self.watch.histories.entry(piece.backing).or_default();
                history.note(piece.offset, piece.offset + piece.bytes, access, &ordered, &mut found);
                history.sweep(&is_observed);
            }
        }
        for first in found {
            self.report_pair(HazardKind::Race, &first, access);
        }
    }

    /// A free comes after the allocation and after every use; with `here_alone`, after every use by its addresses: the memory stays,
    /// and work that uses it at other addresses is not disturbed.
    pub(super) fn watch_free(&mut self, freed: &Access, needs: &LaneClock, here_alone: bool) {
        self.check_ready(freed, needs);
        let mut found = Vec::new();
        let lanes = &self.lanes;
        let ordered = |point: Point| lanes.covers(needs, point);
        for piece in self.process.memory.mapped_pieces(freed.address, freed.bytes) {
            if let Some(history) = self.watch.histories.get(&piece.backing) {
                found.extend(history.unordered(piece.offset, piece.offset + piece.bytes, &ordered));
            }
        }
        let is_here = |first: &Access| {
            first.address < freed.address + freed.bytes && freed.address < first.address + first.bytes
        };
        found.retain(|first| !here_alone || is_here(first));
        for first in found {
            self.report_pair(HazardKind::FreeInUse, &first, freed);
        }
    }

    /// A free by the host comes after the work that the host has waited for.
    pub(super) fn watch_host_free(&mut self, call: Call, address: u64, bytes: u64) {
        let freed = self.by_host(call, address, bytes, AccessMode::Free);
        let here_alone = matches!(call, Call::MemoryUnmap | Call::MemoryClose);
        self.watch_free(&freed, &LaneClock::default(), here_alone);
    }

    /// Forgets accesses of work that never runs, because its process is over.
    pub(super) fn forget_what_never_runs(&mut self) {
        let lanes = &self.lanes;
        let never_runs = |point| lanes.never_runs(point);
        for history in self.watch.histories.values_mut().chain([&mut self.watch.pageable]) {
            history.forget(&never_runs);
        }
    }

    /// Clears the history of memory of a pool that has a new owner.
    pub(super) fn forget_past(&mut self, address: u64, bytes: u64) {
        for piece in self.process.memory.mapped_pieces(address, bytes) {
            if let Some(history) = self.watch.histories.get_mut(&piece.backing) {
                history.clear(piece.offset, piece.offset + piece.bytes);
            }
        }
    }
}

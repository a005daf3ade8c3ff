//! Events that several processes have.

use std::collections::HashMap;

use super::clock::LaneClock;
use super::hazard::HazardKind;
use super::machine::SimMachine;
use super::process::ProcessId;
use super::sealed::SealedKind;
use crate::driver::{Code, EventHandle, RawEvent};

/// An event of `event_create_shared`: what the processes that have it see of each other's records.
#[derive(Debug)]
struct SharedEvent {
    exporter: ProcessId,
    /// The work that was on the stream at the last record, in whatever process.
    clock: LaneClock,
    recorded: bool,
    /// The exporter has destroyed it, other than by its end.
    destroyed: bool,
    /// The handles in all processes.
    holders: usize,
}

impl SharedEvent {
    /// One that was never recorded, and that nobody has.
    fn new(exporter: ProcessId) -> Self {
        Self { exporter, clock: LaneClock::default(), recorded: false, destroyed: false, holders: 0 }
    }
}

/// Every shared event of the machine.
#[derive(Debug, Default)]
pub(super) struct SharedEvents {
    events: HashMap<u64, SharedEvent>,
    numbers: u64,
}

impl SharedEvents {
    /// The last record, and whether there was one.
    pub(super) fn record_of(&self, number: u64) -> (LaneClock, bool) {
        self.events.get(&number).map(|event| (event.clock.clone(), event.recorded)).unwrap_or_default()
    }

    pub(super) fn record(&mut self, number: u64, clock: &LaneClock) {
        if let Some(event) = self.events.get_mut(&number) {
            (event.clock, event.recorded) = (clock.clone(), true);
        }
    }

    /// Returns `true` if its exporter, which is not `process`, has destroyed it.
    pub(super) fn is_destroyed(&self, number: u64, process: ProcessId) -> bool {
        self.events.get(&number).is_some_and(|event| event.destroyed && event.exporter != process)
    }

    /// A process has one handle less.
    pub(super) fn let_go(&mut self, number: u64, process: ProcessId, destroyed: bool) {
        if let Some(event) = self.events.get_mut(&number) {
            event.destroyed |= destroyed && event.exporter == process;
            event.holders -= 1;
            if event.holders == 0 {
                self.events.remove(&number);
            }
        }
    }
}

impl SimMachine {
    pub(super) fn create_shared_event(&mut self, ordinal: u32) -> RawEvent {
        let shared = &mut self.lent.events;
        shared.numbers += 1;
        let number = shared.numbers;
        shared.events.insert(number, SharedEvent { holders: 1, ..SharedEvent::new(self.process.id) });
        self.add_event(ordinal, Some(number))
    }

    pub(super) fn event_handle(&mut self, ordinal: u32, raw: RawEvent) -> Result<EventHandle, Code> {
        let number = self.event(Some(ordinal), raw)?.shared.ok_or(Code::INVALID_HANDLE)?;
        let exporter = self.lent.events.events.get(&number).map(|event| event.exporter);
        if exporter != Some(self.process.id) {
            return Err(Code::INVALID_HANDLE);
        }
        let numbers = [self.process.id.0.into(), number, ordinal.into()];
        Ok(EventHandle(self.lent.sealed.seal(SealedKind::Event, numbers)))
    }

    pub(super) fn event_open(&mut self, ordinal: u32, handle: &EventHandle) -> Result<RawEvent, Code> {
        let opened = self.lent.sealed.open(SealedKind::Event, &handle.0);
        // What an H200 says, of any bytes that are no handle of an event.
        let [process, number, home] = opened.ok_or(Code::MAP_FAILED)?;
        let exporter = ProcessId(u32::try_from(process).map_err(|_| Code::INVALID_VALUE)?);
        if exporter == self.process.id {
            return Err(Code::INVALID_CONTEXT);
        }
        self.check_reachable(ordinal, u32::try_from(home).map_err(|_| Code::INVALID_VALUE)?)?;
        // An event that is gone, or whose process is, can be opened on an H200 all the same. It is done.
        let event = self.lent.events.events.entry(number);
        event.or_insert_with(|| SharedEvent::new(exporter)).holders += 1;
        Ok(self.add_event(ordinal, Some(number)))
    }

    /// Refuses the use of an event that its exporter has destroyed.
    pub(super) fn check_not_destroyed(&mut self, number: u64, raw: RawEvent) -> Result<(), Code> {
        if !self.lent.events.is_destroyed(number, self.process.id) {
            return Ok(());
        }
        let words = format!("{raw:?} is of another process, which has destroyed it");
        Err(self.refuse(HazardKind::StaleHandle, words, Code::INVALID_HANDLE))
    }

    /// The handles of the process in front are gone, by its end.
    pub(super) fn end_shared_events(&mut self) {
        let process = self.process.id;
        let events = self.process.events.iter_live();
        let numbers: Vec<u64> = events.filter_map(|(_, event)| event.shared).collect();
        for number in numbers {
            self.lent.events.let_go(number, process, false);
        }
    }
}

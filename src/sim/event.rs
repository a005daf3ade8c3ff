//! Events: the work that was on a stream at a record.

use std::collections::HashMap;

use super::capture::WorkTarget;
use super::clock::LaneClock;
use super::hazard::HazardKind;
use super::machine::SimMachine;
use crate::driver::{Code, RawEvent, RawStream};

/// Handles of events start here.
const FIRST_HANDLE: u64 = 0xe7e7_0000;

/// An event.
#[derive(Clone, Debug)]
pub(super) struct SimEvent {
    pub(super) ordinal: u32,
    /// The work that was on the stream at the last record; none before the first.
    pub(super) clock: LaneClock,
    /// The capture that it was last recorded in, if any, and the branch.
    pub(super) captured: Option<(u64, LaneClock)>,
    recorded: bool,
    /// The number of the event that other processes may have as well.
    pub(super) shared: Option<u64>,
}

/// Every event of the machine.
#[derive(Debug, Default)]
pub(super) struct Events {
    events: HashMap<u64, SimEvent>,
    recycled: Vec<u64>,
    handles: u64,
}

impl Events {
    pub(super) fn live(&self) -> usize {
        self.events.len()
    }

    pub(super) fn iter_live(&self) -> impl Iterator<Item = (RawEvent, &SimEvent)> {
        self.events.iter().map(|(&handle, event)| (RawEvent(handle), event))
    }
}

impl SimMachine {
    pub(super) fn create_event(&mut self, ordinal: u32) -> RawEvent {
        self.add_event(ordinal, None)
    }

    pub(super) fn add_event(&mut self, ordinal: u32, shared: Option<u64>) -> RawEvent {
        let handle = self.process.events.recycled.pop().unwrap_or_else(|| {
            self.process.events.handles += 1;
            FIRST_HANDLE + self.process.events.handles * 0x20
        });
        self.process.events.events.insert(
            handle,
            SimEvent { ordinal, clock: LaneClock::default(), captured: None, recorded: false, shared },
        );
        RawEvent(handle)
    }

    pub(super) fn destroy_event(&mut self, ordinal: u32, raw: RawEvent) -> Result<(), Code> {
        let shared = self.event(Some(ordinal), raw)?.shared;
        if let Some(number) = shared {
            self.lent.events.let_go(number, self.process.id, true);
        }
        self.process.events.events.remove(&raw.0);
        self.process.events.recycled.push(raw.0);
        Ok(())
    }

    pub(super) fn record_event(
        &mut self,
        ordinal: u32,
        raw: RawEvent,
        stream: RawStream,
    ) -> Result<(), Code> {
        let stream = self.stream(ordinal, stream)?;
        let shared = self.event(Some(ordinal), raw)?.shared;
        if let Some(number) = shared {
            self.check_not_destroyed(number, raw)?;
        }
        let (clock, captured) = match self.target(&stream)? {
            WorkTarget::Queue(lane) => {
                let mut clock = self.lanes.joined(lane);
                self.lanes.prune(&mut clock);
                (clock, None)
            }
            WorkTarget::Capture(id, branch) => {
                (LaneClock::default(), Some((id, self.branch_clock(id, branch))))
            }
        };
        if let Some(number) = shared.filter(|_| captured.is_none()) {
            self.lent.events.record(number, &clock);
        }
        let event = self.event(Some(ordinal), raw)?;
        *event = SimEvent { ordinal, clock, captured, recorded: true, shared };
        Ok(())
    }

    pub(super) fn wait_event(&mut self, ordinal: u32, stream: RawStream, raw: RawEvent) -> Result<(), Code> {
        let stream = self.stream(ordinal, stream)?;
        let SimEvent { clock, captured, recorded, .. } = self.last_record(None, raw)?;
        if let Some(lane) = self.wait_captured(&stream, captured, recorded)?
            && let Some(lane) = self.lanes.get_mut(lane)
        {
            lane.clock.join(&clock);
        }
        Ok(())
    }

    /// The work that a query or a wait for the event concerns.
    pub(super) fn event_goal(&mut self, ordinal: u32, raw: RawEvent) -> Result<LaneClock, Code> {
        let event = self.last_record(Some(ordinal), raw)?;
        match event.captured {
            None => Ok(event.clock),
            Some((id, _)) => Err(self.captured_event(id, "was asked for")),
        }
    }

    /// The event as it was last recorded, in whatever process. A record in a capture is of this process alone.
    fn last_record(&mut self, ordinal: Option<u32>, raw: RawEvent) -> Result<SimEvent, Code> {
        let mut event = self.event(ordinal, raw)?.clone();
        if let Some(number) = event.shared {
            self.check_not_destroyed(number, raw)?;
            if event.captured.is_none() {
                (event.clock, event.recorded) = self.lent.events.record_of(number);
            }
        }
        Ok(event)
    }

    /// The event of a handle; it must be of device `ordinal`, if given.
    pub(super) fn event(&mut self, ordinal: Option<u32>, raw: RawEvent) -> Result<&mut SimEvent, Code> {
        let words = match self.process.events.events.get(&raw.0) {
            None => format!("{raw:?} is no event, or was destroyed before it was used"),
            Some(event) => match ordinal.filter(|&ordinal| ordinal != event.ordinal) {
                Some(ordinal) => {
                    format!("{raw:?} belongs to gpu {} and was used on gpu {ordinal}", event.ordinal)
                }
                None => return self.process.events.events.get_mut(&raw.0).ok_or(Code::INVALID_HANDLE),
            },
        };
        Err(self.refuse(HazardKind::StaleHandle, words, Code::INVALID_HANDLE))
    }
}

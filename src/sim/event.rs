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
        let handle = self.events.recycled.pop().unwrap_or_else(|| {
            self.events.handles += 1;
            FIRST_HANDLE + self.events.handles * 0x20
        });
        self.events.events.insert(
            handle,
            SimEvent { ordinal, clock: LaneClock::default(), captured: None, recorded: false },
        );
        RawEvent(handle)
    }

    pub(super) fn destroy_event(&mut self, ordinal: u32, raw: RawEvent) -> Result<(), Code> {
        self.event(Some(ordinal), raw)?;
        self.events.events.remove(&raw.0);
        self.events.recycled.push(raw.0);
        Ok(())
    }

    pub(super) fn record_event(
        &mut self,
        ordinal: u32,
        raw: RawEvent,
        stream: RawStream,
    ) -> Result<(), Code> {
        let stream = self.stream(ordinal, stream)?;
        self.event(Some(ordinal), raw)?;
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
        let event = self.event(Some(ordinal), raw)?;
        *event = SimEvent { ordinal, clock, captured, recorded: true };
        Ok(())
    }

    pub(super) fn wait_event(&mut self, ordinal: u32, stream: RawStream, raw: RawEvent) -> Result<(), Code> {
        let stream = self.stream(ordinal, stream)?;
        let SimEvent { clock, captured, recorded, .. } = self.event(None, raw)?.clone();
        if let Some(lane) = self.wait_captured(&stream, captured, recorded)?
            && let Some(lane) = self.lanes.get_mut(lane)
        {
            lane.clock.join(&clock);
        }
        Ok(())
    }

    /// The work that a query or a wait for the event concerns.
    pub(super) fn event_goal(&mut self, ordinal: u32, raw: RawEvent) -> Result<LaneClock, Code> {
        let event = self.event(Some(ordinal), raw)?.clone();
        match event.captured {
            None => Ok(event.clock),
            Some((id, _)) => Err(self.captured_event(id, "was asked for")),
        }
    }

    /// The event of a handle; it must be of device `ordinal`, if given.
    pub(super) fn event(&mut self, ordinal: Option<u32>, raw: RawEvent) -> Result<&mut SimEvent, Code> {
        let words = match self.events.events.get(&raw.0) {
            None => format!("{raw:?} is no event, or was destroyed before it was used"),
            Some(event) => match ordinal.filter(|&ordinal| ordinal != event.ordinal) {
                Some(ordinal) => {
                    format!("{raw:?} belongs to gpu {} and was used on gpu {ordinal}", event.ordinal)
                }
                None => return self.events.events.get_mut(&raw.0).ok_or(Code::INVALID_HANDLE),
            },
        };
        Err(self.refuse(HazardKind::StaleHandle, words, Code::INVALID_HANDLE))
    }
}

//! Three processes hand memory to each other at random, and are killed at random.

use alluvion::share::{Imported, Message, Shared, sweep};
use alluvion::{AnyResource, DeviceVec, Sim, Stream};

use crate::rig::{Rig, sent, ways};

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// A process, and what it has.
struct Process {
    shared: Vec<(u32, Shared<DeviceVec<u32, AnyResource>>)>,
    imported: Vec<(u32, Imported<u32>)>,
    own: Vec<(u32, DeviceVec<u32, AnyResource>)>,
    resources: Vec<AnyResource>,
    stream: Stream,
    sim: Sim,
}

impl Process {
    fn new(sim: Sim) -> Self {
        let device = sim.device(0);
        let resources = ways().into_iter().map(|(_, make)| make(&device)).collect();
        let stream = device.stream().unwrap();
        Self { shared: Vec::new(), imported: Vec::new(), own: Vec::new(), resources, stream, sim }
    }

    fn check(&self) {
        for (number, imported) in &self.imported {
            assert_eq!(imported.get(imported.len() - 1, &self.stream).unwrap(), *number);
        }
        for (number, shared) in &self.shared {
            assert_eq!(shared.get(0, &self.stream).unwrap(), *number);
        }
        for (number, own) in &self.own {
            assert_eq!(own.get(0, &self.stream).unwrap(), *number);
        }
    }
}

fn run(seed: u64) {
    let mut dice = Dice(seed);
    let rig = Rig::with(Rig::config().memory_bytes(1 << 30));
    let mut processes: Vec<Process> = (0..3).map(|_| Process::new(rig.first.process())).collect();
    let mut number = 0;
    for _ in 0..300 {
        let at = dice.below(3);
        match dice.below(20) {
            0..=5 => {
                number += 1;
                let process = &mut processes[at];
                let resource = process.resources[dice.below(process.resources.len())].clone();
                let length = 1 + dice.below(5000);
                let vector = DeviceVec::filled_in(length, number, &process.stream, resource).unwrap();
                process.shared.push((number, rig.share(vector, &process.stream)));
            }
            6..=11 => {
                let to = (at + 1 + dice.below(2)) % 3;
                if processes[at].shared.is_empty() {
                    continue;
                }
                let which = dice.below(processes[at].shared.len());
                let (number, shared) = &processes[at].shared[which];
                let (number, message) = (*number, Message::from_bytes(&shared.message().to_bytes()).unwrap());
                let descriptor = sent(shared);
                let imported = rig.import(&message, descriptor).open(&processes[to].stream).unwrap();
                processes[to].imported.push((number, imported));
            }
            12..=14 => {
                let imported = &mut processes[at].imported;
                if !imported.is_empty() {
                    drop(imported.swap_remove(dice.below(imported.len())));
                }
            }
            15 => {
                let process = &mut processes[at];
                if !process.shared.is_empty() {
                    let (number, shared) = process.shared.swap_remove(dice.below(process.shared.len()));
                    match shared.try_end() {
                        Ok(vector) => process.own.push((number, vector)),
                        Err(shared) => process.shared.push((number, shared)),
                    }
                }
            }
            16 => {
                let process = &mut processes[at];
                if !process.shared.is_empty() {
                    drop(process.shared.swap_remove(dice.below(process.shared.len())));
                }
                process.own.clear();
                sweep(&process.sim.device(0));
            }
            17 => {
                // An importer, and the exporter of what others have: they keep it. What it had queued is over, else it would be lost.
                let process = processes.swap_remove(at);
                process.stream.synchronize().unwrap();
                process.sim.kill();
                drop(process);
                processes.push(Process::new(rig.first.process()));
            }
            _ => processes[at].check(),
        }
    }
    processes.iter().for_each(Process::check);
    processes.iter_mut().for_each(|process| process.imported.clear());
    for process in processes {
        let Process { shared, imported, own, resources, stream, sim } = process;
        for (number, shared) in shared {
            let vector = shared.try_end().expect("nobody has it");
            assert_eq!(vector.get(0, &stream).unwrap(), number);
        }
        drop((imported, own));
        sweep(&sim.device(0));
        drop((resources, stream));
        sim.assert_clean();
    }
}

#[test]
fn random_hand_overs_with_kills() {
    for seed in 0..40 {
        run(seed);
    }
}

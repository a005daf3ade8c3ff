//! Threads that run the steps of a program, one at a time, on a world that goes to and fro.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use super::op::{Op, THREADS};
use super::{Subject, World};

struct Worker<S> {
    steps: Option<Sender<(World<S>, Op)>>,
    worlds: Receiver<World<S>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: Subject> Worker<S> {
    fn new() -> Self {
        let (steps, to_run) = channel::<(World<S>, Op)>();
        let (done, worlds) = channel();
        let thread = thread::spawn(move || {
            for (mut world, op) in to_run {
                world.run(op);
                if done.send(world).is_err() {
                    return;
                }
            }
        });
        Self { steps: Some(steps), worlds, thread: Some(thread) }
    }

    fn run(&self, world: World<S>, op: Op) -> World<S> {
        let steps = self.steps.as_ref().expect("it runs until it is dropped");
        steps.send((world, op)).expect("the thread runs");
        self.worlds.recv().expect("the step does not panic")
    }
}

impl<S> Drop for Worker<S> {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs a program, each step on the thread that it names: the caller's, or one of two others.
pub(crate) fn run<S: Subject>(mut world: World<S>, program: &[(usize, Op)]) -> World<S> {
    let mut workers: Vec<Option<Worker<S>>> = (0..THREADS).map(|_| None).collect();
    for &(on, op) in program {
        match (on, op) {
            (0, _) => world.run(op),
            (_, Op::EndThread) => workers[on] = None,
            _ => world = workers[on].get_or_insert_with(Worker::new).run(world, op),
        }
    }
    world
}

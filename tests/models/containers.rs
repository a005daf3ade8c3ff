//! Any sequence of operations on device vectors agrees with vectors of the host, on whatever streams, under every schedule.

use alluvion::source::CudaAsync;
use alluvion::testing::{Bench, Shadow};
use alluvion::{DeviceVec, Error, Stream};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::trials::trials;

/// Cases. One takes about two milliseconds.
const CASES: u32 = 1500;
/// Vectors that live at once: enough for each to copy from another.
const VECTORS: usize = 3;
/// Streams at once: home, another, and one that comes and goes.
const STREAMS: usize = 3;
/// Elements that a vector is grown to at most: from nothing to two copies of 16 KiB, at which a simulated one is cut.
const LONGEST: usize = 6000;

#[derive(Clone, Debug)]
enum Step {
    /// A new vector in place of one.
    Make {
        vector: usize,
        stream: usize,
        len: usize,
        value: u32,
    },
    Extend {
        vector: usize,
        stream: usize,
        len: usize,
        value: u32,
    },
    Resize {
        vector: usize,
        stream: usize,
        len: usize,
        value: u32,
    },
    Reserve {
        vector: usize,
        stream: usize,
        more: usize,
    },
    Shrink {
        vector: usize,
        stream: usize,
    },
    Truncate {
        vector: usize,
        len: usize,
    },
    Fill {
        vector: usize,
        stream: usize,
        value: u32,
    },
    Set {
        vector: usize,
        stream: usize,
        index: usize,
        value: u32,
    },
    /// A clone of one in place of another.
    Clone {
        vector: usize,
        from: usize,
        stream: usize,
    },
    CopyFrom {
        vector: usize,
        from: usize,
        stream: usize,
    },
    Upload {
        vector: usize,
        stream: usize,
        value: u32,
    },
    Download {
        vector: usize,
        stream: usize,
    },
    Check {
        vector: usize,
        stream: usize,
    },
    /// A new stream in place of one.
    Renew {
        stream: usize,
    },
    Synchronize {
        stream: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (vector, stream) = (0..VECTORS, 0..STREAMS);
    let (len, value) = (prop_oneof![0..5_usize, 0..LONGEST], any::<u32>());
    let on = || (vector.clone(), stream.clone());
    let step = prop_oneof![
        (on(), len.clone(), value).prop_map(|((vector, stream), len, value)| Step::Make {
            vector,
            stream,
            len,
            value
        }),
        (on(), len.clone(), value).prop_map(|((vector, stream), len, value)| Step::Extend {
            vector,
            stream,
            len,
            value
        }),
        (on(), len.clone(), value).prop_map(|((vector, stream), len, value)| Step::Resize {
            vector,
            stream,
            len,
            value
        }),
        (on(), len.clone()).prop_map(|((vector, stream), more)| Step::Reserve { vector, stream, more }),
        on().prop_map(|(vector, stream)| Step::Shrink { vector, stream }),
        (vector.clone(), len).prop_map(|(vector, len)| Step::Truncate { vector, len }),
        (on(), value).prop_map(|((vector, stream), value)| Step::Fill { vector, stream, value }),
        (on(), 0..LONGEST, value).prop_map(|((vector, stream), index, value)| Step::Set {
            vector,
            stream,
            index,
            value
        }),
        (on(), 0..VECTORS).prop_map(|((vector, stream), from)| Step::Clone { vector, from, stream }),
        (on(), 0..VECTORS).prop_map(|((vector, stream), from)| Step::CopyFrom { vector, from, stream }),
        (on(), value).prop_map(|((vector, stream), value)| Step::Upload { vector, stream, value }),
        on().prop_map(|(vector, stream)| Step::Download { vector, stream }),
        on().prop_map(|(vector, stream)| Step::Check { vector, stream }),
        stream.clone().prop_map(|stream| Step::Renew { stream }),
        stream.clone().prop_map(|stream| Step::Synchronize { stream }),
    ];
    vec(step, 1..40)
}

type Resource<'r> = &'r Shadow<CudaAsync>;

struct Model<'r> {
    resource: Resource<'r>,
    streams: Vec<Stream>,
    vectors: Vec<DeviceVec<u32, Resource<'r>>>,
    expected: Vec<Vec<u32>>,
}

impl<'r> Model<'r> {
    fn new(bench: &Bench, resource: Resource<'r>) -> Result<Self, Error> {
        let streams: Vec<_> = (0..STREAMS).map(|_| bench.stream()).collect();
        let vectors = streams
            .iter()
            .map(|stream| DeviceVec::uninit_in(0, stream.as_ref(), resource))
            .collect::<Result<_, _>>()?;
        Ok(Self { resource, streams, vectors, expected: vec![Vec::new(); VECTORS] })
    }

    fn run(&mut self, bench: &Bench, step: &Step) -> Result<(), Error> {
        let Self { resource, streams, vectors, expected } = self;
        match *step {
            Step::Make { vector, stream, len, value } => {
                vectors[vector] = DeviceVec::filled_in(len, value, streams[stream].as_ref(), *resource)?;
                expected[vector] = vec![value; len];
            }
            Step::Extend { vector, stream, len, value } => {
                let len = len.min(LONGEST - expected[vector].len().min(LONGEST));
                let more: Vec<u32> = (0..len as u32).map(|index| index ^ value).collect();
                vectors[vector].extend_from_slice(&more, streams[stream].as_ref())?;
                expected[vector].extend(more);
            }
            Step::Resize { vector, stream, len, value } => {
                vectors[vector].resize(len, value, streams[stream].as_ref())?;
                expected[vector].resize(len, value);
            }
            Step::Reserve { vector, stream, more } => {
                vectors[vector].reserve(more, streams[stream].as_ref())?;
                assert!(vectors[vector].capacity() >= expected[vector].len() + more);
            }
            Step::Shrink { vector, stream } => {
                vectors[vector].shrink_to_fit(streams[stream].as_ref())?;
                assert_eq!(vectors[vector].capacity(), expected[vector].len());
            }
            Step::Truncate { vector, len } => {
                vectors[vector].truncate(len);
                expected[vector].truncate(len);
            }
            Step::Fill { vector, stream, value } => {
                vectors[vector].fill(value, streams[stream].as_ref())?;
                expected[vector].fill(value);
            }
            Step::Set { vector, stream, index, value } => {
                let set = vectors[vector].set(index, value, streams[stream].as_ref());
                match expected[vector].get_mut(index) {
                    Some(element) => {
                        set?;
                        *element = value;
                    }
                    None => assert!(set.unwrap_err().is_out_of_range()),
                }
            }
            Step::Clone { vector, from, stream } => {
                vectors[vector] = vectors[from].try_clone(streams[stream].as_ref())?;
                expected[vector] = expected[from].clone();
            }
            Step::CopyFrom { vector, from, stream } => {
                let Ok([to, from_vector]) = vectors.get_disjoint_mut([vector, from]) else { return Ok(()) };
                let copied = to.copy_from(from_vector.as_slice(), streams[stream].as_ref());
                if expected[vector].len() == expected[from].len() {
                    copied?;
                    expected[vector] = expected[from].clone();
                } else {
                    copied.expect_err("the lengths differ");
                }
            }
            Step::Upload { vector, stream, value } => {
                let host: Vec<u32> = (0..expected[vector].len() as u32).map(|index| index ^ value).collect();
                expected[vector].clone_from(&host);
                // Dropped at once: it waits, and the bytes arrive.
                drop(vectors[vector].upload(host, streams[stream].as_ref())?);
            }
            Step::Download { vector, stream } => {
                let into = vec![0; expected[vector].len()];
                let transfer = vectors[vector].download(into, streams[stream].as_ref())?;
                assert_eq!(transfer.wait()?, expected[vector]);
            }
            Step::Check { vector, stream } => {
                assert_eq!(vectors[vector].to_vec(streams[stream].as_ref())?, expected[vector]);
            }
            Step::Renew { stream } => streams[stream] = bench.stream(),
            Step::Synchronize { stream } => streams[stream].synchronize()?,
        }
        assert_eq!(vectors.iter().map(DeviceVec::len).sum::<usize>(), expected.iter().map(Vec::len).sum());
        Ok(())
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: trials(CASES),
        max_shrink_iters: 4000,
        // What has failed once is kept beside this file, and tried first.
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn device_vectors_agree_with_vectors(steps in steps(), seed in any::<u64>()) {
        let bench = Bench::sim_with(Bench::config().seed(seed));
        let resource = Shadow::new(CudaAsync::new(&bench.device()).unwrap());
        let mut model = Model::new(&bench, &resource).unwrap();
        for step in &steps {
            model.run(&bench, step).map_err(|error| TestCaseError::fail(format!("{step:?}: {error}")))?;
        }
        let last = bench.stream();
        for (vector, expected) in model.vectors.iter().zip(&model.expected) {
            prop_assert_eq!(&vector.to_vec(last.as_ref()).unwrap(), expected);
        }
        drop(model);
        resource.assert_clean();
        bench.check();
    }
}

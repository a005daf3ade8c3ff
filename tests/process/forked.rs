//! Children of forks that come while other threads are busy: no child hangs, whatever it asks of what its parent has made. It is
//! refused, or leaks; and what it makes itself works.

#![cfg(unix)]
#![expect(unsafe_code, reason = "frees blocks by their addresses")]
#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::sync::{Arc, Mutex};

use alluvion::adaptor::{
    AlignedBook, Allowance, FallbackBook, GuardBook, GuardConfig, Log, Stats, StatsBook, TrackingBook,
};
use alluvion::driver::{Code, Driver};
use alluvion::metrics::Metrics;
use alluvion::relief::Relief;
use alluvion::source::{Cuda, CudaAsync, Managed, Mapped, Pinned};
use alluvion::suballoc::{ArenaConfig, FixedSizeConfig, SuballocBook};
use alluvion::tag::{Tag, with_tag};
use alluvion::{
    AnyResource, DeviceVec, Layout, Ledger, PinnedAlloc, Pool, PoolConfig, Resource, ResourceExt, Sim,
    SleepConfig, StreamPool,
};

use crate::fork::{busy_layer, busy_threads};
#[cfg(target_os = "linux")]
use crate::shared_directory::SharedDirectory;

fn pool(sim: &Sim) -> Pool<Cuda> {
    Cuda::new(&sim.device(0)).pool(PoolConfig::default()).expect("there is memory")
}

fn ask_stock<R: Resource>(resource: &R) {
    let stock = resource.find::<SuballocBook>().expect("there is a suballocator");
    std::hint::black_box((stock.status(), stock.snapshot(), stock.reserved_bytes()));
}

#[test]
fn a_pool() {
    busy_layer("forked::a_pool", pool, |pool| {
        ask_stock(pool);
        let _ = pool.defragment();
    });
}

#[test]
fn a_pool_that_checks() {
    let make = |sim: &Sim| {
        Cuda::new(&sim.device(0)).pool(PoolConfig::default().checked(true)).expect("there is memory")
    };
    busy_layer("forked::a_pool_that_checks", make, ask_stock);
}

#[test]
fn a_full_pool_whose_handler_is_asked() {
    let make = |sim: &Sim| {
        let config = PoolConfig::default().maximum(8 << 20).on_out_of_memory(|_| Relief::Freed);
        Cuda::new(&sim.device(0)).pool(config).expect("there is memory")
    };
    busy_layer("forked::a_full_pool_whose_handler_is_asked", make, ask_stock);
}

#[test]
fn a_pool_of_the_driver() {
    busy_layer(
        "forked::a_pool_of_the_driver",
        |sim| CudaAsync::new(&sim.device(0)).expect("it has pools"),
        |_| (),
    );
}

#[test]
fn pinned_memory() {
    let make = |sim: &Sim| {
        Pinned::new(&sim.device(0)).expect("it can").pool(PoolConfig::default()).expect("there is some")
    };
    busy_layer("forked::pinned_memory", make, ask_stock);
}

#[test]
fn an_arena() {
    let make = |sim: &Sim| Cuda::new(&sim.device(0)).arena(ArenaConfig::default()).expect("there is memory");
    busy_layer("forked::an_arena", make, ask_stock);
}

#[test]
fn blocks_of_one_size() {
    let make = |sim: &Sim| {
        Cuda::new(&sim.device(0))
            .fixed_size(FixedSizeConfig::default().block(1 << 20).blocks(8))
            .expect("there is memory")
    };
    busy_layer("forked::blocks_of_one_size", make, ask_stock);
}

#[test]
fn bins() {
    let make = |sim: &Sim| pool(sim).binning().range(10..=16).build().expect("there is memory");
    busy_layer("forked::bins", make, |_| ());
}

#[test]
fn stats() {
    for slack in [0, 4 << 20] {
        let make = move |sim: &Sim| Stats::with_slack(pool(sim), slack);
        busy_layer("forked::stats", make, |stats| {
            let tally: &StatsBook = stats.book();
            let scope = tally.scope();
            std::hint::black_box((
                tally.push(),
                tally.counts(),
                tally.whole(),
                tally.by_tag(),
                tally.to_string(),
            ));
            let _ = tally.pop();
            std::hint::black_box(scope.end());
        });
    }
}

#[test]
fn tracking() {
    let make = |sim: &Sim| pool(sim).tracking().on_leak(|_| ());
    busy_layer("forked::tracking", make, |tracking| {
        let register: &TrackingBook = tracking.book();
        std::hint::black_box((
            register.live_bytes(),
            register.live_blocks(),
            register.outstanding().to_string(),
        ));
    });
}

#[test]
fn logging() {
    let make =
        |sim: &Sim| pool(sim).logging(Log::write_to(std::io::sink()).expect("there is a thread for it"));
    busy_layer("forked::logging", make, |logging| {
        let _ = logging.book().flush();
        std::hint::black_box((logging.book().rows(), logging.book().dropped()));
    });
}

#[test]
fn a_limit() {
    busy_layer(
        "forked::a_limit",
        |sim| pool(sim).limiting(64 << 20),
        |limiting| {
            std::hint::black_box((limiting.used_bytes(), limiting.book().free_bytes()));
        },
    );
}

#[test]
fn a_budget() {
    let make = |sim: &Sim| {
        let all =
            Allowance::new("all", 64 << 20).soft(1 << 20).on_soft(|crossing| drop(crossing.to_string()));
        pool(sim).budget(all.child("of a part", 32 << 20))
    };
    busy_layer("forked::a_budget", make, |budget| {
        drop(budget.book().reserve(1000));
        std::hint::black_box(budget.book().used_bytes());
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_budget_that_processes_share() {
    let directory = SharedDirectory::new();
    let make = |sim: &Sim| {
        let all = Allowance::shared(&directory.limit("all", 64 << 20)).expect("nobody else is there");
        pool(sim).budget(all.soft(1 << 20).child("of a part", 32 << 20))
    };
    busy_layer("forked::a_budget_that_processes_share", make, |budget| {
        drop(budget.book().reserve(1000));
        std::hint::black_box((budget.book().used_bytes(), budget.book().free_bytes()));
        std::hint::black_box(budget.book().members());
    });
}

#[test]
fn a_fallback() {
    let make = |sim: &Sim| pool(sim).limiting(1 << 20).fallback(pool(sim)).expect("they are of one device");
    busy_layer("forked::a_fallback", make, |fallback| {
        let spill: &FallbackBook = fallback.book();
        std::hint::black_box((spill.live_blocks(), spill.failed()));
    });
}

#[test]
fn one_thread_at_a_time() {
    busy_layer(
        "forked::one_thread_at_a_time",
        |sim| pool(sim).thread_safe(),
        |shared| {
            let _ = shared.look(|pool| pool.status());
            std::hint::black_box(shared.book().waiting());
        },
    );
}

#[test]
fn a_guard() {
    let make = |sim: &Sim| {
        pool(sim).guard(GuardConfig::default().quarantine(1 << 20)).expect("there is pinned memory")
    };
    busy_layer("forked::a_guard", make, |guard| {
        let watch: &GuardBook = guard.book();
        let _ = watch.check();
        std::hint::black_box((
            watch.violations(),
            watch.live_blocks(),
            watch.quarantined_bytes(),
            format!("{watch:?}"),
        ));
    });
}

#[test]
fn aligned() {
    busy_layer(
        "forked::aligned",
        |sim| pool(sim).aligned(1 << 22).expect("it is a power of two"),
        |aligned| {
            let moves: &AlignedBook = aligned.book();
            std::hint::black_box(moves.moved_blocks());
        },
    );
}

#[test]
fn prefetch() {
    let make = |sim: &Sim| {
        Managed::new(&sim.device(0))
            .expect("it has it")
            .pool(PoolConfig::default())
            .expect("there is memory")
            .prefetch()
    };
    busy_layer("forked::prefetch", make, |_| ());
}

#[test]
fn a_failure_callback() {
    let make = |sim: &Sim| pool(sim).limiting(4 << 20).failure_callback(|_| Relief::Freed);
    busy_layer("forked::a_failure_callback", make, |callback| {
        std::hint::black_box(callback.book().asked());
    });
}

#[test]
fn metrics_of_a_stack() {
    let make = |sim: &Sim| AnyResource::new(pool(sim).stats().tracking());
    busy_layer("forked::metrics_of_a_stack", make, |stack| {
        let mut metrics = Metrics::new();
        metrics.add_stack("all", stack);
        std::hint::black_box(metrics.to_string());
    });
}

/// A child may be without the list that debuggers read, because another thread had its lock: its pools work as well.
#[test]
fn pools_that_come_and_go() {
    busy_threads(
        "forked::pools_that_come_and_go",
        |sim| (sim.device(0), pool(sim)),
        |(device, kept), is_child| {
            for _ in 0..20 {
                let pools = [(); 3].map(|()| Cuda::new(device).pool(PoolConfig::default()));
                assert!(
                    pools
                        .iter()
                        .all(|pool| pool.as_ref().is_ok_and(|pool| pool.snapshot().blocks.is_empty()))
                );
            }
            assert_eq!(kept.trim(0).is_err(), is_child);
        },
    );
}

#[test]
fn the_current_resource() {
    busy_threads(
        "forked::the_current_resource",
        |sim| sim.device(0),
        |device, is_child| {
            let asked = device.current_resource();
            assert_eq!(asked.is_err(), is_child);
            let set = device.set_current_resource(AnyResource::new(Cuda::new(device)));
            assert_eq!(set.is_err(), is_child);
            assert_eq!(device.reset_current_resource().is_err(), is_child);
        },
    );
}

#[test]
fn streams_and_events() {
    busy_threads(
        "forked::streams_and_events",
        |sim| {
            let device = sim.device(0);
            (StreamPool::new(&device, 4).expect("streams"), Mutex::new(Vec::new()), device)
        },
        |(pool, kept, device), is_child| {
            let (one, other) = (pool.next(), pool.next());
            let stamp = one.release();
            match one.record() {
                Ok(event) => {
                    assert!(!is_child);
                    other.wait_event(&event).expect("they are of one machine");
                    let mut kept = kept.lock().expect("nobody panics");
                    kept.push((event, device.stream().expect("a stream")));
                    kept.truncate(8);
                }
                Err(error) => assert!(is_child && error.is_shut_down(), "{error}"),
            }
            let before = alluvion::Frontier::of(stamp);
            assert!(other.wait_for(&before).is_err() == is_child || other.may_reuse(&before));
            assert_eq!(one.synchronize().is_err(), is_child);
            assert_eq!(device.synchronize().is_err(), is_child);
            assert_eq!(device.stream().is_err(), is_child);
            let own = device.per_thread_stream();
            assert!(own.is_ok() || is_child);
            let _ = own.map(|own| own.synchronize());
            let _ = device.machine().is_quiescent(&before);
            let _ = device.capabilities();
            if is_child && let Ok(mut kept) = kept.try_lock() {
                kept.clear();
            }
        },
    );
}

#[test]
fn containers() {
    busy_threads(
        "forked::containers",
        |sim| {
            let device = sim.device(0);
            let stream = device.stream().expect("a stream");
            let shared =
                DeviceVec::filled_in(1000, 7_u32, stream.as_ref(), pool(sim)).expect("there is memory");
            (shared, stream, device)
        },
        |(shared, stream, device), is_child| {
            let copied = shared.to_vec(stream.as_ref());
            assert_eq!(copied.is_err(), is_child);
            let made = DeviceVec::<u32>::zeroed(100, stream.as_ref());
            assert_eq!(made.is_err(), is_child);
            if let Ok(own) = device.stream() {
                shared.to_vec(own.as_ref()).expect("it lives");
                drop(made);
            }
        },
    );
}

#[test]
fn pinned_allocators() {
    use allocator_api2::vec::Vec;
    busy_threads(
        "forked::pinned_allocators",
        |sim| PinnedAlloc::new(&sim.device(0)).expect("there is pinned memory"),
        |pinned, is_child| {
            let mut numbers = Vec::<u64, _>::new_in(pinned.clone());
            assert_eq!(numbers.try_reserve(5000).is_err(), is_child);
        },
    );
}

#[test]
fn tags() {
    let made = std::sync::atomic::AtomicU32::new(0);
    busy_threads(
        "forked::tags",
        |_| (),
        |(), _| {
            let number = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            for name in ["known", &number.to_string()] {
                // In a child of a fork that came while another thread looked a name up there are none.
                with_tag(name, || {
                    drop((Tag::current().name(), Tag::current().parent(), Tag::current().to_string()));
                });
            }
        },
    );
}

#[test]
fn what_a_child_makes_itself_works() {
    let layout = Layout::from_bytes(1000).expect("it is small");
    busy_threads(
        "forked::what_a_child_makes_itself_works",
        |sim| AnyResource::new(pool(sim).stats().tracking()),
        |busy, is_child| {
            if !is_child {
                let stream = busy.device().stream().expect("a stream");
                for size in 1..50_usize {
                    with_tag("busy", || {
                        drop(DeviceVec::<u8, _>::zeroed_in(size * 300, stream.as_ref(), busy.clone()));
                    });
                }
                return;
            }
            let sim = Sim::new();
            let stream = sim.device(0).stream().expect("a stream");
            let stack = AnyResource::new(
                pool(&sim).limiting(1 << 20).stats().tracking().on_leak(|left| panic!("{left}")),
            );
            let numbers = with_tag("of the child", || {
                DeviceVec::filled_in(100, 3_u32, stream.as_ref(), stack.clone()).expect("there is memory")
            });
            assert_eq!(numbers.to_vec(stream.as_ref()).expect("it lives"), [3; 100]);
            drop(numbers);
            assert_eq!(stack.find::<Stats>().map(|tally| tally.counts().allocations.total), Some(1));
            sim.device(0).synchronize().expect("it is this process's own");
            assert!(sim.hazards().is_empty());
            assert!(busy.allocate(layout, stream.as_ref()).is_err());
        },
    );
}

/// Two threads begin processes of the simulated machine, lend them memory and end them when the process forks. A child reaches none of
/// the machine's processes, and begins none.
#[test]
fn a_machine_with_several_processes() {
    busy_threads("forked::a_machine_with_several_processes", Sim::process, |lender, is_child| {
        let borrower = lender.process();
        let lent = lender.allocate_device(0, 4096);
        if is_child {
            let refused = [lent.map(|_| ()), borrower.memory_info(0).map(|_| ())];
            assert!(refused.iter().all(|it| it.is_err_and(|error| error.code == Code::NOT_INITIALIZED)));
            lender.kill();
            borrower.kill();
            return;
        }
        let address = lent.expect("there is memory");
        let (ours, theirs) = (lender.sharing().expect("it lends"), borrower.sharing().expect("it lends"));
        // SAFETY: the address lies in the memory above.
        let handle = unsafe { ours.memory_handle(0, address) }.expect("it is lent");
        // SAFETY: the memory is freed after the borrower has ended.
        unsafe { theirs.memory_open(0, handle) }.expect("it is lent");
        borrower.kill();
        // SAFETY: it was allocated above, and nobody has it any more.
        unsafe { lender.free_device(0, address) }.expect("it is live");
    });
}

/// A vector sleeps when the process forks, and two threads put others to sleep and wake them. A child can wake nothing and gives
/// nothing back.
#[test]
fn a_pool_of_which_a_part_sleeps() {
    busy_threads(
        "forked::a_pool_of_which_a_part_sleeps",
        |sim| {
            let device = sim.device(0);
            let source = Mapped::new(&device).expect("it has pages");
            let pool = Arc::new(source.pool(PoolConfig::default()).expect("a right configuration"));
            let host = Arc::new(Pinned::new(&device).expect("there is pinned memory"));
            let stream = device.stream().expect("a stream");
            let vector = DeviceVec::filled_in(1 << 19, 7_u32, &stream, Arc::clone(&pool));
            let keep = SleepConfig::default().keep_in(Arc::clone(&host));
            let asleep = vector.expect("there is memory").sleep(keep).expect("nothing forbids it");
            (Mutex::new(Some(asleep)), pool, host, device)
        },
        |(asleep, pool, host, device), is_child| {
            if is_child {
                // No other thread locks it.
                let asleep = asleep.lock().expect("nobody panics").take().expect("it is the first to ask");
                let refused = asleep.wake().expect_err("it is the parent's");
                assert!(refused.error().is_shut_down(), "{refused}");
                drop(refused.into_value());
                assert!(pool.allocate_sync(Layout::from_bytes(1000).expect("it is small")).is_err());
                let _ = (pool.status(), pool.trim(0));
                return;
            }
            let stream = device.stream().expect("a stream");
            let vector = DeviceVec::filled_in(1 << 19, 9_u32, &stream, Arc::clone(pool));
            let keep = SleepConfig::default().keep_in(Arc::clone(host));
            let asleep = vector.expect("there is memory").sleep(keep).expect("nothing forbids it");
            let vector = asleep.wake().expect("there is memory");
            assert_eq!(vector.get(5, &stream).expect("it is awake"), 9);
        },
    );
}

#[test]
fn a_ledger() {
    let make = |sim: &Sim| {
        let (ledger, stream) = (Ledger::new(pool(sim)), sim.device(0).stream().expect("a stream"));
        let layout = Layout::from_bytes(1000).expect("it is small");
        let block = ledger.allocate(layout, stream.as_ref()).expect("there is memory");
        let owner = AnyResource::new(Cuda::new(&sim.device(0)));
        let of_device =
            sim.device(0).ledger().allocate(&owner, layout, stream.as_ref()).expect("there is memory");
        (ledger, stream, layout, block, (owner, of_device))
    };
    busy_threads(
        "forked::a_ledger",
        make,
        |(ledger, stream, layout, block, (owner, of_device)), is_child| {
            let (stream, device) = (stream.as_ref(), stream.device());
            if is_child {
                let refused = [
                    ledger.allocate(*layout, stream).map(drop),
                    ledger.allocate_sync(*layout).map(drop),
                    ledger.record_stream(*block, stream),
                    // SAFETY: it is refused.
                    unsafe { ledger.free(*block, stream) }.map(drop),
                    // SAFETY: it is refused.
                    unsafe { ledger.free_sync(*block) }.map(drop),
                    device.ledger().allocate(owner, *layout, stream).map(drop),
                    device.ledger().record_stream(*of_device, stream),
                    // SAFETY: it is refused.
                    unsafe { device.ledger().free(*of_device, stream) }.map(drop),
                ];
                for (at, refused) in refused.into_iter().enumerate() {
                    assert!(refused.is_err_and(|error| error.is_shut_down()), "{at}");
                }
                assert!(ledger.containing(*block).is_none() && ledger.outstanding().is_empty());
                assert!(
                    device.ledger().owner(*of_device).is_none()
                        && device.ledger().containing(*of_device).is_none()
                );
                assert_eq!((ledger.live_blocks(), device.ledger().live_bytes()), (0, 0));
                assert!(format!("{ledger:?}").contains("of a parent process"));
            } else {
                let other = ledger.allocate(*layout, stream).expect("there is memory");
                assert!(ledger.containing(other.offset(999)).is_some());
                // SAFETY: nothing uses the block.
                unsafe { ledger.free(other, stream) }.expect("it is out");
                let other = device.ledger().allocate(owner, *layout, stream).expect("there is memory");
                // SAFETY: nothing uses the block.
                unsafe { device.ledger().free(other, stream) }.expect("it is out");
            }
        },
    );
}

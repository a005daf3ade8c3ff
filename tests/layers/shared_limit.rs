//! A limit that processes share, where one process has several parts of it: what is refused, what it says, and bad input.
//! `tests/process/shared_limit.rs` has the processes.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

use alluvion::adaptor::{Allowance, Budget, SharedConfig};
use alluvion::error::Cause;
use alluvion::metrics::Metrics;
use alluvion::recipe::Recipe;
use alluvion::source::Cuda;
use alluvion::{Error, ErrorKind, Layout, PoolConfig, Resource, ResourceExt, Sim};
use proptest::prelude::*;

use crate::shared_directory::{SharedDirectory, remove_from_shared_memory};
use crate::trials::trials;

const KIB: usize = 1 << 10;

fn join(config: &SharedConfig) -> Allowance {
    Allowance::shared(config).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn refused(config: &SharedConfig, kind: ErrorKind, words: &str) -> Error {
    let error = Allowance::shared(config).expect_err("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    error
}

#[test]
fn members_share_one_limit() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", 8 * KIB);
    let [first, second] = [join(&config.clone().member("first")), join(&config.member("second"))];
    let mine = first.reserve(5 * KIB).unwrap();
    assert_eq!((first.used_bytes(), second.used_bytes(), second.free_bytes()), (5 * KIB, 0, 3 * KIB));
    let error = second.reserve(4 * KIB).unwrap_err();
    let report = error.out_of_memory_report().expect("a limit says why");
    assert_eq!(
        (report.cause, report.live_bytes, report.maximum_bytes),
        (Cause::Limit, 5 * KIB, Some(8 * KIB))
    );
    assert_eq!(report.members.len(), 2);
    let process = std::process::id();
    assert_eq!(
        error.to_string(),
        format!(
            "out of memory: Allowance `card` refused 4 KiB: more than the limit leaves; live 5 KiB, limit 8 KiB; `first`, process \
             {process}, has 5 KiB"
        )
    );
    let theirs = second.reserve(3 * KIB).unwrap();
    assert_eq!([first.refusals(), second.refusals(), first.free_bytes() as u64], [0, 1, 0]);
    drop(mine);
    let all_but_three = first.reserve(5 * KIB).unwrap();
    drop((theirs, all_but_three));
    let all = second.reserve(8 * KIB).unwrap();
    let error = second.reserve(9 * KIB).unwrap_err();
    assert_eq!(error.out_of_memory_report().map(|report| report.cause), Some(Cause::TooLarge));
    drop(all);
    assert_eq!((first.free_bytes(), second.peak_bytes()), (8 * KIB, 8 * KIB));
}

#[test]
fn a_guarantee_is_kept_for_a_member_that_does_not_run_yet() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", 8 * KIB).guarantee("server", 3 * KIB).guarantee("trainer", KIB);
    let trainer = join(&config.clone().member("trainer"));
    let lent = trainer.reserve(5 * KIB).unwrap();
    let error = trainer.reserve(256).unwrap_err();
    assert!(
        error.to_string().ends_with("`server`, which does not run, has 0 B and a guarantee of 3 KiB"),
        "{error}"
    );
    let other = join(&config.clone());
    assert!(other.reserve(256).is_err() && other.free_bytes() == 0);
    let server = join(&config.clone().member("server"));
    let own = server.reserve(3 * KIB).unwrap();
    assert!(server.reserve(256).is_err());
    drop(lent);
    let beyond = server.reserve(4 * KIB).expect("1 KiB is the trainer's");
    assert!(server.reserve(256).is_err());
    drop((own, beyond, server));
    assert_eq!(trainer.free_bytes(), 5 * KIB, "it stays");
    let members = trainer.members();
    let server = members.iter().find(|member| member.name == "server").expect("it has a guarantee");
    assert_eq!((server.process, server.guaranteed_bytes, server.used_bytes), (None, 3 * KIB, 0));
    assert!(members.iter().any(|member| member.is_this_process && member.name == "trainer"));
}

#[test]
fn a_guarantee_is_changed_while_nobody_has_it() {
    let directory = SharedDirectory::new();
    let limit = || directory.limit("card", 8 * KIB);
    let server = join(&limit().member("server").guarantee("server", 2 * KIB));
    let error =
        refused(&limit().guarantee("server", 3 * KIB), ErrorKind::InvalidArgument, "runs with a guarantee");
    assert!(error.to_string().ends_with("a guarantee of 2 KiB, and not 3 KiB"), "{error}");
    let taken = server.reserve(4 * KIB).unwrap();
    let error = refused(&limit().guarantee("other", 5 * KIB), ErrorKind::OutOfMemory, "limit 8 KiB");
    assert_eq!(error.limit_name(), Some("card"));
    refused(
        &limit().guarantee("other", 7 * KIB),
        ErrorKind::InvalidArgument,
        "2 KiB are guaranteed to others",
    );
    assert_eq!(server.members().len(), 1, "what was refused has left nothing");
    drop((taken, server));
    let other = join(&limit().guarantee("server", 5 * KIB).member("other"));
    assert_eq!(other.free_bytes(), 3 * KIB);
    let again = join(&limit().guarantee("server", 0).member("other"));
    assert_eq!((other.free_bytes(), other.members().len()), (8 * KIB, 2));
    drop(again);
}

#[test]
fn a_name_with_a_guarantee_is_one_members() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", KIB).member("server");
    let [first, second] = [join(&config), join(&config)];
    assert_eq!(first.members().len(), 2, "without one it is only a name");
    drop((first, second));
    let config = config.guarantee("server", 512);
    let server = join(&config);
    refused(&config, ErrorKind::InUse, "another process is its member `server`");
    drop(server);
    drop(join(&config));
}

#[test]
fn there_are_as_many_members_as_there_are_and_no_more() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", 32 * KIB).guarantee("server", KIB);
    let mut members: Vec<_> = (0..31).map(|_| join(&config)).collect();
    let parts: Vec<_> = members.iter().map(|member| member.reserve(KIB).unwrap()).collect();
    refused(&config, ErrorKind::InUse, "has 32 members");
    let server = join(&config.clone().member("server"));
    let last = server.reserve(KIB).unwrap();
    assert!(members.iter().all(|member| member.free_bytes() == 0));
    drop((parts, last));
    members.pop();
    drop(join(&config));
}

#[test]
fn the_limit_is_that_of_those_who_share_it() {
    let directory = SharedDirectory::new();
    let first = join(&directory.limit("card", 8 * KIB).guarantee("server", KIB));
    let error = refused(&directory.limit("card", 4 * KIB), ErrorKind::InvalidArgument, "`card` is 8 KiB");
    assert!(error.to_string().ends_with("while a process has a part of it, and not 4 KiB"), "{error}");
    let other = join(&directory.limit("another", 4 * KIB));
    let _all = other.reserve(4 * KIB).unwrap();
    let all = first.reserve(7 * KIB).unwrap();
    drop((all, first));
    let next = join(&directory.limit("card", 4 * KIB));
    assert_eq!(
        (next.limit_bytes(), next.free_bytes()),
        (4 * KIB, 4 * KIB),
        "with the limit go the guarantees"
    );
}

#[test]
fn bad_names_and_sizes_are_refused_before_there_is_a_file() {
    let directory = SharedDirectory::new();
    let long = "x".repeat(65);
    for name in ["", ".", "..", ".hidden", "a/b", "a b", "ü", "a\0b", long.as_str()] {
        refused(
            &directory.limit(name, KIB),
            ErrorKind::InvalidArgument,
            "the name of a shared limit has letters",
        );
    }
    for member in ["", "two\nlines", long.as_str()] {
        let config = directory.limit("card", KIB).guarantee(member, 1);
        refused(&config, ErrorKind::InvalidArgument, "the name of a member of a shared limit");
    }
    refused(&directory.limit("card", KIB).member(&long), ErrorKind::InvalidArgument, "the name of a member");
    refused(&directory.limit("card", 0), ErrorKind::InvalidArgument, "is of 0 bytes");
    let twice = directory.limit("card", KIB).guarantee("a", 1).guarantee("a", 2);
    refused(&twice, ErrorKind::InvalidArgument, "two guarantees for the member `a`");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    let too_much = directory.limit("card", KIB).guarantee("a", 512).guarantee("b", 513);
    refused(&too_much, ErrorKind::InvalidArgument, "512 B are guaranteed to others");
}

#[test]
fn a_file_that_others_could_have_written_is_refused() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", KIB);
    drop(join(&config));
    let path = directory.file("card");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    for mode in [0o604, 0o620, 0o666, 0o660] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        refused(&config, ErrorKind::Unwritable, &format!("other users may use it: its mode is {mode:o}"));
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    drop(join(&config));
    let moved = directory.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    symlink(&moved, &path).unwrap();
    refused(&config, ErrorKind::Unwritable, path.to_str().unwrap());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused(&config, ErrorKind::Unwritable, path.to_str().unwrap());
    refused(&config.directory(directory.path().join("nowhere")), ErrorKind::Unwritable, "No such file");
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", KIB);
    drop(join(&config));
    let path = directory.file("card");
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg("-m")
        .arg("600")
        .arg(&path)
        .status()
        .expect("there is a mkfifo");
    assert!(made.success());
    refused(&config, ErrorKind::Unwritable, "it is no file");
}

#[test]
fn a_file_that_is_no_shared_limit_is_refused_and_left_as_it_is() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", KIB);
    drop(join(&config));
    let path = directory.file("card");
    let whole = fs::read(&path).unwrap();
    let with = |at: usize, value: u64| {
        let mut bytes = whole.clone();
        bytes[8 * at..8 * at + 8].copy_from_slice(&value.to_ne_bytes());
        bytes
    };
    // What nobody owns does not count.
    let with_owner = |taken: u64| {
        let mut bytes = with(64, taken);
        bytes[8 * 68] = 7;
        bytes
    };
    let cases = [
        (b"a text".to_vec(), "its size is not that of a shared limit"),
        (whole[..4096].to_vec(), "its size is not that of a shared limit"),
        (with(0, 7), "it is no shared limit"),
        (with(1, 7), "another version of this library has made it, with layout 7"),
        (with_owner(1 << 60), "more is taken and guaranteed there than its limit"),
        (with(65, u64::MAX), "more is taken and guaranteed there than its limit"),
    ];
    for (bytes, words) in cases {
        // Whichever record counts: the switches are turned back.
        let mut bytes = bytes;
        if let Some(switches) = bytes.get_mut(128..136) {
            switches.fill(0);
        }
        fs::write(&path, &bytes).unwrap();
        let error = refused(&config, ErrorKind::Malformed, words);
        assert!(
            error.to_string().ends_with("remove it when no process shares the limit any more"),
            "{error}"
        );
        assert_eq!((fs::read(&path).unwrap(), error.line()), (bytes, None));
    }
    // Zeros are what one leaves who dies while it makes the file.
    for zeros in [0, 8192] {
        fs::write(&path, vec![0; zeros]).unwrap();
        assert_eq!(join(&config).free_bytes(), KIB);
    }
}

#[test]
fn a_file_that_is_overwritten_under_its_members_refuses_them() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", KIB).member("mine");
    let mine = join(&config);
    let part = mine.reserve(512).unwrap();
    let file = fs::OpenOptions::new().write(true).open(directory.file("card")).unwrap();
    // Both records of the last member.
    for word in 0..4 {
        file.write_all_at(&u64::MAX.to_ne_bytes(), 8 * (64 + 16 * 31 + word)).unwrap();
    }
    let error = mine.reserve(256).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.to_string().contains("more is taken and guaranteed than the limit"), "{error}");
    assert_eq!(mine.free_bytes(), 0);
    drop(part);
    file.write_all_at(&[0; 8192], 0).unwrap();
    let error = mine.reserve(256).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.to_string().contains("another process has the place of this one"), "{error}");
    refused(&config, ErrorKind::Malformed, "it was overwritten while processes had parts of it");
    drop(mine);
    drop(join(&config));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(trials(200)))]

    /// Whatever is in the file, before it is opened or while it is open: an error or an answer.
    #[test]
    fn no_content_of_the_file_does_harm(
        writes in prop::collection::vec((0_u64..1024, prop_oneof![any::<u64>(), 0_u64..3000, Just(u64::MAX)]), 1..40),
        is_open in any::<bool>(),
        keeps_the_head in any::<bool>(),
    ) {
        let directory = SharedDirectory::new();
        let config = directory.limit("card", 2 * KIB).member("mine").guarantee("mine", 256);
        let mine = join(&config);
        let part = mine.reserve(512).unwrap();
        let file = fs::OpenOptions::new().write(true).open(directory.file("card")).unwrap();
        let mine = if is_open { Some((mine, part)) } else { None };
        for (word, value) in writes {
            if word > 3 || !keeps_the_head {
                file.write_all_at(&value.to_ne_bytes(), 8 * word).unwrap();
            }
        }
        if let Some((mine, _part)) = &mine {
            for _ in 0..3 {
                let _ = (mine.reserve(256).is_ok(), mine.free_bytes(), mine.members().len(), mine.used_bytes());
            }
        }
        drop(mine);
        // Not under the name that may be another one's: that is waited for.
        if let Ok(mine) = Allowance::shared(&config.member("other")) {
            let taken = mine.reserve(256);
            prop_assert!(mine.free_bytes() <= 2 * KIB && mine.members().len() <= 32);
            drop(taken);
        }
    }
}

#[test]
fn a_tree_stands_below_it() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", 8 * KIB);
    let (mine, theirs) = (join(&config), join(&config));
    let mine = mine.soft(4 * KIB);
    let [left, right] = [mine.child("left", 4 * KIB), mine.child("right", 6 * KIB)];
    let first = left.reserve(3 * KIB).unwrap();
    let _other = theirs.reserve(2 * KIB).unwrap();
    assert_eq!([left.free_bytes(), right.free_bytes(), mine.used_bytes()], [KIB, 3 * KIB, 3 * KIB]);
    assert_eq!(right.reserve(4 * KIB).unwrap_err().limit_name(), Some("card"));
    assert_eq!(left.reserve(2 * KIB).unwrap_err().limit_name(), Some("left"));
    assert_eq!(theirs.free_bytes(), 3 * KIB, "what was refused took nothing");
    let second = right.reserve(3 * KIB).unwrap();
    assert_eq!((mine.crossings(), theirs.free_bytes(), mine.peak_bytes()), (1, 0, 6 * KIB));
    assert_eq!(left.members().len(), 2);
    drop((first, second));
    assert_eq!((mine.used_bytes(), theirs.free_bytes()), (0, 6 * KIB));
    assert!(Allowance::new("alone", KIB).child("child", KIB).members().is_empty());
}

/// The layer over it: blocks, blocks at once, and what is said of it.
#[test]
fn a_budget_counts_for_all() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", 64 * KIB);
    let sim = Sim::new();
    let (device, stream) = (sim.device(0), sim.device(0).stream().unwrap());
    let mine = Cuda::new(&device).budget(join(&config.clone().member("mine")));
    let theirs = join(&config);
    assert_eq!(mine.describe().to_string(), "Budget(card, 64 KiB, shared as mine) > Cuda(gpu 0)");
    let layout = Layout::from_bytes(16 * KIB).unwrap();
    let blocks: Vec<_> = (0..2).map(|_| mine.allocate(layout, stream.as_ref()).unwrap()).collect();
    assert!(mine.allocate_at_once(layout, stream.as_ref()).is_none(), "its source asks the driver");
    assert_eq!((theirs.free_bytes(), mine.memory_info().unwrap().free_bytes), (32 * KIB, 32 * KIB));
    let taken = theirs.reserve(20 * KIB).unwrap();
    let error = mine.allocate(layout, stream.as_ref()).unwrap_err();
    let report = error.out_of_memory_report().unwrap();
    assert_eq!(
        (report.refused_by, report.name.as_deref(), report.live_bytes),
        ("Budget", Some("card"), 52 * KIB)
    );
    assert_eq!(report.members.iter().map(|member| member.used_bytes).sum::<usize>(), 52 * KIB);
    let mut metrics = Metrics::new();
    metrics.add_stack("mine", &mine);
    let page = metrics.to_string();
    assert!(
        page.contains(r#"member="mine",process=""#) && page.contains("alluvion_member_guaranteed_bytes"),
        "{page}"
    );
    assert!(
        page.lines().any(|line| line.starts_with("alluvion_member_used_bytes") && line.ends_with(" 32768")),
        "{page}"
    );
    drop(taken);
    for block in blocks {
        #[expect(unsafe_code, reason = "gives a block back")]
        // SAFETY: the block came from there with this layout, and nothing uses it.
        unsafe {
            mine.deallocate(block, layout, stream.as_ref());
        }
    }
    assert_eq!(theirs.free_bytes(), 64 * KIB);
}

/// A pool under which two services meet: what it keeps free goes back before it is refused.
#[test]
fn a_pool_gives_back_what_it_keeps() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", 64 << 20);
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let pool = Cuda::new(&sim.device(0)).budget(join(&config)).pool(PoolConfig::default()).unwrap();
    let theirs = join(&config);
    drop(alluvion::DeviceVec::<u8, _>::zeroed_in(40 << 20, &stream, &pool).unwrap());
    assert!(theirs.free_bytes() <= 24 << 20, "the pool keeps it");
    stream.synchronize().unwrap();
    pool.trim(0).unwrap();
    assert_eq!(theirs.free_bytes(), 64 << 20);
}

/// What is leaked is not free: the place stays, and what is in it.
#[test]
fn what_is_out_when_a_layer_goes_stays_counted() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", 64 * KIB);
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let theirs = join(&config);
    let layer: Budget<_> = Cuda::new(&sim.device(0)).budget(join(&config.clone().member("leaks")));
    let layout = Layout::from_bytes(16 * KIB).unwrap();
    let block = layer.allocate(layout, stream.as_ref()).unwrap();
    let (allowance, upstream) = (layer.book().clone(), Cuda::new(&sim.device(0)));
    drop((layer, allowance));
    assert!(theirs.reserve(64 * KIB).is_err());
    assert_eq!((theirs.free_bytes(), theirs.members().len()), (48 * KIB, 2));
    #[expect(unsafe_code, reason = "gives a block back")]
    // SAFETY: sources of one device and kind free each other's blocks; it came from one with this layout, and nothing uses it.
    unsafe {
        upstream.deallocate(block, layout, stream.as_ref());
    }
}

#[test]
fn a_recipe_names_it() {
    let sim = Sim::new();
    let name = format!("test-{}", std::process::id());
    let build = |line: &str| {
        let recipe: Recipe =
            line.replace("NAME", &name).parse().unwrap_or_else(|error: Error| panic!("{error}"));
        recipe.build(&sim.device(0))
    };
    let server = build("budget(1MiB, shared=NAME, member=server, guaranteed=256KiB) | cuda").unwrap();
    let other = build("pool | budget(1MiB, shared=NAME) | cuda").unwrap();
    assert_eq!(
        server.describe().to_string(),
        format!("Budget({name}, 1 MiB, shared as server) > Cuda(gpu 0)")
    );
    assert_eq!(other.find::<Allowance>().unwrap().free_bytes(), 768 * KIB);
    for (line, words) in [
        ("budget(1MiB, member=a) | cuda", "`shared` is left out"),
        ("budget(1MiB, guaranteed=1) | cuda", "`shared` is left out"),
        ("budget(1MiB, shared=NAME, guaranteed=1) | cuda", "`member` is left out"),
        ("budget(1MiB, shared=NAME, name=b) | cuda", "a shared limit has the name that `shared` says"),
        ("budget(2MiB, shared=NAME) | cuda", "is 1 MiB while a process has a part of it"),
        ("budget(1MiB, shared=\"a/b\") | cuda", "the name of a shared limit has letters"),
    ] {
        let error = build(line).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.column().is_some() && error.to_string().contains(words), "{error}");
    }
    drop((server, other));
    remove_from_shared_memory(&name);
}

/// As a system does that cleans up behind a user who has logged out.
#[test]
fn a_refusal_says_that_somebody_has_removed_the_file() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", 8 * KIB);
    let (mine, other) = (join(&config), join(&config));
    let all = other.reserve(8 * KIB).unwrap();
    let refusal = || mine.reserve(KIB).expect_err("the other one has all");
    assert!(!refusal().to_string().contains("removed"), "{}", refusal());
    fs::remove_file(directory.file("card")).unwrap();
    let error = refusal();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("somebody has removed its file"), "{error}");
    // Those who have it share it as before, and who comes now has another one.
    drop(all);
    let part = mine.reserve(8 * KIB).unwrap();
    assert!(other.reserve(1).is_err());
    assert_eq!(join(&config).free_bytes(), 8 * KIB);
    drop(part);
}

/// Another program of this user has written to the file: figures of one name are added up, whatever they are.
#[test]
fn a_page_of_metrics_survives_any_values() {
    let directory = SharedDirectory::new();
    let config = directory.limit("card", 8 * KIB);
    let mut members: Vec<_> = (0..3).map(|_| join(&config.clone().member("same"))).collect();
    let file = fs::OpenOptions::new().write(true).open(directory.file("card")).unwrap();
    for member in 0..3 {
        for record in 0..4 {
            let at = 8 * (64 + 16 * member + record);
            file.write_all_at(&u64::MAX.to_ne_bytes(), at).unwrap();
        }
    }
    let sim = Sim::new();
    let stack = Cuda::new(&sim.device(0)).budget(members.remove(0));
    let mut page = Metrics::new();
    page.add_stack("mine", &stack);
    let page = page.to_string();
    let sum = |line: &str| {
        line.starts_with("alluvion_member_used_bytes") && line.ends_with(&format!(" {}", u64::MAX))
    };
    assert_eq!(page.lines().filter(|line| sum(line)).count(), 1, "{page}");
    drop((stack, members));
}

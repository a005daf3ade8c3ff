//! Containers on several streams, and on several threads.

use super::*;

pub(crate) fn a_new_home_follows_the_old_one(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let values = pattern(LARGE);
    let mut vector = DeviceVec::from_slice(&values, stream.as_ref())?;
    let source = DeviceVec::from_slice(&[3_u32; LARGE], stream.as_ref())?;
    stall(&stream);
    vector.copy_from(source.as_slice(), stream.as_ref())?;
    vector.set_stream(other.as_ref())?;
    assert_eq!(vector.stream(), other.as_ref());
    assert_eq!(vector.get(LARGE - 1, other.as_ref())?, 3);
    vector.set_stream(other.as_ref())?;
    drop(stream);
    assert!(all_equal(&vector, 3, &other)?);
    Ok(())
}

pub(crate) fn a_second_stream_follows_the_first(device: &Device) -> Outcome {
    let (first, second) = two_streams(device)?;
    let mut vector = DeviceVec::from_slice(&[1_u32; LARGE], first.as_ref())?;
    for round in 2..6 {
        let (late, prompt) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        stall(late);
        vector.fill(round, late.as_ref())?;
        assert!(all_equal(&vector, round, prompt)?);
    }
    Ok(())
}

pub(crate) fn reads_of_two_streams_come_before_a_write(device: &Device) -> Outcome {
    let (first, second) = two_streams(device)?;
    let home = device.stream()?;
    let values = pattern(LARGE);
    let mut vector = DeviceVec::from_slice(&values, home.as_ref())?;
    let (mut left, mut right) =
        (DeviceVec::uninit(LARGE, home.as_ref())?, DeviceVec::uninit(LARGE, home.as_ref())?);
    stall(&first);
    stall(&second);
    left.copy_from(vector.as_slice(), first.as_ref())?;
    right.copy_from(vector.as_slice(), second.as_ref())?;
    vector.fill(0, home.as_ref())?;
    assert_eq!(left.to_vec(home.as_ref())?, values);
    assert_eq!(right.to_vec(home.as_ref())?, values);
    assert!(all_equal(&vector, 0, &first)?);
    Ok(())
}

pub(crate) fn a_container_is_dropped_behind_its_uses(device: &Device) -> Outcome {
    let (home, other) = two_streams(device)?;
    for _ in 0..4 {
        let values = pattern(LARGE);
        let vector = DeviceVec::from_slice(&values, home.as_ref())?;
        let mut copy = DeviceVec::uninit(LARGE, other.as_ref())?;
        stall(&other);
        copy.copy_from(vector.as_slice(), other.as_ref())?;
        drop(vector);
        // Most likely the same block: freed on this stream, and taken again at once.
        let next = DeviceVec::filled(LARGE, 0_u32, home.as_ref())?;
        assert_eq!(copy.to_vec(other.as_ref())?, values);
        assert!(all_equal(&next, 0, &home)?);
    }
    Ok(())
}

pub(crate) fn a_leaked_guard_delays_and_no_more(device: &Device) -> Outcome {
    let (home, other) = two_streams(device)?;
    let mut vector = DeviceVec::from_slice(&pattern(1000), home.as_ref())?;
    mem::forget(vector.read_on(other.as_ref())?);
    mem::forget(vector.write_on(other.as_ref())?);
    mem::forget(vector.write_on(home.as_ref())?);
    assert_eq!(vector.to_vec(home.as_ref())?, pattern(1000));
    vector.resize(5000, 1, other.as_ref())?;
    mem::forget(vector.read_on(other.as_ref())?);
    // Its stream ends, and the use with it.
    drop(other);
    vector.fill(9, home.as_ref())?;
    assert!(all_equal(&vector, 9, &home)?);
    Ok(())
}

pub(crate) fn scenario_2_streams_end_before_their_containers(device: &Device) -> Outcome {
    let (home, other) = two_streams(device)?;
    let mut vector = DeviceVec::from_slice(&pattern(LARGE), home.as_ref())?;
    stall(&other);
    vector.fill(3, other.as_ref())?;
    drop(other);
    drop(home);
    // Whatever handles the driver gives to these, they are other streams.
    let (third, fourth) = two_streams(device)?;
    assert!(all_equal(&vector, 3, &third)?);
    vector.fill(4, fourth.as_ref())?;
    drop(fourth);
    assert!(all_equal(&vector, 4, &third)?);
    drop(third);
    drop(vector);
    Ok(())
}

pub(crate) fn scenario_13_dropped_on_a_thread_without_a_context(device: &Device) -> Outcome {
    let (home, other) = two_streams(device)?;
    let resource = Counting::new(device);
    let mut vector = DeviceVec::<u32, _>::uninit_in(LARGE, home.as_ref(), resource.clone())?;
    vector.fill(1, other.as_ref())?;
    let scalar = DeviceScalar::new_in(1.5_f64, home.as_ref(), resource.clone())?;
    thread::spawn(move || {
        drop(vector);
        drop(scalar);
    })
    .join()
    .expect("a drop does not panic");
    assert_eq!(resource.counts(), (2, 2));
    Ok(())
}

pub(crate) fn threads_read_one_vector_at_once(device: &Device) -> Outcome {
    let home = device.stream()?;
    let values = pattern(LARGE);
    let mut vector = DeviceVec::from_slice(&values, home.as_ref())?;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = device.stream().expect("a stream can be made");
                for _ in 0..10 {
                    assert_eq!(vector.to_vec(stream.as_ref()).expect("it can be read"), values);
                    drop(vector.read_on(stream.as_ref()).expect("it can be read"));
                }
            });
        }
    });
    vector.fill(0, home.as_ref())?;
    assert!(all_equal(&vector, 0, &home)?);
    Ok(())
}

pub(crate) fn halves_are_written_by_two_threads_at_once(device: &Device) -> Outcome {
    let home = device.stream()?;
    let mut vector = DeviceVec::<u32>::zeroed(LARGE, home.as_ref())?;
    let (low, high) = vector.as_mut_slice().split_at_mut(LARGE / 2)?;
    thread::scope(|scope| {
        for (mut half, value) in [(low, 1), (high, 2)] {
            scope.spawn(move || {
                let stream = device.stream().expect("a stream can be made");
                for round in 0..10 {
                    half.fill(10 * round + value, stream.as_ref()).expect("it can be filled");
                    drop(half.reborrow().write_on(stream.as_ref()).expect("it can be written"));
                }
            });
        }
    });
    let values = vector.to_vec(home.as_ref())?;
    assert!(values[..LARGE / 2].iter().all(|&element| element == 91));
    assert!(values[LARGE / 2..].iter().all(|&element| element == 92));
    Ok(())
}

pub(crate) fn a_threads_own_stream_may_be_a_home(device: &Device) -> Outcome {
    let other = device.stream()?;
    let mut vector = thread::scope(|scope| {
        scope
            .spawn(|| {
                let mine = device.per_thread_stream()?;
                let mut vector = DeviceVec::<u32>::zeroed(LARGE, mine.as_ref())?;
                stall(&mine);
                vector.fill(3, mine.as_ref())?;
                Ok::<_, Error>(vector)
            })
            .join()
            .expect("the thread does not panic")
    })?;
    // The thread is gone, and the legacy stream stands in.
    assert!(all_equal(&vector, 3, &other)?);
    let home = vector.stream().to_stream();
    vector.fill(4, home.as_ref())?;
    assert!(all_equal(&vector, 4, &other)?);
    let mine = device.per_thread_stream()?;
    vector.fill(5, mine.as_ref())?;
    vector.set_stream(mine.as_ref())?;
    thread::scope(|scope| {
        scope
            .spawn(|| {
                let home = vector.stream().to_stream();
                stall(&home);
                vector.fill(6, home.as_ref())
            })
            .join()
            .expect("the thread does not panic")
    })?;
    assert!(all_equal(&vector, 6, &other)?);
    assert!(all_equal(&vector, 6, &mine)?);
    thread::spawn(move || drop(vector)).join().expect("a drop does not panic");
    Ok(())
}

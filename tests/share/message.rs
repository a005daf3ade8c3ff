//! The message: what bytes are one, and what it says.

use alluvion::share::{ExportWay, Message};
use alluvion::source::Cuda;
use alluvion::{AnyResource, DeviceVec, ErrorKind};
use proptest::prelude::*;

use crate::rig::Rig;

fn with_message(look: impl FnOnce(&Rig, &Message)) {
    let rig = Rig::new();
    let stream = rig.first.device(0).stream().unwrap();
    let resource = AnyResource::new(Cuda::new(&rig.first.device(0)));
    let shared = rig.share(DeviceVec::filled_in(10, 1.0_f64, &stream, resource).unwrap(), &stream);
    look(&rig, shared.message());
    drop((shared.try_end().unwrap(), stream));
    rig.assert_clean();
}

#[test]
fn it_says_what_is_shared_and_survives_its_bytes() {
    with_message(|_, message| {
        assert_eq!(Message::from_bytes(&message.to_bytes()).unwrap(), *message);
        assert_eq!((message.bytes(), message.visible_bytes()), (80, 80));
        assert_eq!((message.element_bytes(), message.element_name()), (8, "f64"));
        assert_eq!((message.way(), message.is_writable()), (ExportWay::Allocation, false));
        assert!(!message.needs_descriptor());
        let text = format!("{message:?}");
        assert!(text.contains("f64") && text.contains("Allocation"), "{text}");
    });
}

#[cfg(feature = "serde")]
#[test]
fn serde_writes_the_bytes() {
    with_message(|_, message| {
        let text = serde_json::to_string(message).unwrap();
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), *message);
        for wrong in ["[1,2,3]", "[]", "\"text\"", "{}"] {
            assert!(serde_json::from_str::<Message>(wrong).is_err(), "{wrong}");
        }
    });
}

#[test]
fn a_name_that_would_steer_a_terminal_is_refused() {
    with_message(|_, message| {
        let mut bytes = message.to_bytes();
        let at = bytes.windows(3).position(|name| name == b"f64").expect("its elements have a name");
        for steers in *b"\x1b\x07\n\x7f" {
            bytes[at + 1] = steers;
            let error = Message::from_bytes(&bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Malformed);
            assert!(error.to_string().contains("steer a terminal"), "{error}");
        }
        bytes[at + 1] = b'#';
        assert_eq!(Message::from_bytes(&bytes).unwrap().element_name(), "f#4");
    });
}

#[test]
fn other_versions_and_lengths_are_named() {
    with_message(|_, message| {
        let bytes = message.to_bytes();
        let refused = |bytes: &[u8]| {
            let error = Message::from_bytes(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Malformed);
            error.to_string()
        };
        for len in 0..bytes.len() {
            refused(&bytes[..len]);
        }
        assert!(refused(&[bytes.as_slice(), &[0]].concat()).contains("353 bytes in place of 352"));
        let mut other = bytes.clone();
        other[4] = 2;
        assert!(refused(&other).contains("of version 2, and this library reads 1"));
        let mut other = bytes.clone();
        other[6] = 77;
        assert!(refused(&other).contains("the way 77"));
        let mut other = bytes;
        other[80..88].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(refused(&other).contains("not in its segment"));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is changed of a message, it is refused, or it is the same.
    #[test]
    fn a_message_that_was_changed_opens_nothing(changes in prop::collection::vec((0_usize..352, any::<u8>()), 1..8)) {
        with_message(|rig, message| {
            let stream = rig.second.device(0).stream().unwrap();
            let mut bytes = message.to_bytes();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            let is_same = bytes == message.to_bytes();
            let opened = Message::from_bytes(&bytes)
                .and_then(|message| rig.import(&message, None).open_bytes(&stream));
            assert_eq!(opened.is_ok(), is_same);
        });
    }

    #[test]
    fn any_bytes_are_an_error_or_a_message(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Message::from_bytes(&bytes);
    }
}

//! A [`Message`] with serde: its bytes.

use core::fmt;

use serde_core::de::{Error as _, SeqAccess, Visitor};
use serde_core::{Deserialize, Deserializer, Serialize, Serializer};

use super::message::{BYTES, Message};

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes())
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(OfBytes)
    }
}

struct OfBytes;

impl<'de> Visitor<'de> for OfBytes {
    type Value = Message;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a message of shared memory")
    }

    fn visit_bytes<E: serde_core::de::Error>(self, bytes: &[u8]) -> Result<Message, E> {
        Message::from_bytes(bytes).map_err(E::custom)
    }

    /// Formats of text write bytes as a list of numbers.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Message, A::Error> {
        let mut bytes = Vec::with_capacity(BYTES);
        while let Some(byte) = list.next_element()? {
            if bytes.len() > BYTES {
                break;
            }
            bytes.push(byte);
        }
        Message::from_bytes(&bytes).map_err(A::Error::custom)
    }
}

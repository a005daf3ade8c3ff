//! Reads pickles as PyTorch's viewer does: the same operations and no other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Map, Value};

/// Lists and dictionaries are shared, as those of Python are: what is remembered may be filled later.
#[derive(Clone, Debug)]
enum Item {
    Plain(Value),
    List(Rc<RefCell<Vec<Item>>>),
    Dict(Rc<RefCell<Vec<(String, Item)>>>),
}

impl Item {
    fn value(&self) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::List(items) => items.borrow().iter().map(Self::value).collect(),
            Self::Dict(entries) => {
                let entries = entries.borrow();
                let map: Map<_, _> = entries.iter().map(|(key, item)| (key.clone(), item.value())).collect();
                assert_eq!(map.len(), entries.len(), "a key comes twice");
                Value::Object(map)
            }
        }
    }
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk().expect("the file goes on");
        self.0 = rest;
        *taken
    }
}

/// The value in a pickle. Panics at what the viewer would not read.
pub(crate) fn unpickle(file: &[u8]) -> Value {
    let mut bytes = Bytes(file);
    let mut stack: Vec<Item> = Vec::new();
    let mut marks: Vec<usize> = Vec::new();
    let mut memo: HashMap<u32, Item> = HashMap::new();
    assert_eq!(bytes.take(), [0x80, 2], "protocol 2");
    loop {
        let [operation] = bytes.take();
        let plain = |value: Value| Item::Plain(value);
        match operation {
            b'.' => {
                assert!(bytes.0.is_empty() && stack.len() == 1 && marks.is_empty());
                return stack[0].value();
            }
            b'(' => marks.push(stack.len()),
            b']' => stack.push(Item::List(Rc::default())),
            b'}' => stack.push(Item::Dict(Rc::default())),
            b'K' => stack.push(plain(bytes.take::<1>()[0].into())),
            b'M' => stack.push(plain(u16::from_le_bytes(bytes.take()).into())),
            b'J' => stack.push(plain(i32::from_le_bytes(bytes.take()).into())),
            0x8a => {
                let [count] = bytes.take();
                let digits = (0..count).map(|_| bytes.take::<1>()[0]).collect::<Vec<_>>();
                assert!(digits.last().is_some_and(|digit| *digit < 0x80), "none is negative");
                let number = digits.iter().rev().fold(0_u128, |sum, digit| sum << 8 | u128::from(*digit));
                stack.push(plain(u64::try_from(number).expect("a number of 64 bits").into()));
            }
            b'X' => {
                let count = u32::from_le_bytes(bytes.take()) as usize;
                let (text, rest) = bytes.0.split_at(count);
                bytes.0 = rest;
                stack.push(plain(str::from_utf8(text).expect("UTF-8").into()));
            }
            0x88 => stack.push(plain(true.into())),
            0x89 => stack.push(plain(false.into())),
            0x86 => {
                let pair = stack.split_off(stack.len() - 2);
                stack.push(Item::List(Rc::new(RefCell::new(pair))));
            }
            b'q' => drop(memo.insert(bytes.take::<1>()[0].into(), stack.last().unwrap().clone())),
            b'r' => drop(memo.insert(u32::from_le_bytes(bytes.take()), stack.last().unwrap().clone())),
            b'h' => stack.push(memo[&bytes.take::<1>()[0].into()].clone()),
            b'j' => stack.push(memo[&u32::from_le_bytes(bytes.take())].clone()),
            b'e' => {
                let items = stack.split_off(marks.pop().unwrap());
                assert!(items.len() <= 1000, "in batches");
                let Some(Item::List(list)) = stack.last() else { panic!("what is appended to is no list") };
                list.borrow_mut().extend(items);
            }
            b'u' => {
                let items = stack.split_off(marks.pop().unwrap());
                let Some(Item::Dict(dict)) = stack.last() else { panic!("what is set is no dictionary") };
                for pair in items.chunks(2) {
                    let [Item::Plain(Value::String(key)), item] = pair else {
                        panic!("{pair:?} is no entry")
                    };
                    dict.borrow_mut().push((key.clone(), item.clone()));
                }
            }
            _ => panic!("the viewer does not know operation {operation:#x}"),
        }
    }
}

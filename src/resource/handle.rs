//! Handles of a resource: a borrow, a box, a shared pointer.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

use std::sync::Arc;

use super::{DeviceAccessible, HostAccessible, Resource, Shareable};
use crate::forward_resource;

// SAFETY: every method is forwarded to one resource, which keeps the contract; a handle can be moved without moving it.
unsafe impl<R: Resource + ?Sized> Resource for &R {
    forward_resource!(handle | this | **this);
}

// SAFETY: as for `&R`.
unsafe impl<R: Resource + ?Sized> Resource for Box<R> {
    forward_resource!(handle | this | **this);
}

// SAFETY: as for `&R`.
unsafe impl<R: Resource + ?Sized> Resource for Arc<R> {
    forward_resource!(handle | this | **this);
}

// SAFETY: a handle hands out the blocks of what it names.
unsafe impl<R: DeviceAccessible + ?Sized> DeviceAccessible for &R {}
// SAFETY: as for `&R`.
unsafe impl<R: DeviceAccessible + ?Sized> DeviceAccessible for Box<R> {}
// SAFETY: as for `&R`.
unsafe impl<R: DeviceAccessible + ?Sized> DeviceAccessible for Arc<R> {}
// SAFETY: a handle hands out the blocks of what it names.
unsafe impl<R: HostAccessible + ?Sized> HostAccessible for &R {}
// SAFETY: as for `&R`.
unsafe impl<R: HostAccessible + ?Sized> HostAccessible for Box<R> {}
// SAFETY: as for `&R`.
unsafe impl<R: HostAccessible + ?Sized> HostAccessible for Arc<R> {}

impl<R: Shareable + ?Sized> Shareable for &R {}
impl<R: Shareable + ?Sized> Shareable for Box<R> {}
impl<R: Shareable + ?Sized> Shareable for Arc<R> {}

//! Guest registers and byte strings through the plugin API.
//!
//! The functions that read and write registers are called from callbacks that QEMU was told do so.

#![allow(unsafe_code, reason = "calls into QEMU and GLib")]

use crate::ffi::{Api, GArray, RegisterDescriptor, RegisterHandle};
use std::ffi::CStr;
use std::ptr::NonNull;

/// The handle of the register of this name.
pub(crate) fn register(api: &Api, name: &CStr) -> Option<NonNull<RegisterHandle>> {
    // SAFETY: called from the initialisation callback of a vCPU, as the function demands.
    let list = unsafe { (api.qemu_plugin_get_registers)() };
    let list = NonNull::new(list)?;
    // SAFETY: QEMU returned a valid array, which nobody else has.
    let array = unsafe { list.as_ref() };
    let descriptors = array.data.cast::<RegisterDescriptor>();
    // SAFETY: the array has `len` descriptors.
    let descriptors = unsafe { std::slice::from_raw_parts(descriptors, array.len as usize) };
    let mut found = None;
    for descriptor in descriptors {
        // SAFETY: names are C strings that live as long as QEMU.
        if unsafe { CStr::from_ptr(descriptor.name) } == name {
            found = NonNull::new(descriptor.handle);
        }
    }
    // SAFETY: the caller frees the array.
    unsafe { (api.g_array_free)(list.as_ptr(), 1) };
    found
}

/// A GLib byte array of our own.
pub(crate) struct Bytes<'a> {
    api: &'a Api,
    pub(crate) array: NonNull<GArray>,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(api: &'a Api, content: &[u8]) -> Self {
        // Contents are registers and PEBS records: far below 4 GiB.
        let length = content.len() as u32;
        // SAFETY: plain constructor; GLib aborts rather than return null.
        let array = unsafe { (api.g_byte_array_sized_new)(length.max(8)) };
        // SAFETY: `array` is valid and `content` has `length` bytes.
        let array = unsafe { (api.g_byte_array_append)(array, content.as_ptr(), length) };
        // GLib never returns null; dangling would be caught by the self-check's first read.
        Self { api, array: NonNull::new(array).unwrap_or(NonNull::dangling()) }
    }

    pub(crate) fn content(&self) -> &[u8] {
        // SAFETY: the array is ours alone while borrowed.
        let array = unsafe { self.array.as_ref() };
        if array.len == 0 {
            return &[];
        }
        // SAFETY: GLib keeps `len` initialised bytes at `data`.
        unsafe { std::slice::from_raw_parts(array.data, array.len as usize) }
    }
}

impl Drop for Bytes<'_> {
    fn drop(&mut self) {
        // SAFETY: the array is ours and not used again.
        unsafe { (self.api.g_byte_array_free)(self.array.as_ptr(), 1) };
    }
}

pub(crate) fn little_endian(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let length = bytes.len().min(8);
    word[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(word)
}

/// `None` in a callback that was registered without access to registers (qemu-plugin.h, qemu_plugin_read_register).
pub(crate) fn register_if_readable(api: &Api, handle: NonNull<RegisterHandle>) -> Option<u64> {
    let bytes = Bytes::new(api, &[]);
    // SAFETY: the handle is from this vCPU's list, the array is ours; see the module's documentation for the context.
    unsafe { (api.qemu_plugin_read_register)(handle.as_ptr(), bytes.array.as_ptr()) };
    Some(bytes.content()).filter(|content| !content.is_empty()).map(little_endian)
}

/// In a callback with access to registers.
pub(crate) fn read_register(api: &Api, handle: NonNull<RegisterHandle>) -> u64 {
    register_if_readable(api, handle).unwrap_or(0)
}

/// A 16-byte register, as its low and its high half.
pub(crate) fn read_wide_register(api: &Api, handle: NonNull<RegisterHandle>) -> [u64; 2] {
    let bytes = Bytes::new(api, &[]);
    // SAFETY: as for an ordinary register.
    unsafe { (api.qemu_plugin_read_register)(handle.as_ptr(), bytes.array.as_ptr()) };
    let (low, high) = bytes.content().split_at(bytes.content().len().min(8));
    [little_endian(low), little_endian(high)]
}

pub(crate) fn write_register(api: &Api, handle: NonNull<RegisterHandle>, value: u64) {
    let bytes = Bytes::new(api, &value.to_le_bytes());
    // SAFETY: as for reading; general registers are 8 bytes long.
    unsafe { (api.qemu_plugin_write_register)(handle.as_ptr(), bytes.array.as_ptr()) };
}

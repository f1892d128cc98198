// SPDX-License-Identifier: GPL-2.0
//! The character device `/dev/hpm`.
//!
//! The kernel's `MiscDevice` abstraction offers no poll, so that the file operations are built here.

use core::pin::Pin;

use kernel::bindings;
use kernel::error::to_result;
use kernel::fs::File;
use kernel::mm::virt::VmaNew;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::poll::PollTable;
use kernel::types::{ForeignOwnable, Opaque};
use kernel::uaccess::UserPtr;

use super::control::Descriptor;
use super::reports::Follower;
use super::sys;
use crate::hpm_abi::{CONTROL_OFFSET, MARKER_PAGES_OFFSET};

/// The registered device.
#[pin_data(PinnedDrop)]
pub(super) struct Device {
    #[pin]
    inner: Opaque<bindings::miscdevice>,
}

// SAFETY: `misc_deregister` may be called on any thread.
unsafe impl Send for Device {}
// SAFETY: Nothing can be done through `&Device`.
unsafe impl Sync for Device {}

impl Device {
    /// Makes `/dev/hpm` appear, for root only until the administrator grants more.
    pub(super) fn register() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            inner <- Opaque::try_ffi_init(|slot: *mut bindings::miscdevice| {
                let device = bindings::miscdevice {
                    minor: bindings::MISC_DYNAMIC_MINOR as c_int,
                    name: c"hpm".as_ptr().cast(),
                    fops: &raw const OPERATIONS.0,
                    mode: 0o600,
                    ..Default::default()
                };
                // SAFETY: `slot` is to be initialised.
                unsafe { slot.write(device) };
                // SAFETY: The device stays where it is until it is deregistered.
                let registered = to_result(unsafe { bindings::misc_register(slot) });
                registered.inspect(|()| {
                    // SAFETY: It is registered; `drop` undoes this before it ends.
                    unsafe { sys::follow_sleep((*slot).this_device) };
                })
            }),
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Device {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `register` has registered it.
        unsafe { sys::ignore_sleep((*self.inner.get()).this_device) };
        // SAFETY: As above.
        unsafe { bindings::misc_deregister(self.inner.get()) };
    }
}

#[allow(improper_ctypes, reason = "only its address is used")]
extern "C" {
    /// This module, as modpost defines it. How Rust names it differs between versions of Linux.
    static __this_module: bindings::module;
}

static OPERATIONS: Operations = Operations(bindings::file_operations {
    // An open file keeps the module loaded.
    owner: (&raw const __this_module).cast_mut(),
    open: Some(Operations::open),
    release: Some(Operations::release),
    unlocked_ioctl: Some(Operations::ioctl),
    compat_ioctl: bindings::compat_ptr_ioctl,
    mmap: Some(Operations::mmap),
    poll: Some(Operations::poll),
    read: Some(Operations::read),
    ..pin_init::zeroed()
});

struct Operations(bindings::file_operations);

// SAFETY: Nobody writes the table, and what it refers to may be used on any thread.
unsafe impl Sync for Operations {}

impl Operations {
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: Both belong to the file that is being opened.
        let result = unsafe { bindings::nonseekable_open(inode, file) };
        if result != 0 {
            return result;
        }
        match Descriptor::new().and_then(|descriptor| Ok(KBox::new(descriptor, GFP_KERNEL)?)) {
            Ok(descriptor) => {
                // SAFETY: The file's private data is this device's while it is open.
                unsafe { (*file).private_data = descriptor.into_foreign() };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` has stored it; no other operation runs or will run, and no mapping is left.
        drop(unsafe { KBox::<Descriptor>::from_foreign((*file).private_data) });
        0
    }

    unsafe extern "C" fn ioctl(file: *mut bindings::file, request: c_uint, address: c_ulong) -> c_long {
        // SAFETY: The file is open.
        match unsafe { descriptor(file) }.ioctl(request, address) {
            Ok(()) => 0,
            Err(error) => c_long::from(error.to_errno() as i16),
        }
    }

    unsafe extern "C" fn mmap(file: *mut bindings::file, vma: *mut bindings::vm_area_struct) -> c_int {
        // SAFETY: The file is open.
        let descriptor = unsafe { descriptor(file) };
        // SAFETY: The area is being set up.
        let area = unsafe { VmaNew::from_raw(vma) };
        match map(descriptor, area) {
            Ok(()) => 0,
            Err(error) => error.to_errno(),
        }
    }

    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: The file is open.
        let descriptor = unsafe { descriptor(file) };
        // SAFETY: The table is null or valid for this call.
        let table = unsafe { PollTable::from_raw(table) };
        // SAFETY: The file is valid for this call, and poll does not use its position.
        table.register_wait(unsafe { File::from_raw_file(file) }, descriptor.readers());
        let Some(session) = descriptor.session() else { return 0 };
        let reports = descriptor.follower().is_some_and(Follower::has_filled);
        let readable = if reports || session.is_readable() { bindings::POLLIN } else { 0 };
        let gone = if session.is_target_gone() || session.has_given_up() { bindings::POLLHUP } else { 0 };
        readable | gone
    }

    unsafe extern "C" fn read(
        file: *mut bindings::file,
        buffer: *mut c_char,
        length: usize,
        _position: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: The file is open.
        let follower = unsafe { descriptor(file) }.follower();
        let buffer = UserPtr::from_addr(buffer.addr());
        match follower.ok_or(EINVAL).and_then(|follower| follower.read(buffer, length)) {
            Ok(bytes) => bytes as isize,
            Err(error) => error.to_errno() as isize,
        }
    }
}

/// The open file's state.
///
/// # Safety
/// The file is open for `'a`.
unsafe fn descriptor<'a>(file: *mut bindings::file) -> &'a Descriptor {
    // SAFETY: `open` has stored it, and `release` comes last.
    unsafe { KBox::<Descriptor>::borrow((*file).private_data) }
}

/// Maps what lies at the area's offset: the control area and marker pages for reading and writing, everything else for
/// reading only.
fn map(descriptor: &Descriptor, area: &VmaNew) -> Result {
    // SAFETY: The area is being set up by this thread.
    let offset = unsafe { (*area.as_ptr()).vm_pgoff } as u64 * PAGE_SIZE as u64;
    if area.flags() & bindings::VM_SHARED == 0 {
        return Err(EINVAL);
    }
    area.try_clear_mayexec()?;
    let is_marker_page = offset >> 44 == MARKER_PAGES_OFFSET >> 44;
    if offset >> 32 != CONTROL_OFFSET >> 32 && !is_marker_page {
        area.try_clear_maywrite()?;
    }
    // VM_IO makes VM_DONTCOPY permanent, and keeps others from pinning the pages.
    area.set_io();
    area.set_dontcopy();
    area.set_dontexpand();
    area.set_dontdump();
    let mixed = area.set_mixedmap();
    for address in (area.start()..area.end()).step_by(PAGE_SIZE) {
        let offset = offset + (address - area.start()) as u64;
        let page = if is_marker_page {
            descriptor.markers().page_at(offset)
        } else {
            descriptor.session().and_then(|session| session.page_at(offset))
        };
        let page = page.ok_or(EINVAL)?;
        // SAFETY: The page belongs to the file, which outlives its mappings.
        to_result(unsafe { bindings::vm_insert_page(mixed.as_ptr(), address, page) })?;
    }
    Ok(())
}

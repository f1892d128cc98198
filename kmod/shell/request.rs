// SPDX-License-Identifier: GPL-2.0
//! Moving ioctl arguments between user space and the driver, and refusals to errno values.

use core::mem::{size_of, MaybeUninit};
use core::slice;

use kernel::bindings;
use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};

use crate::hpm_abi::{
    CounterReading, CounterRequest, Envelope, Info, Mark, MarkerPageRequest, Reason, SessionConfig, Totals,
    ABI_VERSION,
};
use crate::hpm_core::Refusal;

/// Arguments longer than this are nobody's.
const ARGUMENT_MAX: usize = 4096;

/// The error of this errno, for those that `kernel::error::code` does not name in every version of Linux.
pub(super) fn error_of(errno: u32) -> Error {
    Error::from_errno(-(errno as c_int))
}

/// An ioctl argument.
///
/// # Safety
/// The type is `repr(C)`, has no padding, starts with an [`Envelope`], and every bit pattern is a value of it.
pub(super) unsafe trait Argument: Copy {}

// SAFETY: `hpm_abi` asserts size and layout; all fields are integers.
unsafe impl Argument for Envelope {}
// SAFETY: As above.
unsafe impl Argument for Info {}
// SAFETY: As above.
unsafe impl Argument for SessionConfig {}
// SAFETY: As above.
unsafe impl Argument for Totals {}
// SAFETY: As above.
unsafe impl Argument for CounterRequest {}
// SAFETY: As above.
unsafe impl Argument for CounterReading {}

// SAFETY: As above.
unsafe impl Argument for Mark {}
// SAFETY: As above.
unsafe impl Argument for MarkerPageRequest {}

/// Why a request failed.
pub(super) enum Failure {
    /// With a reason that user space is told.
    Refused(Refusal),
    /// With an errno only.
    Errno(Error),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Errno(error)
    }
}

/// Reads the argument at `address`, calls `f` with it, and writes back what `f` leaves in it, or the reason why it failed.
/// Not inlined, so that a kernel stack holds one argument only.
///
/// # Errors
/// `EFAULT` for bad memory, `E2BIG` for an argument whose unknown part is not zero; else what `f`'s failure says.
#[inline(never)]
pub(super) fn serve<T: Argument>(address: usize, f: impl FnOnce(&mut T) -> Result<(), Failure>) -> Result {
    let mut envelope = MaybeUninit::zeroed();
    let envelope: &mut Envelope = read(address, size_of::<Envelope>(), &mut envelope)?;
    let length = envelope.size as usize;
    let result = match check(envelope) {
        Ok(()) => {
            check_tail::<T>(address, length)?;
            let length = length.min(size_of::<T>());
            let mut argument = MaybeUninit::zeroed();
            let argument: &mut T = read(address, length, &mut argument)?;
            let result = f(argument);
            if result.is_ok() {
                return write(address, argument, length);
            }
            result
        }
        Err(refusal) => Err(refusal.into()),
    };
    match result {
        Ok(()) => Ok(()),
        Err(Failure::Errno(error)) => Err(error),
        Err(Failure::Refused(refusal)) => {
            refusal.describe(envelope);
            write(address, envelope, size_of::<Envelope>())?;
            Err(errno(refusal.reason))
        }
    }
}

fn check(envelope: &Envelope) -> Result<(), Refusal> {
    if envelope.version != ABI_VERSION {
        return Err(Refusal::new(Reason::Version, [ABI_VERSION.into(), 0]));
    }
    let size = envelope.size as usize;
    if !(size_of::<Envelope>()..=ARGUMENT_MAX).contains(&size) {
        return Err(Refusal::field(core::mem::offset_of!(Envelope, size)));
    }
    if envelope.reserved != 0 {
        return Err(Refusal::field(core::mem::offset_of!(Envelope, reserved)));
    }
    Ok(())
}

/// A newer caller's argument is longer: what this driver does not know must be zero.
fn check_tail<T>(address: usize, length: usize) -> Result {
    let mut reader = UserSlice::new(UserPtr::from_addr(address), length).reader();
    if length <= size_of::<T>() {
        return Ok(());
    }
    reader.skip(size_of::<T>())?;
    while !reader.is_empty() {
        if reader.read::<u8>()? != 0 {
            return Err(E2BIG);
        }
    }
    Ok(())
}

/// The first `length` bytes from user space, the rest zero, in `place`, which is all zero: by reference, because a session's
/// request is large for a kernel stack.
fn read<T: Argument>(address: usize, length: usize, place: &mut MaybeUninit<T>) -> Result<&mut T> {
    // SAFETY: The memory of `place`, all of it initialised to zero.
    let bytes = unsafe { slice::from_raw_parts_mut(place.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    let mut reader = UserSlice::new(UserPtr::from_addr(address), length).reader();
    reader.read_slice(&mut bytes[..length])?;
    // SAFETY: Every bit pattern is a value of an `Argument`.
    Ok(unsafe { place.assume_init_mut() })
}

fn write<T: Argument>(address: usize, value: &T, length: usize) -> Result {
    // SAFETY: An `Argument` has no padding, so that each of its bytes is initialised.
    let bytes = unsafe { slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) };
    UserSlice::new(UserPtr::from_addr(address), length).writer().write_slice(&bytes[..length])
}

fn errno(reason: Reason) -> Error {
    match reason {
        Reason::UnknownPmu | Reason::NoPmu | Reason::Unloading => ENODEV,
        Reason::CountersReserved
        | Reason::CountersRunning
        | Reason::SessionBusy
        | Reason::IntelPt
        | Reason::BranchesRunning
        | Reason::TooManySessions
        | Reason::TooManyProcesses => EBUSY,
        Reason::NeedKernelRight
        | Reason::NeedSystemRight
        | Reason::NeedTargetRight
        | Reason::NeedPreciseRight
        | Reason::ProofInvalid => EACCES,
        Reason::LockedDown => EPERM,
        Reason::NoCgroup => EBADF,
        Reason::NoCpu => ENXIO,
        Reason::NoProcess | Reason::NotMeasured => ESRCH,
        Reason::NoMemory | Reason::MemoryLimit | Reason::MemoryCeiling => ENOMEM,
        Reason::NoCounter => ENOSPC,
        Reason::NoPebs
        | Reason::NoEntryArea
        | Reason::NotPrecise
        | Reason::PebsErratum
        | Reason::NoCoreType
        | Reason::NewCoreType
        | Reason::NoIbs
        | Reason::IbsInterrupt
        | Reason::TooManyBranches
        | Reason::NoCallStackMode
        | Reason::SharedEvent
        | Reason::NoTracepoint
        | Reason::NoReports
        | Reason::NoReload
        | Reason::Virtualisation => error_of(bindings::EOPNOTSUPP),
        Reason::Version
        | Reason::Field
        | Reason::EventBits
        | Reason::PeriodTooSmall
        | Reason::ExtraMissing
        | Reason::ExtraBits
        | Reason::ExtraConflict
        | Reason::RecordGroups
        | Reason::OnlyPrecise
        | Reason::CoreTypeMissing
        | Reason::OnePrecise
        | Reason::StackBesideBranches
        | Reason::Configured
        | Reason::NotConfigured => EINVAL,
    }
}

//! Events as the shim asks the hpm module for them. It is told their encodings instead of their names: the tables of events are
//! full of addresses, which the dynamic loader would have to set right in each process.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::event::{self, CORE_TYPES, Event, Sampling};
use crate::machine::pmu_name;
use crate::sys::device::Driver;
use hpm_abi::CoreType;

/// An event to count, as the hpm module takes it ([`hpm_abi::EventSpec`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encoded {
    /// As it was asked for.
    pub name: String,
    /// [`Event::encoding`].
    pub encoding: u64,
    /// [`Event::extra`].
    pub extra: u64,
    /// [`CoreType`] by its number.
    pub core_type: u8,
    /// Counted at CPL 3.
    pub user: bool,
    /// Counted at CPL 0.
    pub kernel: bool,
}

/// The encodings of events on this machine, or why there are none.
///
/// # Errors
/// In words: the module is not there, or does not know an event.
pub fn encode(names: &[String]) -> std::result::Result<Vec<Encoded>, String> {
    let encoded = || -> Result<_> {
        let (_, info) = Driver::open_checked()?;
        let pmu = pmu_name(&info);
        names.iter().map(|name| event::parse(name, &pmu).map(Encoded::from)).collect()
    };
    encoded().map_err(|error| error.to_string())
}

/// Cycles in user mode, as the clock counts them.
///
/// # Errors
/// As [`encode`].
pub fn encode_clock() -> std::result::Result<Encoded, String> {
    encode(&["cycles:u".to_owned()]).map(|mut encoded| encoded.remove(0))
}

impl From<Event> for Encoded {
    fn from(event: Event) -> Self {
        Self {
            name: event.name,
            encoding: event.encoding,
            extra: event.extra,
            core_type: event.core_type as u8,
            user: event.user,
            kernel: event.kernel,
        }
    }
}

impl From<&Encoded> for Event {
    /// Good for counting only.
    fn from(event: &Encoded) -> Self {
        let core_type = CORE_TYPES.into_iter().find(|one| *one as u8 == event.core_type);
        Self {
            name: event.name.clone(),
            encoding: event.encoding,
            precise_encoding: event.encoding,
            extra: event.extra,
            core_type: core_type.unwrap_or(CoreType::Any),
            sampling: Sampling::Imprecise,
            must_be_precise: false,
            user: event.user,
            kernel: event.kernel,
            description: "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_counted_as_it_was_asked_for() {
        for (name, pmu) in [
            ("cycles:u", "skylake"),
            ("l1d-load-miss", "icelake"),
            ("cpu_atom/instructions/k", "goldencove+gracemont"),
            ("cpu_lowpower/load/", "lioncove+skymont+crestmont"),
        ] {
            let event = event::parse(name, pmu).unwrap();
            let again = Event::from(&Encoded::from(event.clone()));
            assert_eq!(again.encoding, event.encoding);
            assert_eq!((again.extra, again.core_type), (event.extra, event.core_type));
            assert_eq!((&again.name, again.user, again.kernel), (&event.name, event.user, event.kernel));
        }
    }
}

//! What stands between `cpu/` and `/`, and raw events, as perf writes them.

use hpm_abi::CoreType;

use super::{CORE_TYPES, pmu_prefix};
use crate::{Error, Result};

/// Bits of IA32_PERFEVTSELx that an event may set (SDM Vol. 3B 20.2.1.1): event select, unit mask, edge detect, invert and
/// counter mask, from version 6 on EQ and UMASK2 (Intel Architecture Instruction Set Extensions), and of AMD's PerfEvtSel the upper bits of
/// its event select (APM Vol. 2, 13.2.2). The privilege is said by modifiers; all others are the driver's.
const EVENT_BITS: u64 = CODE_BITS | 1 << 18 | 1 << 23 | 0xff << 24 | 1 << 36;

/// Bits that a NetBurst event may set ([`hpm_abi::EventSpec::encoding`]): event select and mask of the ESCR; ESCR select,
/// compare, complement, threshold and edge of the CCCR; the block.
const NETBURST_BITS: u64 = 0x7fff_fe00 << 32 | 0x01fc_e003;

/// Compare: without it the CCCR's threshold, complement and edge do nothing.
const COMPARE: u64 = 1 << 18;

/// Event select and unit mask, of all but NetBurst's.
pub(super) const CODE_BITS: u64 = 0xffff | 0xf << 32 | 0xff << 40;

/// AMD's instruction-based sampling as perf writes it, and the event's name here.
const IBS: [(&str, &str); 5] = [
    ("ibs_op//", "IBS_OP"),
    ("ibs_op/cnt_ctl=0/", "IBS_OP"),
    ("ibs_op/cnt_ctl=1/", "IBS_OP.UOPS"),
    ("ibs_op/cnt_ctl/", "IBS_OP.UOPS"),
    ("ibs_fetch//", "IBS_FETCH"),
];

/// An event's text, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// The cores that the prefix names.
    pub(super) core_type: CoreType,
    /// A name that the PMU's table must know; none in a raw event.
    pub(super) name: Option<&'a str>,
    /// Bits that were given as numbers.
    pub(super) encoding: u64,
    /// The value of `ldlat`, `offcore_rsp`, `frontend` or `tag`.
    pub(super) extra: Option<u64>,
    /// Terms that restrict what counts and that only one kind of PMU has.
    pub(super) filters: Option<Filters>,
}

/// Whose terms restrict an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filters {
    /// `edge`, `inv`, `cmask` and `eq` of IA32_PERFEVTSELx.
    Select,
    /// `e`, `cmpl` and `thr` of NetBurst's CCCRs, as libpfm4 calls them.
    Netburst,
}

/// The cores that an event says it is for, and what follows their PMU's name and its slash; `None` without such a name.
pub(super) fn of_pmu(text: &str) -> Option<(CoreType, &str)> {
    let (pmu, terms) = text.split_once('/')?;
    let named = |core_type: &CoreType| pmu_prefix(*core_type).unwrap_or("cpu") == pmu;
    let core_type = std::iter::once(CoreType::Any).chain(CORE_TYPES).find(named)?;
    Some((core_type, terms))
}

impl<'a> Request<'a> {
    /// Takes an event's text without its modifiers apart.
    pub(super) fn new(text: &'a str) -> Result<Self> {
        if let Some((core_type, terms)) = of_pmu(text) {
            let terms = terms.strip_suffix('/').ok_or_else(|| {
                syntax(text, "the closing slash is missing: write it as in `cpu/event=0xd1,umask=0x08/`")
            })?;
            return Self::terms(text, core_type, terms);
        }
        let empty = Self { core_type: CoreType::Any, name: None, encoding: 0, extra: None, filters: None };
        if let Some((_, name)) = IBS.into_iter().find(|(written, _)| *written == text) {
            return Ok(Self { name: Some(name), ..empty });
        }
        if text.starts_with("ibs_") && text.contains('/') {
            return Err(syntax(text, "of IBS there are `ibs_op//`, `ibs_op/cnt_ctl=1/` and `ibs_fetch//`"));
        }
        Ok(match hexadecimal(text)? {
            Some(encoding) => Self { encoding, ..empty },
            None => Self { name: Some(text), ..empty },
        })
    }

    /// A name, or `event=…,umask=…,cmask=…,edge,inv,eq`, and the registers beside them.
    fn terms(text: &'a str, core_type: CoreType, terms: &'a str) -> Result<Self> {
        let mut request = Self { core_type, name: None, encoding: 0, extra: None, filters: None };
        for (place, term) in terms.split(',').filter(|term| !term.is_empty()).enumerate() {
            if let Some(encoding) = hexadecimal(term)? {
                request.encoding |= encoding;
            } else if place == 0
                && !term.contains('=')
                && !matches!(term, "edge" | "inv" | "eq" | "e" | "cmpl")
            {
                request.name = Some(term);
            } else {
                request.term(text, term)?;
            }
        }
        if request.name.is_some() && request.encoding & CODE_BITS != 0 {
            return Err(syntax(text, "its name says event and umask already: leave one of them out"));
        }
        Ok(request)
    }

    fn term(&mut self, text: &str, term: &str) -> Result<()> {
        let (key, value) = term.split_once('=').unwrap_or((term, "1"));
        let (shift, max) = match key {
            "event" => (0, 0xfff),
            "umask" => (8, 0xffff),
            "edge" => (18, 1),
            "inv" => (23, 1),
            "cmask" => (24, 0xff),
            "eq" => (36, 1),
            "thr" => (20, 0xf),
            "cmpl" => (19, 1),
            "e" => (24, 1),
            "tag" => (0, u64::MAX),
            "ldlat" => (0, 0xffff),
            "offcore_rsp" => (0, u64::MAX),
            "frontend" => (0, 0xff_ffff),
            _ => {
                let known = "event, umask, edge, inv, cmask, eq, ldlat, offcore_rsp and frontend, or of a Pentium 4 e, \
                             cmpl, thr and tag";
                return Err(syntax(text, &format!("`{key}` is none of {known}")));
            }
        };
        let value = number(value).filter(|value| *value <= max);
        let value = value.ok_or_else(|| syntax(text, &format!("`{term}` is not a number up to {max:#x}")))?;
        let filters = match key {
            "event" | "umask" | "edge" | "inv" | "cmask" | "eq" => Some(Filters::Select),
            "e" | "cmpl" | "thr" => Some(Filters::Netburst),
            _ => None,
        };
        if filters.is_some() {
            if self.filters.is_some() && self.filters != filters {
                return Err(syntax(
                    text,
                    "e, cmpl and thr are a Pentium 4's, the others those of later processors",
                ));
            }
            self.filters = filters;
            self.encoding |= match key {
                // Bits 11:8, which only AMD's have, are bits 35:32.
                "event" => value & 0xff | value >> 8 << 32,
                // Bits 15:8 are UMASK2.
                "umask" => (value & 0xff) << shift | value >> 8 << 40,
                _ => value << shift,
            };
            self.encoding |= if filters == Some(Filters::Netburst) { COMPARE } else { 0 };
        } else if self.extra.replace(value).is_some() {
            return Err(syntax(text, "an event has one of ldlat, offcore_rsp, frontend and tag"));
        }
        Ok(())
    }
}

/// The encoding that `r` and hexadecimal digits give; `None` for other text, as a name may begin with r as well.
fn hexadecimal(text: &str) -> Result<Option<u64>> {
    let digits = text.strip_prefix('r').unwrap_or_default();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let encoding = u64::from_str_radix(digits, 16).map_err(|_| syntax(text, "it has more than 16 digits"))?;
    check(encoding, text).map(Some)
}

/// Whether it is an encoding of NetBurst's: those have their event select, which is never 0, above all bits of the others'.
pub(super) const fn is_netburst(encoding: u64) -> bool {
    encoding >> 57 != 0
}

/// The encoding, if it sets no bit that an event may not.
pub(super) fn check(encoding: u64, text: &str) -> Result<u64> {
    let allowed = if is_netburst(encoding) { NETBURST_BITS } else { EVENT_BITS };
    match encoding & !allowed {
        0 => Ok(encoding),
        bits => Err(syntax(
            text,
            &format!(
                "it sets the bits {bits:#x}; an event may set only event, umask, edge, inv, cmask and eq ({EVENT_BITS:#x})"
            ),
        )),
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

pub(super) fn syntax(text: &str, problem: &str) -> Error {
    Error::EventSyntax { text: text.into(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request<'_> {
        Request::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn terms_go_to_their_places() {
        let encoding = request("cpu/event=0xa3,umask=0x14,cmask=20,inv,edge=1/").encoding;
        assert_eq!(encoding, 0xa3 | 0x14 << 8 | 20 << 24 | 1 << 23 | 1 << 18);
        assert_eq!(request("cpu/inv,cmask=1,event=0xe/").encoding, 0x0e | 1 << 23 | 1 << 24);
        assert_eq!(request("cpu/eq,cmask=1,event=0xe/").encoding, 0x0e | 1 << 24 | 1 << 36);
    }

    #[test]
    fn the_event_selects_of_amd_have_twelve_bits() {
        assert_eq!(request("cpu/event=0x18e,umask=0x1f/").encoding, 0x1_0000_1f8e);
        assert_eq!(request("r100001f8e").encoding, 0x1_0000_1f8e);
        assert_eq!(request("ibs_op/cnt_ctl=1/").name, Some("IBS_OP.UOPS"));
    }

    #[test]
    fn unit_masks_have_sixteen_bits() {
        assert_eq!(request("cpu/event=0xc4,umask=0x111/").encoding, 0x100_0000_11c4);
        assert_eq!(request("r100000011c4").encoding, 0x100_0000_11c4);
    }

    #[test]
    fn registers_beside_the_encoding_are_terms_too() {
        for (text, extra) in [
            ("cpu/event=0xcd,umask=1,ldlat=30/", 30),
            ("cpu/event=0xb7,umask=1,offcore_rsp=0x3fffc00001/", 0x3f_ffc0_0001),
            ("cpu/event=0xc6,umask=1,frontend=0x11/", 0x11),
        ] {
            assert_eq!(request(text).extra, Some(extra), "{text}");
        }
    }

    #[test]
    fn a_name_may_stand_first_between_the_slashes() {
        let atom = request("cpu_atom/mem-loads,ldlat=64/");
        assert_eq!((atom.core_type, atom.name, atom.extra), (CoreType::Atom, Some("mem-loads"), Some(64)));
        let core = request("cpu_core/r08d1,cmask=1/");
        assert_eq!((core.core_type, core.name, core.encoding), (CoreType::Core, None, 0x0100_08d1));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for text in [
            "cpu/event=0x11d1/",
            "cpu/event=0xd1,umask=0x10000/",
            "ibs_op/rand_en=1/",
            "cpu/inv=2/",
            "cpu/event=/",
            "cpu/event=0xd1",
            "cpu/load,umask=1/",
            "cpu/event=1,load/",
            "cpu/ldlat=3,frontend=1/",
            "cpu/ldlat=0x10000/",
            "r2000000000",
            "r4100d1",
            "cpu_core/r4100d1/",
        ] {
            assert!(matches!(Request::new(text), Err(Error::EventSyntax { .. })), "{text}");
        }
    }

    #[test]
    fn names_that_begin_with_r_are_not_raw() {
        for text in ["rtm", "resource_stalls.any", "r", "cycles"] {
            assert_eq!(request(text).name, Some(text));
        }
    }
}

//! What names have in common: of events of a recording, as expressions call them, and of one event for each type of core.

use super::parse::split_modifiers;
use super::raw::of_pmu;
use super::{CORE_TYPES, CoreType};

/// The place of an event among those of a recording: by its name, or by its name without modifiers if only one has that.
#[must_use]
pub fn place(name: &str, events: &[String]) -> Option<usize> {
    if let Some(exact) = events.iter().position(|event| event == name) {
        return Some(exact);
    }
    let base = |event: &String| event.split_once(':').is_some_and(|(base, _)| base == name);
    let mut same = events.iter().enumerate().filter(|(_, event)| base(event));
    let (index, _) = same.next()?;
    same.next().is_none().then_some(index)
}

/// The events of a recording on a hybrid processor that a name means together, one for each type of core that has it
/// ([`super::parse_each`]); `None` where there are not several types, or several events of one. Without modifiers it means those of
/// any, if they are of the same.
#[must_use]
pub fn on_each_core<'a>(name: &str, events: &'a [String]) -> Option<Vec<&'a str>> {
    let (wanted, modifiers) = split_modifiers(name);
    let meant = events.iter().filter_map(|event| {
        let ((core_type, body), (_, of_event)) = (base(event), split_modifiers(event));
        let is_meant = body == wanted && (modifiers.is_empty() || modifiers == of_event);
        is_meant.then_some((core_type, of_event, event.as_str()))
    });
    let meant: Vec<_> = meant.filter(|(core_type, ..)| *core_type != CoreType::Any).collect();
    let of = |wanted| meant.iter().filter(|(core_type, ..)| *core_type == wanted).count();
    let (_, first, _) = meant.first()?;
    let alike = meant.len() > 1 && meant.iter().all(|(_, modifiers, _)| modifiers == first);
    let one_of_each = CORE_TYPES.into_iter().all(|core_type| of(core_type) <= 1);
    (alike && one_of_each).then(|| meant.iter().map(|&(.., event)| event).collect())
}

/// The type of cores that an event says it is for, and its name without that and without modifiers.
#[must_use]
pub fn base(name: &str) -> (CoreType, &str) {
    let (body, _) = split_modifiers(name);
    let between = of_pmu(body).and_then(|(core_type, terms)| Some((core_type, terms.strip_suffix('/')?)));
    between.unwrap_or((CoreType::Any, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned<const N: usize>(events: [&str; N]) -> Vec<String> {
        events.map(str::to_owned).into()
    }

    #[test]
    fn modifiers_may_be_left_out_where_one_event_has_the_name() {
        let events = owned(["cycles:u", "load:u", "load:k", "instructions"]);
        assert_eq!(
            ["cycles", "cycles:u", "load", "load:k", "instructions", "store"]
                .map(|name| place(name, &events)),
            [Some(0), Some(0), None, Some(2), Some(3), None]
        );
    }

    #[test]
    fn a_name_means_the_events_of_each_type_of_core() {
        let events = owned(["cpu_core/load/u", "cpu_atom/load/u", "cpu_core/store/", "cycles"]);
        let both = Some(vec!["cpu_core/load/u", "cpu_atom/load/u"]);
        assert_eq!(
            [on_each_core("load", &events), on_each_core("load:u", &events)],
            [both.clone(), both.clone()]
        );
        assert!(["load:k", "store", "cycles"].iter().all(|name| on_each_core(name, &events).is_none()));
        let three = owned(["cpu_core/load/", "cpu_atom/load/", "cpu_lowpower/load/"]);
        assert_eq!(on_each_core("load", &three).map(|events| events.len()), Some(3));
        let mixed = owned(["cpu_core/load/u", "cpu_atom/load/k"]);
        assert_eq!(on_each_core("load", &mixed), None);
        let modes = owned(["cpu_core/load/u", "cpu_core/load/k", "cpu_atom/load/u"]);
        assert_eq!(on_each_core("load", &modes), None);
        assert_eq!(on_each_core("load:u", &modes), both);
    }

    #[test]
    fn names_are_told_from_their_cores_and_modifiers() {
        assert_eq!(base("load:u"), (CoreType::Any, "load"));
        assert_eq!(base("cpu/event=0xd1/u"), (CoreType::Any, "event=0xd1"));
        assert_eq!(base("cpu_atom/load/"), (CoreType::Atom, "load"));
    }
}

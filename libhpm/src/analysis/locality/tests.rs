use super::*;

fn access(tid: u32, address: u64, writes: bool) -> Access {
    Access {
        event: 0,
        period: 100,
        pid: 1,
        tid,
        address: Ok(address),
        writes: Some(writes),
        space: Space::Heap,
        name: None,
        start: 0,
        object: None,
        young: false,
    }
}

fn profile(by: By, accesses: impl IntoIterator<Item = Access>) -> Profile {
    let mut profile = Profile::new(by, 2);
    accesses.into_iter().for_each(|access| profile.add(&access));
    profile
}

fn line(accesses: impl IntoIterator<Item = Access>) -> Entry {
    profile(By::Line, accesses).entries().remove(0)
}

#[test]
fn spaces_have_a_sum_for_each_event() {
    let stack = Access { space: Space::Stack, event: 1, ..access(1, 0x7000, false) };
    let profile = profile(By::Space, [access(1, 0x1000, false), access(1, 0x9000, false), stack]);
    let entries = profile.entries();
    let shown: Vec<_> =
        entries.iter().map(|one| (one.key.space, one.sums[0].events, one.sums[1].samples)).collect();
    assert_eq!(shown, [(Space::Heap, 200, 0), (Space::Stack, 0, 1)]);
    assert_eq!(profile.all().iter().map(|sum| sum.samples).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn different_bytes_of_a_line_that_is_written_are_false_sharing() {
    let entry = line([access(1, 0x1000, true), access(2, 0x1008, false), access(2, 0x100c, false)]);
    assert_eq!(entry.sharing, Some(Sharing::False));
    let touches: Vec<_> =
        entry.touches.iter().map(|touch| (touch.tid, touch.offset, touch.samples, touch.writes)).collect();
    assert_eq!(touches, [(1, 0, 1, 1), (2, 8, 2, 0)]);
    assert_eq!(entry.key.address, Some(0x1000));
}

#[test]
fn other_ways_to_share_are_told_apart() {
    assert_eq!(line([access(1, 0x1000, true), access(2, 0x1000, false)]).sharing, Some(Sharing::True));
    assert_eq!(line([access(1, 0x1000, false), access(2, 0x1010, false)]).sharing, Some(Sharing::ReadOnly));
    assert_eq!(line([access(1, 0x1000, true), access(1, 0x1010, true)]).sharing, None);
    let two = profile(By::Line, [access(1, 0x103f, true), access(2, 0x1040, true)]);
    assert!(two.entries().iter().all(|entry| entry.sharing.is_none()), "two lines");
}

#[test]
fn objects_and_their_sites() {
    let object = |number, address| Object { number, address, bytes: 48, site: "make_node".into() };
    let of = |number, address: u64, young| Access {
        object: Some(object(number, address)),
        young,
        ..access(1, address + 8, false)
    };
    let accesses =
        [of(1, 0x1000, true), of(1, 0x1000, false), of(2, 0x2000, false), access(1, 0x5000, false)];
    let sites = profile(By::Site, accesses.clone());
    let entries = sites.entries();
    assert_eq!(
        (entries.len(), entries[0].objects, entries[0].sums[0].young, entries[0].sums[0].samples),
        (1, 2, 1, 3)
    );
    assert_eq!(sites.all()[0].samples, 4, "what is no object counts in the whole");
    let objects = profile(By::Object, accesses).entries();
    assert_eq!((objects.len(), objects[0].key.address, objects[0].key.bytes), (2, Some(0x1000), Some(48)));
}

#[test]
fn reasons_and_names() {
    let unknown = Access { address: Err(Unknown::Overwritten), space: Space::Unknown, ..access(1, 0, false) };
    let global = Access { space: Space::Global, name: Some("table".into()), ..access(1, 0x4000, false) };
    let reasons = profile(By::Reason, [unknown.clone(), global.clone()]).entries();
    assert_eq!(reasons[0].key.name.as_deref(), Some("the instruction overwrote its own base or index"));
    let symbols = profile(By::Symbol, [unknown.clone(), global]).entries();
    assert_eq!((symbols.len(), symbols[0].key.name.as_deref()), (1, Some("table")));
    assert!(profile(By::Page, [unknown]).entries().is_empty());
}

#[test]
fn threads_of_a_line_have_their_places_the_busiest_first() {
    let touch = |tid, offset, samples| Touch { tid, offset, samples, writes: 0 };
    let threads = by_thread(&[touch(3, 0, 2), touch(1, 8, 4), touch(3, 16, 5), touch(2, 0, 4)]);
    let told: Vec<_> = threads
        .iter()
        .map(|thread| (thread.tid, thread.samples, thread.touches.iter().map(|touch| touch.offset).collect()))
        .collect::<Vec<(u32, u64, Vec<u64>)>>();
    assert_eq!(told, [(3, 7, vec![0, 16]), (1, 4, vec![8]), (2, 4, vec![0])]);
    assert!(by_thread(&[]).is_empty());
}

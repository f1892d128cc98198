//! Many samples at once, as hardware laid them out.

use super::column::Builder as _;
use super::row::{Registers, Row as _, SampleColumns, SampleRow};
use crate::record::Places;

/// The samples of one event in one quantum, whose records hardware laid out alike.
///
/// To make a row of each takes ten times the instructions of what is done here: a column at a time, without a look at what the
/// records have in common.
#[derive(Clone, Copy, Debug)]
pub struct SampleSpan<'a> {
    common: &'a SampleRow,
    records: &'a [u64],
    places: Places,
}

impl<'a> SampleSpan<'a> {
    /// Whole records, one behind the other, whose words are at these places. Of the samples' rows `common` has what no record tells:
    /// where, who, which quantum, event and period, and the time for records that have none.
    pub(crate) fn new(common: &'a SampleRow, records: &'a [u64], places: Places) -> Self {
        Self { common, records, places }
    }

    /// How many samples there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len() / self.places.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// About how many bytes the samples take.
    pub(super) fn bytes(&self) -> usize {
        self.len() * self.common.bytes()
    }

    /// The samples one by one, for who does not keep them in columns.
    pub fn rows(&self) -> impl Iterator<Item = SampleRow> + use<'a> {
        let Self { common, places, .. } = *self;
        self.records.chunks_exact(places.count).map(move |record| {
            // An event without a data address leaves the field 0.
            let address = places.address.filter(|place| record[*place] != 0);
            SampleRow {
                tsc: places.tsc.map_or(common.tsc, |place| record[place]),
                ip: record[places.ip],
                next_ip: places.registers.map(|order| record[order.place(Registers::RIP)]),
                data_address: address.map(|place| record[place]),
                data_source: address.map(|place| record[place + 1]),
                registers: places.registers.map(|order| Registers(order.of(record))),
                ..common.clone()
            }
        })
    }

    /// The records' words at this place.
    fn column(&self, place: usize) -> impl Iterator<Item = u64> + use<'a> {
        self.records.chunks_exact(self.places.count).map(move |record| record[place])
    }

    /// Adds the samples to a table's columns.
    pub(super) fn push_to(&self, columns: &mut SampleColumns) {
        let (common, rows) = (self.common, self.len());
        match self.places.tsc {
            Some(place) => columns.tsc.extend(self.column(place)),
            None => columns.tsc.repeat(common.tsc, rows),
        }
        columns.cpu.repeat(common.cpu, rows);
        columns.pid.repeat(common.pid, rows);
        columns.tid.repeat(common.tid, rows);
        columns.quantum.repeat(common.quantum, rows);
        columns.event.repeat(common.event, rows);
        columns.period.repeat(common.period, rows);
        columns.ip.extend(self.column(self.places.ip));
        self.push_addresses(columns);
        columns.latency_cycles.absent(rows);
        columns.instruction_latency_cycles.absent(rows);
        columns.retire_latency_cycles.absent(rows);
        columns.level.absent(rows);
        columns.snoop.absent(rows);
        columns.stlb_miss.absent(rows);
        columns.locked.absent(rows);
        columns.blocked.absent(rows);
        columns.branches.absent(rows);
        columns.stack.absent(rows);
        let Some(order) = self.places.registers else {
            columns.next_ip.absent(rows);
            columns.registers.absent(rows);
            return;
        };
        columns.next_ip.present(rows, |values| values.extend(self.column(order.place(Registers::RIP))));
        let registers = self.records.chunks_exact(self.places.count).map(|record| order.of(record));
        columns.registers.present(rows, |values| values.extend(registers));
    }

    fn push_addresses(&self, columns: &mut SampleColumns) {
        let rows = self.len();
        let told = |place| self.column(place).filter(|address| *address != 0).count();
        match self.places.address.map(|place| (place, told(place))) {
            Some((place, told)) if told == rows => {
                columns.data_address.present(rows, |values| values.extend(self.column(place)));
                columns.data_source.present(rows, |values| values.extend(self.column(place + 1)));
            }
            Some((place, 1..)) => {
                for (address, source) in self.column(place).zip(self.column(place + 1)) {
                    columns.data_address.push(&(address != 0).then_some(address));
                    columns.data_source.push(&(address != 0).then_some(source));
                }
            }
            _ => {
                columns.data_address.absent(rows);
                columns.data_source.absent(rows);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::fixed;
    use crate::trace::{Meta, Totals, TraceReader, TraceWriter};

    /// Records of a format, of which some have no data address.
    fn records() -> impl Strategy<Value = (u16, Vec<u64>)> {
        let word = || prop_oneof![1 => Just(0), 3 => any::<u64>()];
        (1..=3_u16).prop_flat_map(move |format| {
            let count = fixed::Format::new(format).unwrap().places().unwrap().count;
            let records = prop::collection::vec(prop::collection::vec(word(), count), 0..20);
            (Just(format), records.prop_map(|records| records.concat()))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Between rows that came one by one, of which some have what these have not.
        #[test]
        fn columns_have_what_rows_have(
            spans in prop::collection::vec(records(), 1..4),
            single in any::<bool>(),
        ) {
            let temp = tempfile::tempdir().unwrap();
            let mut writer = TraceWriter::create(temp.path().join("a.hpm"), Meta::default()).unwrap();
            let other = SampleRow {
                latency_cycles: Some(7),
                locked: Some(true),
                branches: Some(vec![1, 2, 3]),
                stack: Some(1),
                ..SampleRow::default()
            };
            let mut expected = Vec::new();
            for (number, (format, records)) in spans.iter().enumerate() {
                let common = SampleRow { tsc: 5, cpu: 1, pid: 2, tid: 3, quantum: 4, event: 1, period: 99, ..SampleRow::default() };
                let places = fixed::Format::new(*format).unwrap().places().unwrap();
                let span = SampleSpan::new(&common, records, places);
                writer.samples(&span).unwrap();
                expected.extend(span.rows());
                if single && number == 0 {
                    writer.sample(&other).unwrap();
                    expected.push(other.clone());
                }
            }
            writer.finish(Totals::default()).unwrap();
            let reader = TraceReader::open(temp.path().join("a.hpm")).unwrap();
            prop_assert_eq!(reader.rows::<SampleRow>().collect::<Vec<_>>(), expected);
        }
    }
}

//! Kernel functions, from `/proc/kallsyms`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::{Arc, OnceLock};

use super::demangle::demangled;
use super::preference::Preference;
use crate::trace::KernelSymbolRow;

/// The running kernel's functions, for [`crate::trace::TraceWriter::kernel_symbol`].
/// Empty when this user may not see addresses (`kernel.kptr_restrict`; root may).
///
/// # Errors
/// `/proc/kallsyms` cannot be read.
pub fn kernel_symbols() -> io::Result<Vec<KernelSymbolRow>> {
    parse(BufReader::new(File::open("/proc/kallsyms")?))
}

/// Reads lines `ADDRESS TYPE NAME [MODULE]` (proc_pid_kallsyms in the kernel's documentation of procfs), and keeps those
/// of code: types t, T, w and W (nm(1)).
fn parse(lines: impl BufRead) -> io::Result<Vec<KernelSymbolRow>> {
    let mut symbols = Vec::new();
    for line in lines.lines() {
        let line = line?;
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some("t" | "T" | "w" | "W"), Some(name)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        // Every address is zero for those who may not see them.
        if let Ok(address @ 1..) = u64::from_str_radix(address, 16) {
            let module = words.next().map(|module| module.trim_matches(['[', ']']).to_owned());
            symbols.push(KernelSymbolRow { address, name: name.to_owned(), module });
        }
    }
    Ok(symbols)
}

/// Kernel functions, shared by all that name by them: there are hundreds of thousands.
#[derive(Clone, Debug, Default)]
pub struct KernelFunctions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: OnceLock<KernelTable>,
    /// They are read when the first is asked for.
    of_this_kernel: bool,
}

impl KernelFunctions {
    /// These.
    #[must_use]
    pub fn new(rows: impl IntoIterator<Item = KernelSymbolRow>) -> Self {
        Self(Arc::new(Shared { table: KernelTable::new(rows).into(), of_this_kernel: false }))
    }

    /// Those of the running kernel. They are read when the first is asked for, which takes a tenth of a second; there are none where
    /// this user may not see their addresses.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        Self(Arc::new(Shared { table: OnceLock::new(), of_this_kernel: true }))
    }

    /// Name and module of the function at the address.
    pub(super) fn at(&self, address: u64) -> Option<(&Arc<str>, &Arc<str>)> {
        let Shared { table, of_this_kernel } = &*self.0;
        let read = || if *of_this_kernel { kernel_symbols().unwrap_or_default() } else { Vec::new() };
        table.get_or_init(|| KernelTable::new(read())).at(address)
    }
}

/// Kernel functions by address.
#[derive(Debug, Default)]
struct KernelTable(Vec<(u64, Arc<str>, Arc<str>)>);

impl KernelTable {
    fn new(rows: impl IntoIterator<Item = KernelSymbolRow>) -> Self {
        let kernel: Arc<str> = "[kernel]".into();
        let mut modules: HashMap<String, Arc<str>> = HashMap::new();
        let mut shown = |row: KernelSymbolRow| {
            let module = row.module.map(|module| {
                let name = || format!("[{module}]").into();
                Arc::clone(modules.entry(module.clone()).or_insert_with(name))
            });
            // Modules and parts of the kernel are written in Rust.
            (row.address, demangled(&row.name).into(), module.unwrap_or_else(|| Arc::clone(&kernel)))
        };
        let mut symbols: Vec<(u64, Arc<str>, Arc<str>)> = rows.into_iter().map(&mut shown).collect();
        /// Of the names of one address the one is kept that people type; which of them are local is not recorded.
        fn order((address, name, _): &(u64, Arc<str>, Arc<str>)) -> (u64, Preference<'_>) {
            (*address, Preference::of(name, false))
        }
        symbols.sort_by(|a, b| order(a).cmp(&order(b)));
        symbols.dedup_by_key(|(address, ..)| *address);
        Self(symbols)
    }

    /// Name and module of the function at the address.
    fn at(&self, address: u64) -> Option<(&Arc<str>, &Arc<str>)> {
        let after = self.0.partition_point(|(start, ..)| *start <= address);
        let (_, name, module) = &self.0[after.checked_sub(1)?];
        Some((name, module))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "ffffffff81000000 T _text\n\
        ffffffff81000100 t do_one_initcall\n\
        ffffffff82000000 D jiffies\n\
        ffffffffc0000000 t probe\t[hpm]\n\
        0000000000000000 A fixed_percpu_data\n\
        nonsense\n";

    #[test]
    fn functions_are_read_with_their_modules() {
        let more = "ffffffff81000100 t __softirqentry_text_start\nffffffff81000100 t __do_one\n";
        let table = KernelTable::new(parse(format!("{KALLSYMS}{more}").as_bytes()).unwrap());
        let at = |address| table.at(address).map(|(name, module)| (&**name, &**module));
        assert_eq!(at(0xffff_ffff_8100_0150), Some(("do_one_initcall", "[kernel]")));
        assert_eq!(at(0xffff_ffff_c000_0008), Some(("probe", "[hpm]")));
        assert_eq!(at(0xffff_ffff_8000_0000), None);
        let rust = KernelTable::new(parse("ffffffffc0000100 t _RNvC3hpm5start\t[hpm]\n".as_bytes()).unwrap());
        assert_eq!(rust.at(0xffff_ffff_c000_0100).map(|(name, _)| &**name), Some("hpm::start"));
    }

    #[test]
    fn hidden_addresses_give_no_symbols() {
        assert_eq!(parse("0000000000000000 T _text\n".as_bytes()).unwrap(), []);
    }
}

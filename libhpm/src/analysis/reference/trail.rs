//! How control came to a sample's instruction, by the sample's own branch records.

use iced_x86::{FlowControl, Instruction};

use super::Function;

/// Taken branches before an instruction, (from, to) by the linker's addresses, the newest first.
#[derive(Clone, Copy, Debug)]
pub struct Trail<'a>(&'a [(u64, u64)]);

impl<'a> Trail<'a> {
    /// Nothing is known.
    pub const NONE: Self = Self(&[]);

    /// Before the instruction at `ip`. The records may have been read later than that: the newest ones that the instruction does not follow
    /// are left out.
    #[must_use]
    pub fn new(branches: &'a [(u64, u64)], ip: u64) -> Self {
        let follows = |at: usize| {
            let run_end = at.checked_sub(1).map_or(u64::MAX, |newer| branches[newer].0);
            (branches[at].1..=run_end).contains(&ip)
        };
        (0..branches.len()).find(|&at| follows(at)).map_or(Self::NONE, |at| Self(&branches[at..]))
    }

    /// How control came to the function's first instruction: from which address, and how many records are older than that. `None`
    /// where the records end before that, or do not fit the code.
    #[must_use]
    pub fn entry(self, function: &Function) -> Option<(u64, usize)> {
        let (first, last) = (function.instructions.first()?.ip(), function.instructions.last()?.ip());
        let flow = |ip: u64| {
            let place = function.instructions.binary_search_by_key(&ip, Instruction::ip).ok()?;
            Some(function.instructions[place].flow_control())
        };
        // Backwards, what was called begins with its return.
        let mut returned: u32 = 0;
        for (at, &(from, to)) in self.0.iter().enumerate() {
            let into = (first..=last).contains(&to);
            let older = self.0.len() - at - 1;
            match flow(from) {
                None if to == first && returned == 0 => return Some((from, older)),
                None if into && to != first => returned += 1,
                None => {}
                Some(FlowControl::Call | FlowControl::IndirectCall) => match returned.checked_sub(1) {
                    Some(others) => returned = others,
                    // The function called itself.
                    None => return (to == first).then_some((from, older)),
                },
                Some(FlowControl::Return) if into => returned += 1,
                // Control left it, but what the trail leads to is in it.
                Some(_) if !into && returned == 0 => return None,
                Some(_) => {}
            }
        }
        None
    }

    /// The instruction that was executed before this one; a call of another function is one instruction. `None` where the
    /// records end, or do not fit the code.
    pub(super) fn previous(&mut self, function: &Function, index: usize) -> Option<usize> {
        let found = self.way(function, index);
        if found.is_none() {
            *self = Self::NONE;
        }
        found
    }

    fn way(&mut self, function: &Function, index: usize) -> Option<usize> {
        let ip = function.instructions[index].ip();
        let (&(from, to), older) = self.0.split_first()?;
        let place = |ip: u64| function.instructions.binary_search_by_key(&ip, Instruction::ip).ok();
        if to < ip {
            // No branch was taken since: control came from the instruction in front of this one, all the way from `to`.
            place(to)?;
            let previous = index.checked_sub(1)?;
            return function.before[index].contains(&previous).then_some(previous);
        }
        if to > ip {
            return None;
        }
        self.0 = older;
        match place(from) {
            Some(previous) => function.before[index].contains(&previous).then_some(previous),
            None => self.call(function, index.checked_sub(1)?),
        }
    }

    /// Control came back from what the instruction at `index` called: what was executed there is passed over.
    fn call(&mut self, function: &Function, index: usize) -> Option<usize> {
        let call = &function.instructions[index];
        if !matches!(call.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return None;
        }
        let entry = self.0.iter().position(|(from, _)| *from == call.ip());
        self.0 = entry.map_or(&[], |entry| &self.0[entry + 1..]);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop: mov rdi,[rdi+8]; call elsewhere; test rdi,rdi; jne to the beginning; ret.
    fn function() -> Function {
        let code = [0x48, 0x8b, 0x7f, 0x08, 0xe8, 0x00, 0x10, 0x00, 0x00, 0x48, 0x85, 0xff, 0x75, 0xf2, 0xc3];
        Function::new(&code, 0x1000, 64)
    }

    /// Indices of the instructions that were executed before one, backwards.
    fn back(branches: &[(u64, u64)], ip: u64) -> Vec<usize> {
        let function = function();
        let mut trail = Trail::new(branches, ip);
        let mut index = function.instructions.binary_search_by_key(&ip, Instruction::ip).unwrap();
        std::iter::from_fn(|| {
            index = trail.previous(&function, index)?;
            Some(index)
        })
        .collect()
    }

    #[test]
    fn a_loop_is_gone_backwards_and_calls_are_passed_over() {
        // At the jump of the second iteration: back from the call, the call, the loop's jump, back from the first call, that call.
        let branches =
            [(0x2010, 0x1009), (0x1004, 0x2009), (0x100c, 0x1000), (0x2010, 0x1009), (0x1004, 0x2009)];
        assert_eq!(back(&branches, 0x100c), [2, 1, 0, 3, 2, 1]);
        // Behind the last record nothing is known, not even that the instruction in front was executed.
        assert_eq!(back(&branches[..2], 0x100c), [2, 1]);
    }

    #[test]
    fn records_that_are_newer_than_the_instruction_are_left_out() {
        // Read after the ret: the newest record leads elsewhere.
        let branches = [(0x100e, 0x3000), (0x2010, 0x1009), (0x1004, 0x2009), (0x100c, 0x1000)];
        assert_eq!(back(&branches, 0x100c), [2, 1, 0, 3]);
    }

    #[test]
    fn the_way_into_a_function_is_found_before_what_it_called_itself() {
        let entry = |branches: &[(u64, u64)]| Trail::new(branches, 0x100c).entry(&function());
        // Two iterations, each with a call that returned, and what was executed before the function.
        let branches = [
            (0x2010, 0x1009),
            (0x1004, 0x2009),
            (0x100c, 0x1000),
            (0x2010, 0x1009),
            (0x2005, 0x200e),
            (0x1004, 0x2009),
            (0x3010, 0x1000),
            (0x3020, 0x3000),
        ];
        assert_eq!(entry(&branches), Some((0x3010, 1)));
        // The record of the entry was overwritten.
        assert_eq!(entry(&branches[..6]), None);
        // It called itself, and that has not returned.
        assert_eq!(entry(&[(0x1004, 0x1000), (0x3010, 0x1000)]), Some((0x1004, 1)));
        // It called itself, and that has returned.
        assert_eq!(entry(&[(0x100e, 0x1009), (0x1004, 0x1000), (0x3010, 0x1000)]), Some((0x3010, 0)));
        // It had returned before.
        assert_eq!(Trail(&[(0x100e, 0x3015), (0x3010, 0x1000)]).entry(&function()), None);
    }

    #[test]
    fn records_of_other_code_say_nothing() {
        assert_eq!(back(&[(0x3000, 0x3100)], 0x100c), [0; 0]);
        assert_eq!(back(&[], 0x100c), [0; 0]);
        // From elsewhere to behind an instruction that is no call.
        assert_eq!(back(&[(0x3000, 0x100c)], 0x100c), [0; 0]);
    }
}

//! The annotated dynamic call graph (§3): who called whom, how often, and for how long.

use std::collections::{BTreeMap, HashMap};

use super::matching::{Calls, Invocation};

/// A function as it was called from one chain of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Which function.
    pub function: u32,
    /// Place of the caller's node; `None` for what nobody (of the functions that were seen) called.
    pub caller: Option<usize>,
    /// Invocations.
    pub calls: u64,
    /// Time of all of them, callees included.
    pub total: u64,
    /// The same without callees.
    pub own: u64,
}

/// A program's calls as a tree, with invocations by the same chain of callers taken together.
#[derive(Clone, Debug, Default)]
pub struct CallGraph {
    nodes: Vec<Node>,
    places: HashMap<(Option<usize>, u32), usize>,
    functions: BTreeMap<u32, FunctionTimes>,
}

/// A function over all its invocations, as a row of the table in Figure 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FunctionTimes {
    /// Which function.
    pub function: u32,
    /// Invocations.
    pub calls: u64,
    /// Time in it, callees included: c_m. Of invocations within each other only the outermost one's time.
    pub total: u64,
    /// Time in it without callees.
    pub own: u64,
}

impl FunctionTimes {
    /// Mean time of an invocation, callees included.
    #[must_use]
    pub fn per_call(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.total as f64 / self.calls as f64 }
    }
}

/// What step 2 needs of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The program's time, over all its threads: c_T.
    pub total: u64,
    /// Its functions.
    pub functions: Vec<FunctionTimes>,
    /// Invocations of functions that were left out, of which nothing else is known.
    pub other_calls: u64,
}

impl Profile {
    /// Invocations of all functions.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.functions.iter().map(|function| function.calls).sum::<u64>() + self.other_calls
    }
}

impl CallGraph {
    /// A graph without calls.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Nodes in the order in which their functions were first called that way: callers come before callees.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Nodes without a caller.
    pub fn roots(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|&place| self.nodes[place].caller.is_none())
    }

    /// The nodes that were called from each node, in the same order as [`CallGraph::nodes`].
    #[must_use]
    pub fn callees(&self) -> Vec<Vec<usize>> {
        let mut callees = vec![Vec::new(); self.nodes.len()];
        for (place, node) in self.nodes.iter().enumerate() {
            if let Some(caller) = node.caller {
                callees[caller].push(place);
            }
        }
        callees
    }

    /// Functions, and the program's time: that of all roots.
    #[must_use]
    pub fn profile(&self) -> Profile {
        let total = self.roots().map(|place| self.nodes[place].total).sum();
        Profile { total, functions: self.functions.values().copied().collect(), other_calls: 0 }
    }
}

impl Calls for CallGraph {
    fn enter(&mut self, caller: Option<usize>, function: u32) -> usize {
        let nodes = &mut self.nodes;
        *self.places.entry((caller, function)).or_insert_with(|| {
            nodes.push(Node { function, caller, calls: 0, total: 0, own: 0 });
            nodes.len() - 1
        })
    }

    fn leave(&mut self, number: usize, invocation: &Invocation) {
        let node = &mut self.nodes[number];
        node.calls += 1;
        node.total += invocation.total;
        node.own += invocation.own;
        let function = self.functions.entry(invocation.function).or_default();
        function.function = invocation.function;
        function.calls += 1;
        function.own += invocation.own;
        if invocation.outermost {
            function.total += invocation.total;
        }
    }
}

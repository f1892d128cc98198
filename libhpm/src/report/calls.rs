//! Who calls whom: call stacks of samples as a tree, from a function to its callers or to its callees.

use std::collections::HashMap;

use serde::Serialize;

use super::{Estimate, Extent, Key, Sample, Sum};
use crate::symbol::Frame;

/// Which way a tree grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From functions to those that call them.
    Callers,
    /// From functions to those that they call.
    Callees,
}

/// Call stacks as a tree. A stack that begins somewhere unknown ends in a place called `[truncated]`, one that was not
/// recorded in `[no stack]`.
#[derive(Debug)]
pub struct CallTree {
    direction: Direction,
    function: Option<String>,
    root: Node,
    all: Sum,
}

/// A function in its context.
#[derive(Debug, Default)]
struct Node {
    own: Sum,
    total: Sum,
    children: HashMap<Key, Node>,
}

/// A function in its context, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallNode {
    /// The function.
    #[serde(flatten)]
    pub key: Key,
    /// Samples whose path through the tree ends here: of callees those in the function itself, of callers those whose stack
    /// begins with it.
    #[serde(rename = "self")]
    pub own: Sum,
    /// All samples whose path leads here.
    pub total: Sum,
    /// Share of `total` in all events.
    pub share: Estimate,
    /// Where the paths go on, the greatest share first.
    pub children: Vec<CallNode>,
    /// Children that are left out because their share is too small.
    pub left_out: usize,
}

impl CallTree {
    /// A tree that begins with this function, each stack at its outermost call of it; without one, with the functions that
    /// samples lie in (callers), or with those that stacks begin with (callees).
    #[must_use]
    pub fn new(direction: Direction, function: Option<String>) -> Self {
        Self { direction, function, root: Node::default(), all: Sum::default() }
    }

    /// Counts samples that say the same. Those without the tree's function count in [`CallTree::all`] alone.
    pub fn add(&mut self, sample: &Sample, sum: Sum) {
        self.all.add(sum);
        let frames: Vec<&Frame> = sample.chain.frames().collect();
        let named = |frame: &&Frame| frame.function.as_deref() == self.function.as_deref();
        let first = match (&self.function, self.direction) {
            (Some(_), _) => frames.iter().rposition(named),
            (None, Direction::Callers) => Some(0),
            (None, Direction::Callees) => Some(frames.len() - 1),
        };
        let Some(first) = first else { return };
        let beyond = match sample.chain.extent {
            Extent::Whole => None,
            Extent::Truncated => Some(pseudo("[truncated]")),
            Extent::AddressOnly => Some(pseudo("[no stack]")),
        };
        let path: Vec<Key> = match self.direction {
            Direction::Callers => {
                frames[first..].iter().map(|frame| Key::of_function(frame)).chain(beyond).collect()
            }
            Direction::Callees => {
                let inwards = frames[..=first].iter().rev().map(|frame| Key::of_function(frame));
                let beyond = beyond.filter(|_| self.function.is_none());
                beyond.into_iter().chain(inwards).collect()
            }
        };
        let mut node = &mut self.root;
        for key in path {
            node = node.children.entry(key).or_default();
            node.total.add(sum);
        }
        node.own.add(sum);
    }

    /// All samples, also those that are not in the tree.
    #[must_use]
    pub fn all(&self) -> Sum {
        self.all
    }

    /// The functions that the tree begins with, at most `limit` of them, and everything below them with at least this
    /// share of all events.
    #[must_use]
    pub fn nodes(&self, limit: usize, min_share: f64) -> Vec<CallNode> {
        let mut nodes = self.children(&self.root, min_share).0;
        nodes.truncate(limit);
        nodes
    }

    fn children(&self, node: &Node, min_share: f64) -> (Vec<CallNode>, usize) {
        let share = |sum: Sum| Estimate::of(sum, self.all);
        let mut shown: Vec<(&Key, &Node)> =
            node.children.iter().filter(|(_, child)| share(child.total).share >= min_share).collect();
        shown
            .sort_by(|(a, one), (b, other)| other.total.events.cmp(&one.total.events).then_with(|| a.cmp(b)));
        let left_out = node.children.len() - shown.len();
        let shown = shown.into_iter().map(|(key, child)| {
            let (children, left_out) = self.children(child, min_share);
            let (own, total) = (child.own, child.total);
            CallNode { key: key.clone(), own, total, share: share(total), children, left_out }
        });
        (shown.collect(), left_out)
    }
}

fn pseudo(name: &str) -> Key {
    Key { function: Some(name.into()), ..Key::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::sample;

    fn lines(tree: &CallTree, min_share: f64) -> Vec<String> {
        fn walk(depth: usize, nodes: &[CallNode], lines: &mut Vec<String>) {
            for node in nodes {
                let name = node.key.function.as_deref().unwrap_or("?");
                let more = if node.left_out > 0 { format!(" +{}", node.left_out) } else { String::new() };
                lines.push(format!(
                    "{}{name} {} {}{more}",
                    " ".repeat(depth),
                    node.total.events,
                    node.own.events
                ));
                walk(depth + 1, &node.children, lines);
            }
        }
        let mut lines = Vec::new();
        walk(0, &tree.nodes(10, min_share), &mut lines);
        lines
    }

    fn tree(direction: Direction, function: Option<&str>) -> CallTree {
        let mut tree = CallTree::new(direction, function.map(str::to_owned));
        let sum = |events| Sum::sample(events, None);
        tree.add(&sample(&["leaf", "walk", "walk", "main"], Extent::Whole), sum(70));
        tree.add(&sample(&["leaf", "other", "main"], Extent::Whole), sum(20));
        tree.add(&sample(&["walk", "main"], Extent::Truncated), sum(6));
        tree.add(&sample(&["leaf"], Extent::AddressOnly), sum(4));
        tree
    }

    #[test]
    fn callers_grow_outwards_from_the_samples_own_functions() {
        let expected = [
            "leaf 94 0",
            " walk 70 0",
            "  walk 70 0",
            "   main 70 70",
            " other 20 0",
            "  main 20 20",
            " [no stack] 4 4",
            "walk 6 0",
            " main 6 0",
            "  [truncated] 6 6",
        ];
        assert_eq!(lines(&tree(Direction::Callers, None), 0.0), expected);
    }

    #[test]
    fn callees_grow_inwards_from_where_stacks_begin() {
        let expected = [
            "main 90 0",
            " walk 70 0",
            "  walk 70 0",
            "   leaf 70 70",
            " other 20 0",
            "  leaf 20 20",
            "[truncated] 6 0",
            " main 6 0",
            "  walk 6 6",
            "[no stack] 4 0",
            " leaf 4 4",
        ];
        assert_eq!(lines(&tree(Direction::Callees, None), 0.0), expected);
    }

    /// A recursive function counts each sample once, from its outermost call on.
    #[test]
    fn a_tree_of_one_function_has_its_samples_once() {
        let walk = tree(Direction::Callees, Some("walk"));
        assert_eq!(lines(&walk, 0.0), ["walk 76 6", " walk 70 0", "  leaf 70 70"]);
        assert_eq!(walk.all().events, 100, "shares are of everything");
        let walk = tree(Direction::Callers, Some("walk"));
        assert_eq!(lines(&walk, 0.0), ["walk 76 0", " main 76 70", "  [truncated] 6 6"]);
        assert!(lines(&tree(Direction::Callers, Some("nobody")), 0.0).is_empty());
    }

    #[test]
    fn small_shares_are_left_out_and_counted() {
        assert_eq!(
            lines(&tree(Direction::Callers, None), 0.5),
            ["leaf 94 0 +2", " walk 70 0", "  walk 70 0", "   main 70 70"]
        );
    }
}

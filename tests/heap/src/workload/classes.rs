//! The types of all workloads, as a runtime's class library.

crate::classes! {
    /// A string, with the words that Java's had when the thesis was written.
    class Text { value: Chars; offset, count, hash }
    /// UTF-16 code units.
    data Chars [u16]

    /// Of db: all entries, in the order in which they were last sorted.
    class Database { index: Entries; count }
    /// References to entries.
    array Entries [Entry]
    /// A record.
    class Entry { items: Vector; }
    /// A growing array, with the words that Java's has.
    class Vector { element_data: Texts; count, increment, modified }
    /// References to strings.
    array Texts [Text]

    /// Of hash: a table with chains.
    class Table { buckets: Slots; count }
    /// References to slots.
    array Slots [Slot]
    /// A key, its value, and the next one of the chain.
    class Slot { key: Text, value: Boxed, next: Slot; hash }
    /// A number that is an object.
    class Boxed { ; number }

    /// Of btree: a node of at most 15 keys.
    class Branch { keys: Keys, children: Branches; count, leaf }
    /// Numbers.
    data Keys [u32]
    /// References to nodes.
    array Branches [Branch]

    /// Of trees: a node.
    class Tree { left: Tree, right: Tree; value }

    /// Of graph: a vertex.
    class Vertex { edges: Vertices; id, seen, distance }
    /// What is still to be visited: a queue of links.
    class Link { vertex: Vertex, next: Link; }
    /// References to vertices.
    array Vertices [Vertex]

    /// Of strings: text that grows.
    class Builder { chars: Chars; length }

    /// Of lru: the table, and both ends of the list.
    class Cache { table: Items, newest: Item, oldest: Item; count }
    /// References to items.
    array Items [Item]
    /// A key with its payload, in a chain of the table and in the list.
    class Item { key: Text, payload: Payload, chain: Item, newer: Item, older: Item; hash }
    /// What is cached.
    class Payload { ; first, second, third, fourth }

    /// Of matrix: rows of numbers.
    class Matrix { rows: Rows; height, width }
    /// References to rows.
    array Rows [Numbers]
    /// Numbers.
    data Numbers [f64]
}

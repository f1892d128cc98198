//! What objects look like: the descriptions that a compiler would make of a program's types.
//!
//! An object is a header of two 32-bit words (type and flags; length of an array), then its reference fields, 32 bits each,
//! then its other fields. [`classes!`](crate::classes) declares a program's types.

use std::marker::PhantomData;

use crate::raw::Plain;

/// Bytes of an object's header.
pub const HEADER_BYTES: u32 = 8;
/// Bytes of a reference and of a word.
pub const WORD_BYTES: u32 = 4;

/// One type.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// What follows the header.
    pub body: Body,
}

/// What follows an object's header.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// Named fields.
    Fields {
        /// References to other objects, which come first.
        references: &'static [ReferenceField],
        /// Names of the 32-bit words that follow.
        words: &'static [&'static str],
    },
    /// References to objects of one type, as many as the header says.
    References {
        /// Number of that type.
        element: u16,
    },
    /// Numbers, as many as the header says.
    Data {
        /// Size of one in bytes.
        element_bytes: u32,
    },
}

/// A field that refers to an object.
#[derive(Debug, PartialEq, Eq)]
pub struct ReferenceField {
    /// Its name.
    pub name: &'static str,
    /// Number of the type that it refers to.
    pub target: u16,
}

/// A reference field of a type, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldId {
    /// Number of the type.
    pub class: u16,
    /// Number of the field among the type's references.
    pub field: u16,
}

impl FieldId {
    /// `Type::field`, as the thesis writes it.
    #[must_use]
    pub fn name(self, types: &[&Shape]) -> String {
        let shape = types.get(usize::from(self.class));
        let field = shape.and_then(|shape| shape.fields().get(usize::from(self.field)));
        match (shape, field) {
            (Some(shape), Some(field)) => format!("{}::{}", shape.name, field.name),
            _ => "an unknown field".to_owned(),
        }
    }
}

impl Shape {
    /// The named reference fields; none of an array.
    #[must_use]
    pub const fn fields(&self) -> &'static [ReferenceField] {
        match self.body {
            Body::Fields { references, .. } => references,
            Body::References { .. } | Body::Data { .. } => &[],
        }
    }

    /// Size in bytes of an object whose header says `length`; `None` if it exceeds 32 bits.
    #[inline]
    #[must_use]
    pub fn bytes(&self, length: u32) -> Option<u32> {
        match self.body {
            Body::Fields { references, words } => {
                Some(HEADER_BYTES + WORD_BYTES * (references.len() + words.len()) as u32)
            }
            Body::References { .. } => length.checked_mul(WORD_BYTES)?.checked_add(HEADER_BYTES),
            Body::Data { element_bytes } => {
                length.checked_mul(element_bytes)?.checked_add(WORD_BYTES - 1 + HEADER_BYTES).map(|n| n & !3)
            }
        }
    }

    /// How many references an object whose header says `length` begins with.
    #[inline]
    #[must_use]
    pub fn references(&self, length: u32) -> u32 {
        match self.body {
            Body::Fields { references, .. } => references.len() as u32,
            Body::References { .. } => length,
            Body::Data { .. } => 0,
        }
    }

    /// Number of the reference field `name`, looked up by the compiler.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub const fn reference_named(&self, name: &str) -> u16 {
        let fields = self.fields();
        let mut at = 0;
        while at < fields.len() {
            if same(fields[at].name, name) {
                return at as u16;
            }
            at += 1;
        }
        panic!("no such reference field");
    }

    /// Offset in bytes of the word `name`, looked up by the compiler.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub const fn word_named(&self, name: &str) -> u32 {
        let Body::Fields { references, words } = self.body else { panic!("an array has no words") };
        let mut at = 0;
        while at < words.len() {
            if same(words[at], name) {
                return HEADER_BYTES + WORD_BYTES * (references.len() + at) as u32;
            }
            at += 1;
        }
        panic!("no such word");
    }
}

/// Equality of strings at compile time.
const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// A type of objects.
pub trait Object: Copy + 'static {
    /// Its number, the place in the program's list of types.
    const ID: u16;
    /// What its objects look like.
    const SHAPE: &'static Shape;
}

/// A type with named fields.
pub trait Class: Object {}

/// An array of references.
pub trait ReferenceArray: Object {
    /// What they refer to.
    type Element: Object;
}

/// An array of numbers.
pub trait DataArray: Object {
    /// The number.
    type Element: Plain;
}

/// The reference field of `T` with this number, which refers to a `C`.
#[derive(Debug)]
pub struct Reference<T, C>(u16, PhantomData<fn(T) -> C>);

/// A 32-bit field of `T`.
#[derive(Debug)]
pub struct Word<T>(u32, PhantomData<fn(T)>);

impl<T: Class, C: Object> Reference<T, C> {
    /// The field with this name; [`classes!`](crate::classes) writes the calls.
    ///
    /// # Panics
    /// If there is none, at compile time.
    #[must_use]
    pub const fn named(name: &str) -> Self {
        Self(T::SHAPE.reference_named(name), PhantomData)
    }

    /// Its number.
    #[inline]
    #[must_use]
    pub const fn id(&self) -> FieldId {
        FieldId { class: T::ID, field: self.0 }
    }
}

impl<T: Class> Word<T> {
    /// The field with this name; [`classes!`](crate::classes) writes the calls.
    ///
    /// # Panics
    /// If there is none, at compile time.
    #[must_use]
    pub const fn named(name: &str) -> Self {
        Self(T::SHAPE.word_named(name), PhantomData)
    }

    /// Its offset from the object's start in bytes.
    #[inline]
    pub(crate) const fn offset(&self) -> u32 {
        self.0
    }
}

/// Declares the types of a program, each as a Rust type with a function for each of its fields, and `TYPES`, the list that
/// [`Heap::new`](crate::Heap::new) wants.
///
/// ```
/// heap::classes! {
///     /// A list of strings: reference fields, a semicolon, and 32-bit words.
///     class List { first: Text, rest: List; length }
///     /// A string and its characters.
///     class Text { value: Chars; }
///     /// Numbers.
///     data Chars [u16]
///     /// References.
///     array Lists [List]
/// }
/// assert_eq!(List::rest().id().name(TYPES), "List::rest");
/// ```
#[macro_export]
macro_rules! classes {
    ($($(#[$doc:meta])* $kind:ident $name:ident $body:tt)*) => {
        #[allow(clippy::upper_case_acronyms, reason = "the names are the program's")]
        enum Number { $($name),* }
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name;
            impl $crate::layout::Object for $name {
                const ID: u16 = Number::$name as u16;
                const SHAPE: &'static $crate::layout::Shape = &$crate::layout::Shape {
                    name: stringify!($name),
                    body: $crate::classes!(@body $kind $body),
                };
            }
            $crate::classes!(@members $kind $name $body);
        )*
        /// The types above, by their numbers.
        pub static TYPES: &[&$crate::layout::Shape] = &[$(<$name as $crate::layout::Object>::SHAPE),*];
    };
    (@body class { $($field:ident : $target:ident),* ; $($word:ident),* }) => {
        $crate::layout::Body::Fields {
            references: &[$($crate::layout::ReferenceField {
                name: stringify!($field),
                target: <$target as $crate::layout::Object>::ID,
            }),*],
            words: &[$(stringify!($word)),*],
        }
    };
    (@body array [$element:ident]) => {
        $crate::layout::Body::References { element: <$element as $crate::layout::Object>::ID }
    };
    (@body data [$element:ident]) => {
        $crate::layout::Body::Data { element_bytes: <$element as $crate::raw::Plain>::BYTES }
    };
    (@members class $name:ident { $($field:ident : $target:ident),* ; $($word:ident),* }) => {
        impl $crate::layout::Class for $name {}
        impl $name {
            $(
                #[doc = concat!("The reference field `", stringify!($field), "`.")]
                #[must_use]
                pub const fn $field() -> $crate::layout::Reference<Self, $target> {
                    const { $crate::layout::Reference::named(stringify!($field)) }
                }
            )*
            $(
                #[doc = concat!("The word `", stringify!($word), "`.")]
                #[must_use]
                pub const fn $word() -> $crate::layout::Word<Self> {
                    const { $crate::layout::Word::named(stringify!($word)) }
                }
            )*
        }
    };
    (@members array $name:ident [$element:ident]) => {
        impl $crate::layout::ReferenceArray for $name { type Element = $element; }
    };
    (@members data $name:ident [$element:ident]) => {
        impl $crate::layout::DataArray for $name { type Element = $element; }
    };
}

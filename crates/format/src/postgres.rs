//! Postgres's identifiers and constants on the wire: OIDs of built-in types, encodings, collations, and the width and
//! alignment of attributes.
//!
//! Source: `src/include/catalog/pg_type.dat`. The OIDs of built-in types never change.

pub type Oid = u32;
/// A 1-based attribute number of an ordinary (not system) column.
pub type AttributeNumber = u16;
/// A 32-bit transaction id, as in a tuple header.
pub type TransactionId = u32;

pub mod type_oid {
    use super::Oid;
    pub const BOOL: Oid = 16;
    pub const BYTEA: Oid = 17;
    pub const CHAR: Oid = 18;
    pub const NAME: Oid = 19;
    pub const INT8: Oid = 20;
    pub const INT2: Oid = 21;
    pub const INT4: Oid = 23;
    pub const TEXT: Oid = 25;
    pub const OID: Oid = 26;
    pub const FLOAT4: Oid = 700;
    pub const FLOAT8: Oid = 701;
    pub const BPCHAR: Oid = 1042;
    pub const VARCHAR: Oid = 1043;
    pub const DATE: Oid = 1082;
    pub const TIME: Oid = 1083;
    pub const TIMESTAMP: Oid = 1114;
    pub const TIMESTAMPTZ: Oid = 1184;
    pub const INTERVAL: Oid = 1186;
    pub const NUMERIC: Oid = 1700;
    pub const TEXT_ARRAY: Oid = 1009;
    pub const CSTRING: Oid = 2275;
    pub const UUID: Oid = 2950;
    /// Stands for every enum type: requests do not name types of users.
    pub const ANYENUM: Oid = 3500;
    pub const JSONB: Oid = 3802;
}

/// `pg_enc` of the encodings that the cell knows; strings in any other encoding are opaque bytes.
pub mod encoding {
    pub const SQL_ASCII: u32 = 0;
    pub const UTF8: u32 = 6;
}

/// What a comparison of two datums' bytes implies under their collation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Collation {
    /// The type has no collation.
    None = 0,
    /// C or POSIX: the collation orders strings by their bytes.
    Bytewise = 1,
    /// Strings are equal if and only if their bytes are equal; the cell cannot compute the order.
    Deterministic = 2,
    /// Strings with different bytes may be equal.
    Nondeterministic = 3,
}

impl Collation {
    pub fn from_u8(value: u8) -> Option<Self> {
        [Self::None, Self::Bytewise, Self::Deterministic, Self::Nondeterministic]
            .into_iter()
            .find(|c| *c as u8 == value)
    }
}

/// `typalign`: the alignment of a datum in a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Align {
    Char,
    Short,
    Int,
    Double,
}

impl Align {
    pub fn from_typalign(typalign: u8) -> Option<Self> {
        match typalign {
            b'c' => Some(Self::Char),
            b's' => Some(Self::Short),
            b'i' => Some(Self::Int),
            b'd' => Some(Self::Double),
            _ => None,
        }
    }

    pub fn typalign(self) -> u8 {
        match self {
            Self::Char => b'c',
            Self::Short => b's',
            Self::Int => b'i',
            Self::Double => b'd',
        }
    }

    pub fn bytes(self) -> usize {
        match self {
            Self::Char => 1,
            Self::Short => 2,
            Self::Int => 4,
            Self::Double => 8,
        }
    }

    /// Rounds an offset up to the alignment.
    pub fn up(self, offset: usize) -> usize {
        (offset + self.bytes() - 1) & !(self.bytes() - 1)
    }
}

/// `typlen`: the width of a datum in a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    Fixed(u16),
    /// `typlen` -1: a varlena, with its header.
    Varlena,
    /// `typlen` -2: a NUL-terminated string.
    Cstring,
}

impl Width {
    pub fn from_typlen(typlen: i16) -> Option<Self> {
        match typlen {
            -1 => Some(Self::Varlena),
            -2 => Some(Self::Cstring),
            1.. => Some(Self::Fixed(typlen as u16)),
            _ => None,
        }
    }

    pub fn typlen(self) -> i16 {
        match self {
            Self::Fixed(bytes) => bytes as i16,
            Self::Varlena => -1,
            Self::Cstring => -2,
        }
    }
}

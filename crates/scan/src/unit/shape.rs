//! The relation's attributes as a unit needs them: how each attribute is stored in a tuple.

use cellar_format::bytes::{Corrupt, Reader, Write};
use cellar_format::postgres::{Align, Oid, Width, type_oid};
use cellar_format::wire::Relation;

/// `MaxHeapAttributeNumber`.
pub const ATTRIBUTES_MAX: usize = 1600;

/// Compression level of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    QueryLow = 1,
    QueryHigh = 2,
    ArchiveLow = 3,
    ArchiveHigh = 4,
}

impl Level {
    pub const ALL: [Self; 4] = [Self::QueryLow, Self::QueryHigh, Self::ArchiveLow, Self::ArchiveHigh];

    pub fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|level| *level as u8 == value)
    }

    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueryLow => "QUERY LOW",
            Self::QueryHigh => "QUERY HIGH",
            Self::ArchiveLow => "ARCHIVE LOW",
            Self::ArchiveHigh => "ARCHIVE HIGH",
        }
    }

    pub(super) fn zstd_level(self) -> i32 {
        match self {
            Self::QueryLow => 1,
            Self::QueryHigh => 3,
            Self::ArchiveLow => 12,
            Self::ArchiveHigh => 19,
        }
    }

    /// Rows of a string frame.
    pub(super) fn frame_rows(self) -> usize {
        match self {
            Self::QueryLow => 1024,
            Self::QueryHigh => 2048,
            Self::ArchiveLow => 16384,
            Self::ArchiveHigh => 65536,
        }
    }

    /// Pages of a residue group.
    pub(super) fn residue_pages(self) -> usize {
        match self {
            Self::QueryLow => 4,
            Self::QueryHigh => 16,
            Self::ArchiveLow => 64,
            Self::ArchiveHigh => 128,
        }
    }
}

/// One attribute (`pg_attribute`). Tuples keep the length and alignment of a dropped attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    /// 0 when the attribute was dropped.
    pub type_oid: Oid,
    pub width: Width,
    pub align: Align,
    /// `attbyval`: how a scan passes the value, not how the tuple stores it.
    pub by_value: bool,
    pub dropped: bool,
}

/// The first OID that PostgreSQL assigns to a type of a user (`FirstNormalObjectId`).
const FIRST_USER_OID: Oid = 16_384;

impl Attribute {
    /// Whether values of the attribute are values of a type that a request names. Units that were written before requests named
    /// enums contain the OID of the enum type itself. Changing the type of a column rewrites the table.
    pub fn is_of_type(&self, type_oid: Oid) -> bool {
        self.type_oid == type_oid
            || type_oid == type_oid::ANYENUM
                && self.type_oid >= FIRST_USER_OID
                && self.by_value
                && self.width == Width::Fixed(4)
    }
}

/// The attributes of a relation, in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape {
    pub attributes: Vec<Attribute>,
}

impl Shape {
    pub fn of(relation: &Relation) -> Self {
        let attributes = relation.attributes.iter().map(|attribute| Attribute {
            type_oid: attribute.type_oid,
            width: attribute.width,
            align: attribute.align,
            by_value: attribute.by_value,
            dropped: attribute.type_oid == 0,
        });
        Self { attributes: attributes.collect() }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.attributes.len() as u16);
        for attribute in &self.attributes {
            out.put_u32(attribute.type_oid);
            out.put_u16(attribute.width.typlen() as u16);
            out.put_u8(attribute.align.typalign());
            out.put_u8(u8::from(attribute.by_value) | u8::from(attribute.dropped) << 1);
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let count = reader.u16("attributes")? as usize;
        if count > ATTRIBUTES_MAX {
            return Err(Corrupt::new("attributes", reader.position(), format!("{count} attributes")));
        }
        let mut attributes = Vec::with_capacity(count);
        for _ in 0..count {
            let type_oid = reader.u32("attribute type")?;
            let (typlen, typalign, flags) =
                (reader.u16("attribute length")? as i16, reader.u8("attribute alignment")?, reader.u8("flags")?);
            let at = reader.position();
            let bad = || Corrupt::new("attribute", at, format!("length {typlen}, alignment {typalign}, flags {flags}"));
            let width = Width::from_typlen(typlen).ok_or_else(bad)?;
            let align = Align::from_typalign(typalign).ok_or_else(bad)?;
            if flags > 3 {
                return Err(bad());
            }
            attributes.push(Attribute { type_oid, width, align, by_value: flags & 1 != 0, dropped: flags & 2 != 0 });
        }
        Ok(Self { attributes })
    }
}

/// Conversion of fixed-width values to integers that order as the type does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    I8,
    U8,
    I16,
    I32,
    U32,
    I64,
    /// IEEE bits, mapped so that integers order as the floats do, with -0 before 0 and NaNs at both ends.
    F32,
    F64,
}

impl Number {
    pub fn of(attribute: &Attribute) -> Option<Self> {
        Some(match (attribute.type_oid, attribute.width) {
            (type_oid::FLOAT4, Width::Fixed(4)) => Self::F32,
            (type_oid::FLOAT8, Width::Fixed(8)) => Self::F64,
            (type_oid::OID, Width::Fixed(4)) => Self::U32,
            (type_oid::BOOL | type_oid::CHAR, Width::Fixed(1)) => Self::U8,
            (_, Width::Fixed(1)) => Self::I8,
            (_, Width::Fixed(2)) => Self::I16,
            (_, Width::Fixed(4)) => Self::I32,
            (_, Width::Fixed(8)) => Self::I64,
            _ => return None,
        })
    }

    /// The value in the low bytes of `word`, eight bytes read from a page.
    #[inline(always)]
    pub fn decode(self, word: u64) -> i64 {
        match self {
            Self::I8 => word as i8 as i64,
            Self::U8 => word as u8 as i64,
            Self::I16 => word as i16 as i64,
            Self::I32 => word as i32 as i64,
            Self::U32 => word as u32 as i64,
            Self::I64 => word as i64,
            Self::F32 => {
                let bits = word as i32;
                (bits ^ ((bits >> 31) as u32 >> 1) as i32) as i64
            }
            Self::F64 => {
                let bits = word as i64;
                bits ^ ((bits >> 63) as u64 >> 1) as i64
            }
        }
    }

    /// The value's bytes; bytes from [`Self::bytes`] on are undefined.
    #[inline(always)]
    pub fn encode(self, value: i64) -> [u8; 8] {
        match self {
            Self::F32 => {
                let key = value as i32;
                ((key ^ ((key >> 31) as u32 >> 1) as i32) as i64).to_le_bytes()
            }
            Self::F64 => (value ^ ((value >> 63) as u64 >> 1) as i64).to_le_bytes(),
            _ => value.to_le_bytes(),
        }
    }

    /// Width of the value in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enum_is_known_by_its_own_type_in_units_of_earlier_releases() {
        let of = |type_oid, bytes, by_value| Attribute {
            type_oid,
            width: Width::Fixed(bytes),
            align: Align::Int,
            by_value,
            dropped: false,
        };
        assert!(of(type_oid::ANYENUM, 4, true).is_of_type(type_oid::ANYENUM));
        assert!(of(16_500, 4, true).is_of_type(type_oid::ANYENUM));
        assert!(!of(type_oid::INT4, 4, true).is_of_type(type_oid::ANYENUM));
        assert!(!of(16_500, 4, true).is_of_type(type_oid::INT4));
        assert!(!of(16_500, 8, true).is_of_type(type_oid::ANYENUM));
        assert!(!of(16_500, 4, false).is_of_type(type_oid::ANYENUM));
    }
}

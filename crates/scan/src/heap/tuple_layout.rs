//! How to walk a tuple: the relation's attributes compiled into few steps.
//!
//! A segment covers a run of attributes that is walked in one go, so that a scan can stop early for rows that a
//! predicate drops. Neighbouring fixed-width attributes melt into one step as far as their alignment is known to
//! follow from the first one's. Source: `heap_deform_tuple`, `att_align_pointer` in `access/tupmacs.h`.

use cellar_format::postgres::{Align, Width};

/// Where a walk writes a column's location: an index into the chunk's location arrays.
pub type Slot = u16;
pub(super) const NO_SLOT: Slot = Slot::MAX;

#[derive(Debug, Clone, Copy)]
pub(super) struct AttributeLayout {
    pub width: Width,
    pub align: Align,
    pub slot: Slot,
}

#[derive(Debug)]
pub(super) enum Step {
    /// `bytes` bytes from the next multiple of `align`; each out is a slot and its distance from there.
    Fixed {
        align: u32,
        bytes: u32,
        outs: Vec<(Slot, u32)>,
    },
    Varlena {
        align: u32,
        slot: Option<Slot>,
    },
    Cstring {
        slot: Option<Slot>,
    },
}

/// Attributes `from..to` (0-based) of a tuple.
#[derive(Debug)]
pub struct AttributeRun {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) steps: Vec<Step>,
}

/// The columns of a relation, of which some have a slot.
#[derive(Debug)]
pub struct TupleLayout {
    pub(super) attributes: Vec<AttributeLayout>,
    slots: usize,
}

impl TupleLayout {
    pub fn new(attributes: impl Iterator<Item = (Width, Align)>) -> Self {
        let attributes = attributes.map(|(width, align)| AttributeLayout { width, align, slot: NO_SLOT }).collect();
        Self { attributes, slots: 0 }
    }

    /// The slot of a 0-based attribute, given one when it has none. Slots are given before segments are made.
    pub fn slot(&mut self, attribute: usize) -> Slot {
        let slot = &mut self.attributes[attribute].slot;
        if *slot == NO_SLOT {
            *slot = self.slots as Slot;
            self.slots += 1;
        }
        *slot
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn attributes(&self) -> usize {
        self.attributes.len()
    }

    /// How a 0-based attribute lies in a tuple.
    pub fn attribute(&self, index: usize) -> Option<(Width, Align)> {
        self.attributes.get(index).map(|attribute| (attribute.width, attribute.align))
    }

    pub fn run(&self, from: usize, to: usize) -> AttributeRun {
        let mut steps = Vec::new();
        for attribute in &self.attributes[from..to.max(from)] {
            let slot = (attribute.slot != NO_SLOT).then_some(attribute.slot);
            let align = attribute.align.bytes() as u32;
            match attribute.width {
                Width::Varlena => steps.push(Step::Varlena { align, slot }),
                Width::Cstring => steps.push(Step::Cstring { slot }),
                Width::Fixed(width) => {
                    // A tuple's data start on a multiple of eight, whatever the first attribute asks for.
                    let align = if from == 0 && steps.is_empty() { Align::Double.bytes() as u32 } else { align };
                    push_fixed(&mut steps, align, width as u32, slot)
                }
            }
        }
        AttributeRun { from, to: to.max(from), steps }
    }
}

fn push_fixed(steps: &mut Vec<Step>, align: u32, width: u32, slot: Option<Slot>) {
    if let Some(Step::Fixed { align: known, bytes, outs }) = steps.last_mut()
        && align <= *known
    {
        let delta = bytes.next_multiple_of(align);
        *bytes = delta + width;
        outs.extend(slot.map(|slot| (slot, delta)));
        return;
    }
    let outs = slot.map(|slot| (slot, 0)).into_iter().collect();
    steps.push(Step::Fixed { align, bytes: width, outs });
}

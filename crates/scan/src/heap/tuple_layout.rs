//! The layout of a relation's tuples, compiled into few steps for walking them.
//!
//! An [`AttributeRun`] covers consecutive attributes that are walked together, so a scan can stop walking rows that a
//! predicate drops. Adjacent fixed-width attributes share a step while the alignment of the first determines the
//! alignment of the others. Source: `heap_deform_tuple`, `att_align_pointer` in `access/tupmacs.h`.

use cellar_format::postgres::{Align, Width};

/// The index of a column's location array in [`super::PageRows`].
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
    /// `bytes` bytes from the next multiple of `align`; `outs` are slots and the distances of their columns from there.
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

/// Consecutive attributes of a tuple, the first of which has the 0-based number `from`.
#[derive(Debug)]
pub struct AttributeRun {
    pub(super) from: usize,
    pub(super) attributes: Vec<AttributeLayout>,
    pub(super) steps: Vec<Step>,
}

/// The attributes of a relation's tuples. Columns that a scan reads have a slot.
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

    /// The layout of items that contain the attributes with the 1-based numbers `numbers`, in that order. Slots remain those
    /// of this layout. None: a column with a slot is not among the attributes.
    pub fn of_attributes(&self, numbers: &[u16]) -> Option<Self> {
        let at = |number: &u16| self.attributes.get((*number as usize).wrapping_sub(1)).copied();
        let attributes: Vec<AttributeLayout> = numbers.iter().map(at).collect::<Option<_>>()?;
        let contains = |slot| attributes.iter().any(|attribute| attribute.slot == slot);
        let complete = self.attributes.iter().all(|attribute| attribute.slot == NO_SLOT || contains(attribute.slot));
        complete.then_some(Self { attributes, slots: self.slots })
    }

    /// The slot of a 0-based attribute; assigns one if there is none. Assign all slots before the first call of
    /// [`Self::run`].
    pub fn slot(&mut self, attribute: usize) -> Slot {
        let slot = &mut self.attributes[attribute].slot;
        if *slot == NO_SLOT {
            *slot = self.slots as Slot;
            self.slots += 1;
        }
        *slot
    }

    /// Assigns a slot to a column that is not in the tuples.
    pub fn extra_slot(&mut self) -> Slot {
        self.slots += 1;
        (self.slots - 1) as Slot
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn attributes(&self) -> usize {
        self.attributes.len()
    }

    /// The width and alignment of a 0-based attribute; None if the relation has fewer attributes.
    pub fn attribute(&self, index: usize) -> Option<(Width, Align)> {
        self.attributes.get(index).map(|attribute| (attribute.width, attribute.align))
    }

    /// The run of attributes `from..to`.
    pub fn run(&self, from: usize, to: usize) -> AttributeRun {
        let mut steps = Vec::new();
        let attributes = &self.attributes[from..to.max(from)];
        for attribute in attributes {
            let slot = (attribute.slot != NO_SLOT).then_some(attribute.slot);
            let align = attribute.align.bytes() as u32;
            match attribute.width {
                Width::Varlena => steps.push(Step::Varlena { align, slot }),
                Width::Cstring => steps.push(Step::Cstring { slot }),
                Width::Fixed(width) => {
                    // The data of a tuple start on a multiple of eight, whatever the alignment of the first attribute.
                    let align = if from == 0 && steps.is_empty() { Align::Double.bytes() as u32 } else { align };
                    push_fixed(&mut steps, align, width as u32, slot)
                }
            }
        }
        AttributeRun { from, attributes: attributes.to_vec(), steps }
    }
}

/// Appends a fixed-width attribute to the last step if possible, otherwise as a new step.
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

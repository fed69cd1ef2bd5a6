//! Top-N: drops rows that cannot be among the first n rows of an order.
//!
//! A binary heap contains the keys of the first n rows returned so far, with the last of these rows on top. A row that
//! follows or ties with the top row is dropped: n rows that do not follow the dropped row were already returned. Every
//! other row is returned and replaces the top of the heap. The receiver sorts the rows.
//!
//! Invariants: only rows returned to the same receiver enter the heap. All keys of a row are evaluated before the row
//! is dropped. A row whose keys cannot be computed (an error, a value outside the page), or for whose keys no memory is
//! granted, is returned and does not enter the heap.

use crate::heap::{MISSING, NULL, Slot};
use crate::memory::{Account, Grant};
use crate::predicate::{Column, ColumnTest, Compiler, Node, RowSet, Unsupported};
use crate::value::{Comparison, Domain, Value, ValueKind, compare, numeric};
use cellar_format::wire;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::sync::Arc;

/// Maximum bytes of a row's keys in the heap; rows with longer keys are returned without entering the heap.
const KEYS_BYTES_MAX: usize = 1024;
/// Memory that the heap may use without a grant.
const MEMORY_BYTES_FREE: usize = 64 << 10;

struct SortKey {
    node: Node,
    domain: Domain,
    descending: bool,
    nulls_first: bool,
}

/// A compiled sort order and the number of rows to return; part of a plan.
pub(crate) struct TopNPlan {
    rows: usize,
    keys: Vec<SortKey>,
    /// The columns that keys read; ascending.
    slots: Vec<Slot>,
    /// The first key, if all keys are plain columns and the first has values that are integers, numerics or texts.
    first: Option<FirstKey>,
}

/// The first sort key of a top-N whose keys are plain columns: a row that follows the last of the first rows by this key alone can
/// be dropped, because the other keys raise no errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstKey {
    pub slot: Slot,
    kind: ValueKind,
    domain: Domain,
    pub descending: bool,
    pub nulls_first: bool,
    /// Whether there is no other key: then a row with the same key as the last of the first rows can be dropped, too.
    is_only: bool,
}

impl FirstKey {
    pub fn is_string(&self) -> bool {
        self.domain == Domain::Bytes
    }

    /// The test of values that may be in one of the first rows, the last of which has the value `last`. None: the values of the key
    /// cannot be tested.
    pub fn test(&self, last: &Value<'_>) -> Option<ColumnTest> {
        let comparison = match (self.descending, self.is_only) {
            (true, true) => Comparison::Greater,
            (true, false) => Comparison::GreaterOrEqual,
            (false, true) => Comparison::Less,
            (false, false) => Comparison::LessOrEqual,
        };
        ColumnTest::compare(self.domain, comparison, last)
    }
}

/// Keys that are stored inside [`Keys`].
const INLINE_KEYS: usize = 2;

type Keys = SmallVec<[Value<'static>; INLINE_KEYS]>;

/// Returns the memory of keys' values outside the values themselves.
fn value_bytes(keys: &[Value<'_>]) -> usize {
    let bytes = |value: &Value<'_>| match value {
        Value::Bytes(bytes) => bytes.len(),
        Value::Numeric(number) => number.digits.len() * 2,
        _ => 0,
    };
    keys.iter().map(bytes).sum()
}

impl TopNPlan {
    pub fn compile(request: &wire::TopN, compiler: &mut Compiler<'_>) -> Result<Self, Unsupported> {
        let mut keys = Vec::with_capacity(request.keys.len());
        let mut slots = Vec::new();
        for key in &request.keys {
            let (node, domain) = compiler.sort_key(&key.expr, key.less, key.collation)?;
            key.expr.for_each_column(&mut |number| slots.push(compiler.layout.slot(number as usize - 1)));
            keys.push(SortKey { node, domain, descending: key.descending, nulls_first: key.nulls_first });
        }
        slots.sort_unstable();
        slots.dedup();
        let plain = keys.iter().all(|key| matches!(key.node, Node::Column(_)));
        let first = match keys.first() {
            Some(SortKey { node: Node::Column(slot), domain, descending, nulls_first }) if plain => {
                let column = compiler.columns.get(*slot as usize).and_then(Option::as_ref);
                let kind = column.and_then(|column| column.kind).filter(|kind| match domain {
                    Domain::Int => kind.is_int(),
                    Domain::Numeric => *kind == ValueKind::Numeric,
                    Domain::Bytes => matches!(kind, ValueKind::Text | ValueKind::Bytea),
                    _ => false,
                });
                kind.map(|kind| FirstKey {
                    slot: *slot,
                    kind,
                    domain: *domain,
                    descending: *descending,
                    nulls_first: *nulls_first,
                    is_only: keys.len() == 1,
                })
            }
            _ => None,
        };
        Ok(Self { rows: request.rows as usize, keys, slots, first })
    }

    /// The columns that keys read, and the 0-based numbers of their attributes.
    pub fn columns(&self, columns: &[Option<Column>]) -> impl Iterator<Item = (Slot, usize)> {
        self.slots.iter().filter_map(|slot| Some((*slot, columns.get(*slot as usize)?.as_ref()?.attribute)))
    }

    /// The number of rows to return.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The first key, if it alone may decide that a row is dropped.
    pub fn first_key(&self) -> Option<FirstKey> {
        self.first
    }

    /// Compares two rows by their keys, whose values are comparable.
    fn order(&self, left: &[Value<'_>], right: &[Value<'_>]) -> Ordering {
        for (key, (left, right)) in self.keys.iter().zip(left.iter().zip(right)) {
            let ordering = key.order(left, right);
            if ordering.is_ne() {
                return ordering;
            }
        }
        Ordering::Equal
    }
}

impl SortKey {
    fn order(&self, left: &Value<'_>, right: &Value<'_>) -> Ordering {
        match (left.is_null(), right.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) if self.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if self.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let ordering = compare(self.domain, left, right).unwrap_or(Ordering::Equal);
                if self.descending { ordering.reverse() } else { ordering }
            }
        }
    }

    /// Returns whether a value may enter the heap: its length is at most `bytes_max`, and the key can order the value.
    fn can_enter_heap(&self, value: &Value<'_>, bytes_max: usize) -> bool {
        match value {
            Value::Null => true,
            Value::Bytes(bytes) if bytes.len() > bytes_max => false,
            Value::Numeric(number) if number.digits.len() * 2 > bytes_max => false,
            value => compare(self.domain, value, value).is_some(),
        }
    }
}

/// The keys of the first rows that a scan has returned.
pub(crate) struct TopN {
    /// A binary heap: no entry follows its parent in the order, so the last row is on top.
    heap: Vec<Keys>,
    /// Memory of the keys' values outside `heap`.
    value_bytes: usize,
    memory: Grant,
}

impl TopN {
    /// `memory` is the account of the heap's memory.
    pub fn new(memory: &Arc<Account>) -> Self {
        Self { heap: Vec::new(), value_bytes: 0, memory: Grant::new(memory) }
    }

    /// Deselects rows that cannot be among the first rows.
    pub fn retain(&mut self, plan: &TopNPlan, rows: RowSet<'_>, selected: &mut Vec<u16>) {
        let bytes_max = KEYS_BYTES_MAX / plan.keys.len().max(1);
        selected.retain(|row| {
            if self.heap.len() == plan.rows && self.first_key_decides(plan, rows, *row) {
                return false;
            }
            let row = rows.row(*row);
            let mut keys: SmallVec<[Value<'_>; 2]> = SmallVec::new();
            for key in &plan.keys {
                match key.node.eval(&row) {
                    Ok(value) if key.can_enter_heap(&value, bytes_max) => keys.push(value),
                    _ => return true,
                }
            }
            self.insert(plan, &keys)
        });
    }

    /// The value of the first key in the last of the first rows. None: fewer rows than wanted were returned.
    pub fn last(&self, plan: &TopNPlan) -> Option<&Value<'static>> {
        self.heap.first().filter(|_| self.heap.len() == plan.rows)?.first()
    }

    /// Returns whether the row follows the top of the heap by its first key alone.
    #[inline(always)]
    fn first_key_decides(&self, plan: &TopNPlan, rows: RowSet<'_>, row: u16) -> bool {
        let Some(FirstKey { slot, kind, domain, .. }) = plan.first else { return false };
        let (Some(column), Some(last)) = (rows.column(slot), self.heap.first()) else {
            return false;
        };
        let location = rows.locations(slot)[row as usize];
        let value = match location {
            MISSING => return false,
            NULL => Value::Null,
            _ if domain == Domain::Bytes => match column.plain_bytes(rows.bytes, location as usize) {
                Some(bytes) => Value::Bytes(bytes.into()),
                None => return false,
            },
            _ if kind == ValueKind::Numeric => {
                // Keys decide only if both values have one.
                let key = column.plain_bytes(rows.bytes, location as usize).and_then(numeric::key);
                let last_key = if let Value::Numeric(last) = &last[0] { last.key() } else { None };
                return match (key, last_key) {
                    (Some(key), Some(last)) if plan.keys[0].descending => key < last,
                    (Some(key), Some(last)) => key > last,
                    _ => false,
                };
            }
            _ => match column.int(kind, rows.bytes, location as usize) {
                Some(value) if kind == ValueKind::Bool => Value::Bool(value != 0),
                Some(value) => Value::Int(value),
                None => return false,
            },
        };
        plan.keys[0].order(&value, &last[0]).is_gt()
    }

    /// Inserts a row's keys into the heap. Returns false if the row must be dropped.
    fn insert(&mut self, plan: &TopNPlan, keys: &[Value<'_>]) -> bool {
        let owned = || keys.iter().map(|value| value.borrowed().into_owned()).collect();
        if self.heap.len() < plan.rows {
            if self.is_memory_granted(keys.len(), value_bytes(keys)) {
                self.value_bytes += value_bytes(keys);
                self.heap.push(owned());
                self.sift_up(plan);
            }
            return true;
        }
        if plan.order(keys, &self.heap[0]).is_ge() {
            return false;
        }
        if self.is_memory_granted(keys.len(), value_bytes(keys)) {
            self.value_bytes = self.value_bytes + value_bytes(keys) - value_bytes(&self.heap[0]);
            self.heap[0] = owned();
            self.sift_down(plan);
        }
        true
    }

    /// Returns whether the heap may grow by a row with `keys` keys, whose values take `value_bytes` outside the heap.
    fn is_memory_granted(&mut self, keys: usize, value_bytes: usize) -> bool {
        let spilled = if keys > INLINE_KEYS { keys * size_of::<Value<'static>>() } else { 0 };
        // The heap's vector may have twice the capacity in use.
        let rows = (self.heap.len() + 1) * (2 * size_of::<Keys>() + spilled);
        let bytes = rows + self.value_bytes + value_bytes;
        bytes <= MEMORY_BYTES_FREE || self.memory.cover(bytes as u64)
    }

    fn sift_up(&mut self, plan: &TopNPlan) {
        let mut at = self.heap.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if plan.order(&self.heap[at], &self.heap[parent]).is_le() {
                return;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
    }

    fn sift_down(&mut self, plan: &TopNPlan) {
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut last = at;
            for child in [left, right] {
                if child < self.heap.len() && plan.order(&self.heap[child], &self.heap[last]).is_gt() {
                    last = child;
                }
            }
            if last == at {
                return;
            }
            self.heap.swap(at, last);
            at = last;
        }
    }
}

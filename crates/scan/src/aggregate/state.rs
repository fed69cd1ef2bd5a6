//! The transition states of all groups for one argument, as a vector indexed by group.
//!
//! Invariant: a row is added only if all of its arguments could be computed. [`State::discard_overflow`] discards rows
//! that would overflow a state before any state changes. Transitions are those of `utils/adt/numeric.c`, `float.c`,
//! `varlena.c`.

use super::RUN_ROWS;
use super::argument::{IS_WIDE, MAGNITUDE_MAX, Vector};
use super::functions::{Finish, OutputKind, StateKind};
use super::groups::{DISCARD, FEW_GROUPS_MAX, RowGroups};
use super::linear::Linear;
use super::partial;
use super::squares::{self, Squares};
use super::total::Total;
use crate::batch::ColumnBuilder;
use crate::predicate::{IS_NULL, Operator};
use crate::value::{Numeric, Undecided, Value, ValueKind, float_key, without_trailing_blanks};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// A group's sum of numerics. Counts are at most [`super::ROWS_MAX`].
#[derive(Debug, Clone, Copy, Default)]
struct NumericSum {
    sum: i128,
    count: u32,
    scale_count: u32,
    scale: u16,
}

const _: () = assert!(super::ROWS_MAX <= u32::MAX as u64 && size_of::<NumericSum>() == 32);

#[derive(Debug, Clone, Copy, Default)]
struct WideSum {
    sum: i128,
    count: i64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    sum: i64,
    count: i64,
}

/// The states of all groups, indexed by group.
#[derive(Debug)]
enum States {
    Counts(Vec<i64>),
    Sums(Vec<Sum>),
    WideSums(Vec<WideSum>),
    NumericSums {
        sums: Vec<NumericSum>,
        fraction_digits: i32,
    },
    /// None: the group has no value.
    FloatSums {
        sums: Vec<Option<f64>>,
        single: bool,
    },
    Moments(Vec<[f64; 3]>),
    /// The numbers are the values times `10^decimals`.
    Squares {
        groups: Vec<Squares>,
        decimals: u32,
    },
    Bits {
        values: Vec<Option<i64>>,
        operator: Operator,
    },
    /// Extremes of floats.
    Floats {
        values: Vec<Option<f64>>,
        greatest: bool,
        single: bool,
    },
    Numbers {
        values: Vec<Option<i64>>,
        greatest: bool,
    },
    Values {
        values: Vec<Option<Value<'static>>>,
        greatest: bool,
        kind: ValueKind,
        bytes: usize,
    },
}

#[derive(Debug)]
pub struct State {
    states: States,
}

impl State {
    pub fn new(kind: StateKind, fraction_digits: i32, decimals: u32) -> Self {
        let states = match kind {
            StateKind::Count => States::Counts(Vec::new()),
            StateKind::IntSum => States::Sums(Vec::new()),
            StateKind::WideSum => States::WideSums(Vec::new()),
            StateKind::NumericSum => States::NumericSums { sums: Vec::new(), fraction_digits },
            StateKind::FloatSum { single } => States::FloatSums { sums: Vec::new(), single },
            StateKind::FloatMoments => States::Moments(Vec::new()),
            StateKind::Squares => States::Squares { groups: Vec::new(), decimals },
            StateKind::Bits { operator, .. } => States::Bits { values: Vec::new(), operator },
            StateKind::Extreme { greatest, kind: kind @ (ValueKind::Float4 | ValueKind::Float8) } => {
                States::Floats { values: Vec::new(), greatest, single: kind == ValueKind::Float4 }
            }
            StateKind::Extreme { greatest, kind } if kind.is_int() => States::Numbers { values: Vec::new(), greatest },
            StateKind::Extreme { greatest, kind } => States::Values { values: Vec::new(), greatest, kind, bytes: 0 },
        };
        Self { states }
    }

    /// Resizes to `groups` groups; new groups are empty.
    pub fn resize(&mut self, groups: usize) {
        match &mut self.states {
            States::Counts(states) => states.resize(groups, 0),
            States::Sums(states) => states.resize(groups, Sum::default()),
            States::WideSums(states) => states.resize(groups, WideSum::default()),
            States::NumericSums { sums, .. } => sums.resize(groups, NumericSum::default()),
            States::FloatSums { sums, .. } => sums.resize(groups, None),
            States::Moments(states) => states.resize(groups, [0.0; 3]),
            States::Squares { groups: states, .. } => states.resize(groups, Squares::default()),
            States::Floats { values, .. } => values.resize(groups, None),
            States::Numbers { values, .. } | States::Bits { values, .. } => values.resize(groups, None),
            States::Values { values, bytes, .. } => {
                values.resize(groups, None);
                if groups == 0 {
                    *bytes = 0;
                }
            }
        }
    }

    /// The bytes of a group's state, without the bytes of a value.
    pub fn group_bytes(&self) -> usize {
        match &self.states {
            States::Counts(_) => size_of::<i64>(),
            States::Sums(_) => size_of::<Sum>(),
            States::WideSums(_) => size_of::<WideSum>(),
            States::NumericSums { .. } => size_of::<NumericSum>(),
            States::FloatSums { .. } => size_of::<Option<f64>>(),
            States::Moments(_) => size_of::<[f64; 3]>(),
            States::Squares { .. } => size_of::<Squares>(),
            States::Floats { .. } => size_of::<Option<f64>>(),
            States::Numbers { .. } | States::Bits { .. } => size_of::<Option<i64>>(),
            States::Values { .. } => size_of::<Option<Value<'static>>>(),
        }
    }

    /// The bytes of all states, including the bytes of values.
    pub fn bytes(&self) -> usize {
        self.len() * self.group_bytes() + self.value_bytes()
    }

    /// The bytes of values outside the states.
    pub fn value_bytes(&self) -> usize {
        if let States::Values { bytes, .. } = &self.states { *bytes } else { 0 }
    }

    /// The number of groups.
    fn len(&self) -> usize {
        match &self.states {
            States::Counts(states) => states.len(),
            States::Sums(states) => states.len(),
            States::WideSums(states) => states.len(),
            States::NumericSums { sums, .. } => sums.len(),
            States::FloatSums { sums, .. } => sums.len(),
            States::Moments(states) => states.len(),
            States::Squares { groups, .. } => groups.len(),
            States::Floats { values, .. } => values.len(),
            States::Numbers { values, .. } | States::Bits { values, .. } => values.len(),
            States::Values { values, .. } => values.len(),
        }
    }

    /// Whether [`Self::discard_overflow`] may discard rows.
    pub fn may_discard(&self) -> bool {
        matches!(self.states, States::FloatSums { .. } | States::Moments(_) | States::Squares { .. })
    }

    /// Assigns [`DISCARD`] to rows whose value might make a state overflow, where PostgreSQL would raise an error.
    pub fn discard_overflow(&self, vector: &Vector<'_>, groups: &mut [u32]) {
        let lanes = || vector.lanes.iter().map(|(value, flags)| (f64::from_bits(value as u64), flags));
        match &self.states {
            // A sum of finite floats must not become infinite in any order of the run's rows.
            States::FloatSums { sums, single } => {
                let limit = if *single { f64::from(f32::MAX) } else { f64::MAX };
                discard_overflow(lanes(), groups, limit, |group| sums[group].unwrap_or(0.0));
            }
            // Values below 1e140 keep the sum of squared differences finite: ROWS_MAX squares add up to less than
            // 1e288.
            States::Moments(states) => {
                discard_overflow(lanes(), groups, 1e140, |group| states[group][1]);
            }
            States::Squares { .. } => squares::discard_large(vector, groups),
            _ => {}
        }
    }

    /// An upper bound of what adding a run's values can add to the magnitude of a sum of 128 bits.
    pub fn magnitude(&self, vector: &Vector<'_>, rows: usize) -> u128 {
        let most = match &self.states {
            States::NumericSums { .. } => {
                let (least, most) = vector.lanes.bounds();
                let most = match vector.wide.is_empty() {
                    true => least.unsigned_abs().max(most.unsigned_abs()),
                    // The lanes of wide numbers count for nothing, and the bounds are unknown.
                    false => {
                        let in_lanes = vector.lanes.iter().filter(|(_, flags)| flags & IS_WIDE == 0);
                        in_lanes.map(|(value, _)| value.unsigned_abs()).max().unwrap_or(0)
                    }
                };
                let most = u128::from(most).saturating_mul(vector.factor.unsigned_abs()).min(MAGNITUDE_MAX);
                vector.wide.iter().map(|wide| wide.value.unsigned_abs()).fold(most, u128::max)
            }
            _ => 0,
        };
        most * rows as u128
    }

    /// As [`Self::magnitude`], for a total.
    pub fn total_magnitude(&self, total: &Total) -> u128 {
        match &self.states {
            States::NumericSums { fraction_digits, .. } => {
                let factor = 10u128.pow(4 * *fraction_digits as u32 - u32::from(total.decimals));
                total.sum.unsigned_abs().saturating_mul(factor)
            }
            _ => 0,
        }
    }

    /// Adds rows to a group by their totals. Not for floats and values.
    pub fn add_total(&mut self, group: usize, total: &Total) {
        match &mut self.states {
            States::Counts(states) => states[group] += total.values,
            States::Sums(states) => states[group].add(total.sum, total.values),
            States::WideSums(states) => states[group].add(total.sum, total.values),
            States::NumericSums { sums, fraction_digits } => {
                let factor = 10i128.pow(4 * *fraction_digits as u32 - u32::from(total.decimals));
                sums[group].add(total.sum.wrapping_mul(factor), total.values, total.decimals.into());
            }
            States::Numbers { values, greatest } => {
                let (state, (least, most)) = (&mut values[group], total.bounds);
                *state = Some(match *greatest {
                    true => state.map_or(most, |best| best.max(most)),
                    false => state.map_or(least, |best| best.min(least)),
                });
            }
            _ => unreachable!("totals are requested only for counts, sums and extremes of integers and numerics"),
        }
    }

    /// Adds numbers to groups. Only for counts and sums of int2 and int4.
    pub fn add_pairs(&mut self, pairs: impl Iterator<Item = (usize, i64)>) {
        match &mut self.states {
            States::Counts(states) => pairs.for_each(|(group, _)| states[group] += 1),
            States::Sums(states) => pairs.for_each(|(group, value)| states[group].add(value.into(), 1)),
            _ => unreachable!("aggregates with DISTINCT have counts and sums of int2 and int4"),
        }
    }

    /// Adds the rows of a run to their groups. `with_values` is [`Vector::rows_with_values`].
    pub fn add(&mut self, vector: &Vector<'_>, rows: &RowGroups, with_values: Option<&RowGroups>) {
        let by_group = if vector.lanes.has_flags() { with_values } else { Some(rows) };
        if by_group.is_some_and(|rows| self.add_by_group(vector, rows)) {
            return;
        }
        let groups = rows.numbers.as_slice();
        let numbers = groups.iter().zip(vector.lanes.iter());
        match &mut self.states {
            States::Counts(states) => {
                for (group, (_, flags)) in numbers {
                    states[*group as usize] += i64::from(flags & IS_NULL == 0);
                }
            }
            States::Sums(states) => {
                for (group, (value, flags)) in numbers {
                    let used = i64::from(flags & IS_NULL == 0);
                    let state = &mut states[*group as usize];
                    // Cannot overflow: ROWS_MAX values of int4 need 53 bits.
                    state.sum = state.sum.wrapping_add(value.wrapping_mul(used));
                    state.count += used;
                }
            }
            States::WideSums(states) => {
                for (group, (value, flags)) in numbers {
                    if flags & IS_NULL == 0 {
                        let state = &mut states[*group as usize];
                        state.sum = state.sum.wrapping_add(value as i128);
                        state.count += 1;
                    }
                }
            }
            States::NumericSums { sums, .. } => add_numerics(sums, vector, groups),
            States::FloatSums { sums, single } => {
                for (group, (value, flags)) in numbers {
                    if flags & IS_NULL == 0 {
                        let (sum, value) = (&mut sums[*group as usize], f64::from_bits(value as u64));
                        *sum = Some(match *sum {
                            None => value,
                            Some(sum) if *single => f64::from(sum as f32 + value as f32),
                            Some(sum) => sum + value,
                        });
                    }
                }
            }
            States::Moments(states) => {
                for (group, (value, flags)) in numbers {
                    if flags & IS_NULL == 0 {
                        accumulate(&mut states[*group as usize], f64::from_bits(value as u64));
                    }
                }
            }
            States::Squares { groups: states, .. } => squares::add(states, vector, groups),
            States::Bits { values, operator } => {
                for (group, (value, flags)) in numbers {
                    if flags & IS_NULL == 0 {
                        let state = &mut values[*group as usize];
                        *state = Some(state.map_or(value, |bits| combined_bits(*operator, bits, value)));
                    }
                }
            }
            States::Floats { values, greatest, .. } => {
                for (group, (value, flags)) in numbers {
                    if flags & IS_NULL == 0 {
                        add_float(&mut values[*group as usize], f64::from_bits(value as u64), *greatest);
                    }
                }
            }
            States::Numbers { values, greatest } => {
                let greatest = *greatest;
                for (group, (value, flags)) in numbers {
                    let state = &mut values[*group as usize];
                    if flags & IS_NULL == 0
                        && state.is_none_or(|best| if greatest { value > best } else { value < best })
                    {
                        *state = Some(value);
                    }
                }
            }
            States::Values { values, greatest, kind, bytes } => {
                for ((group, value), (_, flags)) in groups.iter().zip(&vector.values).zip(vector.lanes.iter()) {
                    if flags & IS_NULL == 0 && *group != DISCARD {
                        let state = &mut values[*group as usize];
                        let better = match state {
                            None => true,
                            Some(best) => replaces(*kind, *greatest, best, value),
                        };
                        if better {
                            *bytes += value_bytes(value);
                            *bytes -= state.as_ref().map_or(0, value_bytes);
                            *state = Some(value.borrowed().into_owned());
                        }
                    }
                }
            }
        }
    }

    /// Adds counts and sums of the rows that are not discarded and have no flags, if there are few groups. Returns false, and
    /// adds nothing, otherwise.
    fn add_by_group(&mut self, vector: &Vector<'_>, rows: &RowGroups) -> bool {
        let (least, most) = vector.lanes.bounds();
        let wide = least.unsigned_abs().max(most.unsigned_abs()) > i64::MAX as u64 / RUN_ROWS as u64;
        let counts = rows.counts.iter().map(|count| i64::from(*count));
        if counts.len() == 0 {
            return false;
        }
        if let States::Counts(states) = &mut self.states {
            states.iter_mut().zip(counts).for_each(|(state, count)| *state += count);
            return true;
        }
        let sums = || rows.sums(&vector.lanes.values, wide).zip(counts);
        match &mut self.states {
            States::Sums(states) => {
                states.iter_mut().zip(sums()).for_each(|(state, (sum, count))| state.add(sum, count));
            }
            States::WideSums(states) => {
                states.iter_mut().zip(sums()).for_each(|(state, (sum, count))| state.add(sum, count));
            }
            States::NumericSums { sums: states, .. } if vector.scales.is_empty() => {
                for (state, (sum, count)) in states.iter_mut().zip(sums()).filter(|(_, (_, count))| *count > 0) {
                    state.add(sum.wrapping_mul(vector.factor), count, vector.scale);
                }
            }
            States::NumericSums { sums: states, .. } => {
                let Some(scales) = rows_by_scale(&vector.scales, rows) else { return false };
                for (group, (state, (sum, count))) in states.iter_mut().zip(sums()).enumerate() {
                    if count > 0 {
                        state.add(sum.wrapping_mul(vector.factor), 0, 0);
                        let counts = scales.iter().map(|(scale, counts)| (*scale, i64::from(counts[group])));
                        counts.filter(|(_, count)| *count > 0).for_each(|(scale, count)| state.add(0, count, scale));
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// Whether no state can overflow when the states of another table's groups are added. `from` and `to` as in [`Self::merge`].
    pub fn can_merge(&self, other: &Self, from: &[u32], to: &[u32]) -> bool {
        let pairs = || from.iter().zip(to).map(|(from, to)| (*from as usize, *to as usize));
        match (&self.states, &other.states) {
            (States::FloatSums { sums, single }, States::FloatSums { sums: others, .. }) => {
                let limit = if *single { f64::from(f32::MAX) } else { f64::MAX } / 4.0;
                let value = |sum: Option<f64>| sum.unwrap_or(0.0).abs();
                pairs().all(|(from, to)| value(others[from]) < limit && value(sums[to]) < limit)
            }
            (States::Moments(states), States::Moments(others)) => {
                pairs().all(|(from, to)| others[from][1].abs() < 1e139 && states[to][1].abs() < 1e139)
            }
            _ => true,
        }
    }

    /// Adds the states of groups of another table: the state of group `from[i]` there to group `to[i]`. Call this only if
    /// [`Self::can_merge`] returns true. The other table has the same kind of state.
    pub fn merge(&mut self, other: &Self, from: &[u32], to: &[u32]) {
        let pairs = from.iter().zip(to).map(|(from, to)| (*from as usize, *to as usize));
        match (&mut self.states, &other.states) {
            (States::Counts(states), States::Counts(others)) => {
                pairs.for_each(|(from, to)| states[to] += others[from]);
            }
            (States::Sums(states), States::Sums(others)) => {
                pairs.for_each(|(from, to)| states[to].add(others[from].sum.into(), others[from].count));
            }
            (States::WideSums(states), States::WideSums(others)) => {
                pairs.for_each(|(from, to)| states[to].add(others[from].sum, others[from].count));
            }
            (States::NumericSums { sums, .. }, States::NumericSums { sums: others, .. }) => {
                for (from, to) in pairs.filter(|(from, _)| others[*from].count > 0) {
                    let NumericSum { sum, count, scale_count, scale } = others[from];
                    sums[to].add(sum, scale_count.into(), scale);
                    sums[to].count += count - scale_count;
                }
            }
            (States::FloatSums { sums, single }, States::FloatSums { sums: others, .. }) => {
                for (from, to) in pairs {
                    sums[to] = match (sums[to], others[from]) {
                        (Some(sum), Some(other)) if *single => Some(f64::from(sum as f32 + other as f32)),
                        (Some(sum), Some(other)) => Some(sum + other),
                        (sum, other) => sum.or(other),
                    };
                }
            }
            (States::Moments(states), States::Moments(others)) => {
                pairs.for_each(|(from, to)| states[to] = combined(states[to], others[from]));
            }
            (States::Squares { groups, .. }, States::Squares { groups: others, .. }) => {
                pairs.for_each(|(from, to)| groups[to].merge(&others[from]));
            }
            (States::Bits { values, operator }, States::Bits { values: others, .. }) => {
                for (from, to) in pairs {
                    values[to] = match (values[to], others[from]) {
                        (Some(value), Some(other)) => Some(combined_bits(*operator, value, other)),
                        (value, other) => value.or(other),
                    };
                }
            }
            (States::Floats { values, greatest, .. }, States::Floats { values: others, .. }) => {
                for (from, to) in pairs {
                    if let Some(other) = others[from] {
                        add_float(&mut values[to], other, *greatest);
                    }
                }
            }
            (States::Numbers { values, greatest }, States::Numbers { values: others, .. }) => {
                for (from, to) in pairs {
                    values[to] = match (values[to], others[from]) {
                        (Some(value), Some(other)) if *greatest => Some(value.max(other)),
                        (Some(value), Some(other)) => Some(value.min(other)),
                        (value, other) => value.or(other),
                    };
                }
            }
            (States::Values { values, greatest, kind, bytes }, States::Values { values: others, .. }) => {
                for (from, to) in pairs {
                    let Some(value) = &others[from] else { continue };
                    let state = &mut values[to];
                    if state.as_ref().is_none_or(|best| replaces(*kind, *greatest, best, value)) {
                        *bytes += value_bytes(value);
                        *bytes -= state.as_ref().map_or(0, value_bytes);
                        *state = Some(value.clone());
                    }
                }
            }
            _ => unreachable!("both tables belong to one plan"),
        }
    }

    /// Whether all results of this kind have a rank.
    pub fn has_ranks(&self, finish: Finish) -> bool {
        match &self.states {
            States::Values { .. } | States::Squares { .. } => false,
            States::Moments(_) => true,
            _ => matches!(finish, Finish::Value(_)),
        }
    }

    /// Base-10000 fraction digits of ranks that are numbers; None: ranks are [`float_key`]s.
    pub fn rank_fraction_digits(&self) -> Option<i32> {
        match &self.states {
            States::NumericSums { fraction_digits, .. } => Some(*fraction_digits),
            States::FloatSums { .. } | States::Moments(_) | States::Floats { .. } => None,
            _ => Some(0),
        }
    }

    /// The rank of a group's result: a number that orders as the result does. None: the result is NULL. Call this only if
    /// [`Self::has_ranks`] returns true.
    #[inline(always)]
    pub fn rank(&self, group: usize) -> Option<i128> {
        match &self.states {
            States::Counts(states) => Some(states[group].into()),
            States::Sums(states) => (states[group].count > 0).then(|| states[group].sum.into()),
            States::WideSums(states) => (states[group].count > 0).then_some(states[group].sum),
            States::NumericSums { sums, .. } => (sums[group].count > 0).then_some(sums[group].sum),
            States::FloatSums { sums, .. } => sums[group].map(|sum| float_key(sum).into()),
            States::Moments(states) => {
                let [count, sum, _] = states[group];
                (count > 0.0).then(|| float_key(sum / count).into())
            }
            States::Floats { values, .. } => values[group].map(|value| float_key(value).into()),
            States::Numbers { values, .. } | States::Bits { values, .. } => values[group].map(i128::from),
            States::Values { .. } | States::Squares { .. } => None,
        }
    }

    /// The result that PostgreSQL computes from a group's state. Undecided: the result cannot be computed here.
    pub fn result(&self, group: usize, finish: Finish) -> Result<Value<'_>, Undecided> {
        let average = matches!(finish, Finish::Average(_));
        let divided = |sum: Numeric, count: i64| match count {
            0 => Ok(Value::Null),
            count => sum.divide(&Numeric::from_i64(count)).map(Value::Numeric).ok_or(Undecided),
        };
        Ok(match &self.states {
            States::Counts(states) => Value::Int(states[group]),
            States::Sums(states) if average => {
                return divided(Numeric::from_i64(states[group].sum), states[group].count);
            }
            States::WideSums(states) if average => {
                return divided(Numeric::from_scaled(states[group].sum, 0), states[group].count);
            }
            States::NumericSums { sums, fraction_digits } if average => {
                let NumericSum { sum, count, scale, .. } = sums[group];
                let sum = Numeric { scale: scale.into(), ..Numeric::from_scaled(sum, *fraction_digits) };
                return divided(sum, count.into());
            }
            States::Values { values, .. } => values[group].as_ref().map_or(Value::Null, Value::borrowed),
            States::Floats { values, .. } => values[group].map_or(Value::Null, Value::Float),
            States::Squares { .. } => return Err(Undecided),
            _ => match (self.rank(group), finish.kind()) {
                (None, _) => Value::Null,
                (Some(rank), ValueKind::Numeric) => {
                    Value::Numeric(Numeric::from_scaled(rank, self.rank_fraction_digits().unwrap_or(0)))
                }
                (Some(rank), ValueKind::Bool) => Value::Bool(rank != 0),
                (Some(rank), kind) if kind.is_int() => Value::Int(rank as i64),
                // Floats are compared by their ranks.
                _ => return Err(Undecided),
            },
        })
    }

    /// Appends the state of a group in format `output` to a column, which has `row` rows. `linear`: the state of a sum of a
    /// function of the values.
    pub fn put(&self, group: usize, output: OutputKind, linear: Option<&Linear>, row: usize, out: &mut ColumnBuilder) {
        let derived = |sum: i128, count: i64| linear.map_or(sum, |linear| linear.sum(sum, count));
        match &self.states {
            States::Counts(states) => out.push_fixed(&states[group].to_le_bytes()),
            States::Sums(states) => {
                let Sum { sum, count } = states[group];
                let sum = derived(sum.into(), count) as i64;
                match output {
                    OutputKind::CountAndSum => out.push_datum(&partial::count_and_sum(count, sum)),
                    _ if count == 0 => out.push_null(row, 8),
                    _ => out.push_fixed(&sum.to_le_bytes()),
                }
            }
            States::WideSums(states) => {
                let WideSum { sum, count } = states[group];
                out.push_payload(&partial::wide_sum(count, derived(sum, count)));
            }
            States::NumericSums { sums, fraction_digits } => {
                let NumericSum { sum, count, scale_count, scale } = sums[group];
                out.push_payload(&partial::numeric_sum(
                    count.into(),
                    sum,
                    *fraction_digits,
                    scale.into(),
                    scale_count.into(),
                ));
            }
            States::FloatSums { sums, single } => match sums[group] {
                Some(sum) if *single => out.push_fixed(&(sum as f32).to_le_bytes()),
                Some(sum) => out.push_fixed(&sum.to_le_bytes()),
                None => out.push_null(row, if *single { 4 } else { 8 }),
            },
            States::Moments(states) => out.push_datum(&partial::moments(states[group])),
            States::Squares { groups, decimals } => out.push_payload(&match output {
                OutputKind::SerializedIntSquares => partial::int_squares(&groups[group]),
                _ => partial::numeric_squares(&groups[group], *decimals),
            }),
            States::Floats { values, single, .. } => match values[group] {
                Some(value) if *single => out.push_fixed(&(value as f32).to_le_bytes()),
                Some(value) => out.push_fixed(&value.to_le_bytes()),
                None => out.push_null(row, if *single { 4 } else { 8 }),
            },
            States::Numbers { values, .. } | States::Bits { values, .. } => match (values[group], output) {
                (Some(value), OutputKind::Value(kind)) => out.push_int(kind, value),
                _ => out.push_null(row, output.stride()),
            },
            States::Values { values, kind, .. } => {
                out.push_value(row, *kind, values[group].as_ref().unwrap_or(&Value::Null));
            }
        }
    }
}

impl OutputKind {
    /// Bytes per value in a column; 0 for a varlena.
    pub fn stride(self) -> usize {
        match self {
            Self::Count | Self::Sum | Self::Float8 => 8,
            Self::Float4 => 4,
            Self::CountAndSum
            | Self::SerializedWideSum
            | Self::SerializedNumericSum
            | Self::SerializedIntSquares
            | Self::SerializedNumericSquares
            | Self::Moments => 0,
            Self::Value(kind) => partial::stride(kind),
        }
    }
}

impl Sum {
    /// Adds the sum of `count` values.
    #[inline(always)]
    fn add(&mut self, sum: i128, count: i64) {
        (self.sum, self.count) = (self.sum.wrapping_add(sum as i64), self.count + count);
    }
}

impl WideSum {
    /// As [`Sum::add`].
    #[inline(always)]
    fn add(&mut self, sum: i128, count: i64) {
        (self.sum, self.count) = (self.sum.wrapping_add(sum), self.count + count);
    }
}

impl NumericSum {
    /// Adds the sum of `count` values of one display scale. The sum and the counts of [`DISCARD`] may wrap; they are never returned.
    #[inline(always)]
    fn add(&mut self, sum: i128, count: i64, scale: u16) {
        let count = count as u32;
        self.sum = self.sum.wrapping_add(sum);
        self.count = self.count.wrapping_add(count);
        match scale.cmp(&self.scale) {
            Ordering::Less => {}
            Ordering::Equal => self.scale_count = self.scale_count.wrapping_add(count),
            Ordering::Greater => (self.scale, self.scale_count) = (scale, count),
        }
    }
}

/// Display scales, and the number of rows of each group with the scale.
type ScaleCounts = SmallVec<[(u16, [u32; FEW_GROUPS_MAX]); 2]>;

/// The most display scales of a run that are counted by group.
const SCALES_MAX: usize = 4;

/// The number of rows of each group for each display scale. None: there are more than [`SCALES_MAX`] scales.
fn rows_by_scale(scales: &[u16], rows: &RowGroups) -> Option<ScaleCounts> {
    let mut found = ScaleCounts::new();
    for (scale, group) in scales.iter().zip(&rows.numbers) {
        let at = match found.iter().position(|(known, _)| known == scale) {
            Some(at) => at,
            None if found.len() == SCALES_MAX => return None,
            None => {
                found.push((*scale, [0; FEW_GROUPS_MAX]));
                found.len() - 1
            }
        };
        found[at].1[*group as usize % FEW_GROUPS_MAX] += 1;
    }
    Some(found)
}

/// Adds finite numerics as `do_numeric_accum` does.
fn add_numerics(sums: &mut [NumericSum], vector: &Vector<'_>, groups: &[u32]) {
    let mut wide = vector.wide.iter().peekable();
    let own_scale = !vector.scales.is_empty();
    for (index, (group, (value, flags))) in groups.iter().zip(vector.lanes.iter()).enumerate() {
        if flags & IS_NULL != 0 {
            continue;
        }
        let mut scale = if own_scale { vector.scales[index] } else { vector.scale };
        let mut value = (value as i128).wrapping_mul(vector.factor);
        if flags & IS_WIDE != 0 {
            while wide.next_if(|wide| (wide.row as usize) < index).is_some() {}
            if let Some(found) = wide.next_if(|wide| wide.row as usize == index) {
                (value, scale) = (found.value, found.scale);
            }
        }
        sums[*group as usize].add(value, 1, scale);
    }
}

fn combined_bits(operator: Operator, left: i64, right: i64) -> i64 {
    match operator {
        Operator::And => left & right,
        Operator::Or => left | right,
        _ => left ^ right,
    }
}

/// Replaces an extreme by the value, as `float8larger` and `float8smaller` do: also by an equal value, which may be another zero.
fn add_float(state: &mut Option<f64>, value: f64, greatest: bool) {
    let replaces = |best: f64| match float_key(value).cmp(&float_key(best)) {
        Ordering::Equal => true,
        order => order.is_gt() == greatest,
    };
    if state.is_none_or(replaces) {
        *state = Some(value);
    }
}

/// `float8_combine`.
fn combined(left: [f64; 3], right: [f64; 3]) -> [f64; 3] {
    if left[0] == 0.0 {
        return right;
    }
    if right[0] == 0.0 {
        return left;
    }
    let count = left[0] + right[0];
    let difference = left[1] / left[0] - right[1] / right[0];
    let squares = left[2] + right[2] + left[0] * right[0] * difference * difference / count;
    [count, left[1] + right[1], squares]
}

/// `float8_accum`: the algorithm of Youngs and Cramer.
fn accumulate([count, sum, squares]: &mut [f64; 3], value: f64) {
    let before = *count;
    *count += 1.0;
    *sum += value;
    if before > 0.0 {
        let difference = value * *count - *sum;
        *squares += difference * difference / (*count * before);
    }
}

/// Discards rows that are not finite or whose group's sum of magnitudes might exceed `limit`.
fn discard_overflow(
    lanes: impl Iterator<Item = (f64, u8)>,
    groups: &mut [u32],
    limit: f64,
    sum: impl Fn(usize) -> f64,
) {
    // `added` bounds what the run can add to any group, so a group is safe if its sum plus `added` stays below the
    // limit. Halving the limit leaves a margin for rounding.
    let mut added = 0.0;
    for ((value, flags), group) in lanes.zip(groups) {
        if flags & IS_NULL != 0 || *group == DISCARD {
            continue;
        }
        let after = added + value.abs();
        if after.is_finite() && sum(*group as usize).abs() + after < limit / 2.0 {
            added = after;
        } else {
            *group = DISCARD;
        }
    }
}

/// Whether `value` replaces `best`. The later of two equal numbers replaces the earlier, as in `numeric_larger` and
/// `float8larger`. Equal texts do not replace each other: under byte order they are identical.
fn replaces(kind: ValueKind, greatest: bool, best: &Value<'_>, value: &Value<'_>) -> bool {
    let order = match (value, best) {
        (Value::Float(value), Value::Float(best)) => float_key(*value).cmp(&float_key(*best)),
        (Value::Numeric(value), Value::Numeric(best)) => value.compare(best),
        (Value::Bytes(value), Value::Bytes(best)) if kind == ValueKind::Text => value.cmp(best),
        (Value::Bytes(value), Value::Bytes(best)) => without_trailing_blanks(value).cmp(without_trailing_blanks(best)),
        _ => Ordering::Less,
    };
    if order.is_eq() { !matches!(value, Value::Bytes(_)) } else { order.is_gt() == greatest }
}

fn value_bytes(value: &Value<'_>) -> usize {
    match value {
        Value::Bytes(bytes) => bytes.len(),
        Value::Numeric(value) => value.digits.len() * 2,
        _ => 0,
    }
}

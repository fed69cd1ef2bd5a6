//! A scan request, compiled once and shared by any number of scanners.

use crate::aggregate::AggregationPlan;
use crate::batch::{ColumnLayout, Output};
use crate::bounds::IntSet;
use crate::heap::{AttributeRun, PageRows, Slot, TupleLayout};
use crate::lookup::{JoinPlan, KeyPart, Lookup};
use crate::predicate::{Column, Compiler, Evaluation, Kernel, Node, TextEncoding, Unsupported, number_of};
use crate::storage_index::{RegionSummary, SummaryColumn};
use crate::top_n::TopNPlan;
use cellar_format::postgres::AttributeNumber;
use cellar_format::wire::{self, Expr, IndexScan, JoinKind, ScanMode, ScanRequest, Snapshot};
use smallvec::SmallVec;
use std::sync::Arc;

/// `MaxHeapAttributeNumber`.
const ATTRIBUTES_MAX: usize = 1600;

/// A qual. Stages run in an order that raises the same errors as PostgreSQL's order.
pub(crate) struct Stage {
    pub kernel: Kernel,
    /// The columns that the kernel reads.
    pub slots: Vec<Slot>,
    /// The greatest attribute number that the kernel reads.
    walk_end: usize,
    /// PostgreSQL may raise an error when it evaluates the qual.
    pub fallible: bool,
}

/// The attributes that a scan walks before each stage, before a top-N, and before the output.
#[derive(Debug)]
pub(crate) struct Walks {
    /// The columns of the region summary; walked for all rows, visible or not.
    pub summary: Option<AttributeRun>,
    pub stages: Vec<AttributeRun>,
    /// The keys of a top-N.
    pub top_n: AttributeRun,
    pub output: AttributeRun,
}

/// A compiled request; immutable.
pub struct Plan {
    pub(crate) layout: TupleLayout,
    /// By slot; None for columns that are only projected.
    pub(crate) columns: Vec<Option<Column>>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) walks: Walks,
    pub(crate) walks_with_summary: Walks,
    pub(crate) summary: Vec<SummaryColumn>,
    pub(crate) snapshot: Snapshot,
    pub(crate) checksums: bool,
    output: Output,
    /// Joins below the aggregation.
    pub(crate) lookups: Vec<Lookup>,
    /// The columns of the relation that the aggregation reads.
    joined_slots: Vec<Slot>,
    aggregation: Option<AggregationPlan>,
    top_n: Option<TopNPlan>,
    projection: Vec<AttributeNumber>,
    summary_numbers: Vec<AttributeNumber>,
    /// The index whose entries are the rows.
    index: Option<IndexScan>,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Plan>();
};

impl Plan {
    /// Fails for a request that the cell would not evaluate exactly as PostgreSQL does.
    pub fn compile(request: &ScanRequest) -> Result<Self, Unsupported> {
        Self::compile_with(request, Evaluation::Vectors)
    }

    /// Returns an estimate of the memory of a scanner's buffers for the first region, in bytes.
    pub fn scanner_bytes(&self) -> usize {
        PageRows::bytes_for(self.layout.slots())
    }

    /// The most bytes that the lookup tables of a request occupy.
    pub fn lookup_bytes(request: &ScanRequest) -> usize {
        request.lookups.iter().map(Lookup::bytes_for).sum()
    }

    /// A plan that interprets all quals and the expressions of the aggregation row by row: the reference for kernels and vectors. For
    /// tests.
    #[doc(hidden)]
    pub fn compile_interpreted(request: &ScanRequest) -> Result<Self, Unsupported> {
        Self::compile_with(request, Evaluation::Interpreter)
    }

    fn compile_with(request: &ScanRequest, evaluation: Evaluation) -> Result<Self, Unsupported> {
        let kernel = |node: Node, columns: &[Option<Column>]| match evaluation {
            Evaluation::Vectors => Kernel::new(node, columns),
            Evaluation::Interpreter => Kernel::Interpret(node),
        };
        if request.relation.attributes.len() > ATTRIBUTES_MAX {
            return Err(Unsupported(format!("the table has {} columns", request.relation.attributes.len())));
        }
        let layout =
            TupleLayout::new(request.relation.attributes.iter().map(|attribute| (attribute.width, attribute.align)));
        let mut compiler = Compiler {
            attributes: &request.relation.attributes,
            encoding: TextEncoding::of(request.relation.encoding),
            layout,
            looked_up: Vec::new(),
            columns: Vec::new(),
        };
        add_looked_up_columns(&mut compiler, &request.lookups)?;
        let mut stages: Vec<Stage> = Vec::with_capacity(request.quals.len());
        for qual in &request.quals {
            let node = compiler.condition(qual)?;
            let fallible = node.fallible();
            let mut walk_end = 0;
            let mut slots = Vec::new();
            qual.for_each_column(&mut |number| {
                walk_end = walk_end.max(number as usize);
                slots.extend(compiler.slot(number));
            });
            slots.sort_unstable();
            slots.dedup();
            push_stage(&mut stages, Stage { kernel: kernel(node, &compiler.columns), slots, walk_end, fallible });
        }
        let mut output_end = 0;
        let mut lookups = Vec::with_capacity(request.lookups.len());
        if !request.lookups.is_empty() && request.aggregation.is_none() {
            return Err(Unsupported("lookup tables require an aggregation".into()));
        }
        if request.lookups.is_empty() && request.aggregation.as_ref().is_some_and(|wire| !wire.conditions.is_empty()) {
            return Err(Unsupported("conditions on joined rows require lookup tables".into()));
        }
        let mut looked_up = compiler.looked_up.clone();
        for wire in &request.lookups {
            let mut key = SmallVec::new();
            for (number, attribute) in wire.attributes.iter().enumerate() {
                let (node, kind) = compiler.typed(&Expr::Column(*attribute))?;
                let slot = compiler.slot(*attribute)?;
                if !Lookup::has_keys_of(kind) {
                    return Err(Unsupported("a column is not offloaded as the key of a lookup table".into()));
                }
                if *attribute as usize > request.relation.attributes.len() {
                    key.push(looked_up_part(&lookups, slot)?);
                    continue;
                }
                key.push(KeyPart::Column(slot));
                output_end = output_end.max(*attribute as usize);
                let is_compared = wire.comparison.is_some() && number + 1 == wire.attributes.len();
                if is_compared || !matches!(wire.kind, JoinKind::Inner | JoinKind::Semi) {
                    continue;
                }
                let values = wire.keys.iter().skip(number).step_by(wire.attributes.len()).copied().collect();
                let values = Arc::new(IntSet::new(values));
                let has_partner = Node::AnyInteger { scalar: Box::new(node), values };
                let kernel = kernel(has_partner, &compiler.columns);
                let stage = Stage { kernel, slots: vec![slot], walk_end: *attribute as usize, fallible: false };
                push_stage(&mut stages, stage);
            }
            let slots = looked_up.drain(..wire.columns.len()).collect::<Vec<_>>();
            if !wire.kind.has_columns() && !wire.columns.is_empty() {
                return Err(Unsupported("a table of a semijoin or an antijoin has columns".into()));
            }
            if wire.comparison.is_some() && (wire.kind.has_columns() || key.len() < 2) {
                return Err(Unsupported("only semijoins and antijoins by equal columns have a comparison".into()));
            }
            lookups.push(Lookup::new(wire, key, &slots, &mut compiler.columns)?);
        }
        let mut aggregation = None;
        if let Some(wire) = &request.aggregation {
            aggregation = Some(AggregationPlan::compile(wire, &mut compiler, evaluation)?);
            let attributes = request.relation.attributes.len();
            wire.for_each_column(&mut |number| {
                if number as usize <= attributes {
                    output_end = output_end.max(number as usize);
                }
            });
        }
        let joined_slots = match &aggregation {
            Some(aggregation) if !lookups.is_empty() => {
                let is_own = |slot: &Slot| lookups.iter().all(|lookup: &Lookup| lookup.column(*slot).is_none());
                aggregation.datums(|_, _| false, &mut Vec::new()).into_iter().filter(is_own).collect()
            }
            _ => Vec::new(),
        };
        let mut top_n_end = 0;
        let mut top_n = None;
        if let Some(wire) = &request.top_n {
            if aggregation.is_some() {
                return Err(Unsupported("an aggregation cannot have a top-N".into()));
            }
            top_n = Some(TopNPlan::compile(wire, &mut compiler)?);
            wire.for_each_column(&mut |number| top_n_end = top_n_end.max(number as usize));
        }
        let Compiler { mut layout, columns, .. } = compiler;

        let mut prunable: Vec<Slot> = Vec::new();
        stages.iter().take_while(|stage| !stage.fallible).for_each(|stage| {
            stage.kernel.for_each_prunable(&mut |slot| prunable.push(slot));
        });
        prunable.sort_unstable();
        prunable.dedup();
        if request.index.is_some() {
            // Region summaries describe heap pages.
            prunable.clear();
        }
        let mut summary: Vec<SummaryColumn> = Vec::with_capacity(prunable.len());
        for slot in prunable {
            if let (Some(number), Some(Some(column))) = (number_of(slot, &columns), columns.get(slot as usize)) {
                summary.push(SummaryColumn { number, type_oid: column.type_oid, slot });
            }
        }

        let output = match request.mode {
            ScanMode::Groups | ScanMode::DistinctGroups => {
                return Err(Unsupported("a request cannot have the mode for groups".into()));
            }
            ScanMode::Rows => Output::Rows,
            ScanMode::Columns if request.projection.is_empty() => Output::Count,
            ScanMode::Columns => {
                let mut projected = Vec::with_capacity(request.projection.len());
                for number in &request.projection {
                    let index = (*number as usize).wrapping_sub(1);
                    let Some(attribute) = request.relation.attributes.get(index) else {
                        return Err(Unsupported(format!("column {number} does not exist")));
                    };
                    output_end = output_end.max(index + 1);
                    let missing = attribute.missing.clone();
                    let column = ColumnLayout { width: attribute.width, align: attribute.align, missing };
                    projected.push((layout.slot(index), column));
                }
                Output::Columns(projected)
            }
        };

        let index = request.index.clone();
        if let Some(index) = &index {
            if top_n.is_some() || !lookups.is_empty() || !matches!(request.mode, ScanMode::Columns) {
                return Err(Unsupported("the entries of an index are only filtered and aggregated".into()));
            }
            layout = layout
                .of_attributes(&index.columns)
                .ok_or_else(|| Unsupported("a column is not in the index".into()))?;
        }
        let summary_end = summary.iter().map(|column| column.number as usize).max().unwrap_or(0);
        let summary_numbers = summary.iter().map(|column| column.number).collect();
        let walks = match index {
            Some(_) => Walks::at_once(&layout, stages.len()),
            None => Walks::new(&layout, None, &stages, top_n_end, output_end),
        };
        Ok(Self {
            walks,
            walks_with_summary: match index {
                Some(_) => Walks::at_once(&layout, stages.len()),
                None => Walks::new(&layout, Some(summary_end), &stages, top_n_end, output_end),
            },
            layout,
            columns,
            stages,
            summary,
            snapshot: request.snapshot.clone(),
            checksums: request.relation.checksums,
            output,
            lookups,
            joined_slots,
            aggregation,
            top_n,
            projection: request.projection.clone(),
            summary_numbers,
            index,
        })
    }

    /// Whether a region may contain a row that qualifies, or a row for which PostgreSQL would raise an error. Only the
    /// quals before the first qual that may raise an error can exclude a region.
    pub fn may_match(&self, summary: &RegionSummary) -> bool {
        let mut infallible = self.stages.iter().take_while(|stage| !stage.fallible);
        infallible.all(|stage| stage.kernel.may_match(summary, &self.columns))
    }

    /// The columns whose summaries may prune regions for this request; ascending.
    pub fn summary_columns(&self) -> &[AttributeNumber] {
        &self.summary_numbers
    }

    /// The columns of a batch, in order.
    pub fn projection(&self) -> &[AttributeNumber] {
        &self.projection
    }

    /// The aggregation that rows are folded into, if any.
    pub fn aggregation(&self) -> Option<&AggregationPlan> {
        self.aggregation.as_ref()
    }

    /// The joins below the aggregation; None without lookup tables.
    pub(crate) fn joins(&self) -> Option<JoinPlan<'_>> {
        let aggregation = self.aggregation.as_ref().filter(|_| !self.lookups.is_empty())?;
        Some(JoinPlan { lookups: &self.lookups, slots: &self.joined_slots, columns: &self.columns, aggregation })
    }

    /// The index whose entries are the rows; None for the tuples of a heap.
    pub fn index(&self) -> Option<&IndexScan> {
        self.index.as_ref()
    }

    /// The order whose first rows are returned, if any.
    pub(crate) fn top_n(&self) -> Option<&TopNPlan> {
        self.top_n.as_ref()
    }

    pub(crate) fn output(&self) -> &Output {
        &self.output
    }
}

/// The part of a key that is the column of an earlier lookup table.
fn looked_up_part(lookups: &[Lookup], slot: Slot) -> Result<KeyPart, Unsupported> {
    let tables = lookups.iter().enumerate();
    let mut parts = tables.filter_map(|(number, table)| {
        let column = table.columns.iter().position(|column| column.slot == slot)?;
        Some(KeyPart::LookedUp(number, column))
    });
    parts.next().ok_or_else(|| Unsupported("a key of a lookup table is a column of a later table".into()))
}

/// Assigns slots to the columns of lookup tables.
fn add_looked_up_columns(compiler: &mut Compiler<'_>, lookups: &[wire::Lookup]) -> Result<(), Unsupported> {
    for wire in lookups.iter().flat_map(|lookup| &lookup.columns) {
        if compiler.looked_up.len() == ATTRIBUTES_MAX {
            return Err(Unsupported(format!("lookup tables have more than {ATTRIBUTES_MAX} columns")));
        }
        let slot = compiler.layout.extra_slot();
        compiler.columns.resize_with(slot as usize + 1, || None);
        compiler.columns[slot as usize] =
            Some(Column::new(compiler.attributes.len() + compiler.looked_up.len(), &wire.attribute));
        compiler.looked_up.push(slot);
    }
    Ok(())
}

/// Adds a stage. Fuses it with an earlier stage over the same column if no stage in between may raise an error.
fn push_stage(stages: &mut Vec<Stage>, stage: Stage) {
    if !stage.fallible {
        for earlier in stages.iter_mut().rev().take_while(|earlier| !earlier.fallible) {
            if let Some(fused) = earlier.kernel.fuse(&stage.kernel) {
                earlier.kernel = fused;
                return;
            }
        }
    }
    // Interpreted stages run after kernels: a row that a kernel drops can no longer be undecided.
    let runs_last = |stage: &Stage| !stage.fallible && stage.kernel.is_interpreted();
    let moved = if stage.fallible || runs_last(&stage) {
        0
    } else {
        stages.iter().rev().take_while(|stage| runs_last(stage)).count()
    };
    stages.insert(stages.len() - moved, stage);
}

impl Walks {
    /// Walks all attributes before the first of `stages` stages, or before the output if there is none.
    fn at_once(layout: &TupleLayout, stages: usize) -> Self {
        let all = layout.attributes();
        let mut from = 0;
        let mut walk_all = || layout.run(std::mem::replace(&mut from, all), all);
        let stages = (0..stages).map(|_| walk_all()).collect();
        Self { summary: None, stages, output: walk_all(), top_n: layout.run(all, all) }
    }

    fn new(
        layout: &TupleLayout,
        summary_end: Option<usize>,
        stages: &[Stage],
        top_n_end: usize,
        output_end: usize,
    ) -> Self {
        let mut walked = 0;
        let mut walk_to = |end: usize| {
            let run = layout.run(walked, end);
            walked = walked.max(end);
            run
        };
        Self {
            summary: summary_end.map(&mut walk_to),
            stages: stages.iter().map(|stage| walk_to(stage.walk_end)).collect(),
            top_n: walk_to(top_n_end),
            output: walk_to(output_end),
        }
    }
}

//! The model of a flash device: channels with dies that work in parallel, a write buffer, and optionally a page-mapped
//! translation layer with garbage collection.
//!
//! A die runs one operation at a time: reads first, then garbage collection that writes wait for, then programs, then
//! garbage collection in idle time. A read waits at most for the operation that runs. A write completes when the buffer,
//! which survives loss of power, has taken its bytes.

use super::parameters::FlashParameters;
use super::service::{
    Access, Completion, MICROSECOND, MILLISECOND, ModelCounts, ModelTime, Request, Service, complete_ready, transfer,
};
use super::translation::{Step, Translation};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

#[derive(Debug)]
pub struct Flash {
    parameters: FlashParameters,
    /// Bytes of a unit: a page, or the grain of the translation layer.
    unit_bytes: u64,
    dies: Vec<Die>,
    /// When each channel becomes free.
    channels: Vec<f64>,
    interface_free: f64,
    translation: Option<Translation>,
    /// Units in the write buffer, with the number of programs that will store them.
    buffered: HashMap<u32, u32>,
    buffered_bytes: u64,
    /// Units of each die that wait until a page is full.
    partial_pages: Vec<Vec<u32>>,
    /// The die of the first page.
    first_die: usize,
    /// Writes that wait for space in the buffer, in the order of arrival.
    blocked: VecDeque<Request>,
    reads: HashMap<u64, PendingRead>,
    ready: BTreeSet<(ModelTime, u64)>,
    /// When the last request arrived.
    last_arrival: f64,
    counts: ModelCounts,
}

#[derive(Debug, Default)]
struct Die {
    reads: VecDeque<PageRead>,
    programs: VecDeque<Vec<u32>>,
    running: Option<Running>,
}

#[derive(Debug, Clone, Copy)]
struct PageRead {
    request: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Running {
    ends: f64,
    operation: Operation,
}

#[derive(Debug)]
enum Operation {
    Read(PageRead),
    Program(Vec<u32>),
    Collection,
}

#[derive(Debug)]
struct PendingRead {
    length: u64,
    pages: usize,
}

impl Flash {
    pub fn new(parameters: &FlashParameters, seed: u64) -> Self {
        let dies = parameters.channels * parameters.dies_per_channel;
        let translation = parameters.translation.as_ref().map(|table| Translation::new(parameters, table));
        Self {
            unit_bytes: parameters.translation.as_ref().map_or(parameters.page_bytes, |table| table.mapping_bytes),
            dies: (0..dies).map(|_| Die::default()).collect(),
            channels: vec![0.0; parameters.channels],
            interface_free: 0.0,
            translation,
            buffered: HashMap::new(),
            buffered_bytes: 0,
            partial_pages: vec![Vec::new(); dies],
            first_die: (seed % dies as u64) as usize,
            blocked: VecDeque::new(),
            reads: HashMap::new(),
            ready: BTreeSet::new(),
            last_arrival: 0.0,
            counts: ModelCounts::default(),
            parameters: parameters.clone(),
        }
    }

    fn units(&self, request: &Request) -> Range<u32> {
        let end = (request.offset + request.length).min(self.parameters.capacity_bytes);
        (request.offset.min(end) / self.unit_bytes) as u32..end.div_ceil(self.unit_bytes) as u32
    }

    /// Returns the die that stores a unit. A fixed die bounds the units of each die.
    fn die_of(&self, unit: u32) -> usize {
        let page = unit as usize / self.translation.as_ref().map_or(1, |translation| translation.units_per_page);
        (self.first_die + page) % self.dies.len()
    }

    /// Moves bytes over the interface after `at`, and returns when the request completes.
    fn through_interface(&mut self, at: f64, bytes: u64) -> f64 {
        let moved = transfer(bytes, self.parameters.interface_mb_per_s).max(1e9 / self.parameters.requests_per_s);
        self.interface_free = self.interface_free.max(at) + moved;
        self.interface_free + self.parameters.command_us * MICROSECOND
    }

    fn submit_read(&mut self, at: f64, request: &Request) {
        let mut pages: HashMap<usize, u64> = HashMap::new();
        let mut reads = Vec::new();
        for unit in self.units(request) {
            let is_empty = self.translation.as_ref().is_some_and(|translation| !translation.is_mapped(unit));
            if is_empty || self.buffered.contains_key(&unit) {
                continue;
            }
            let die = self.die_of(unit);
            // Neighbouring units of a die are read with one page.
            let page = pages.entry(die).or_default();
            *page += self.unit_bytes;
            if *page >= self.parameters.page_bytes {
                reads.push((die, *page));
                *page = 0;
            }
        }
        let mut rest: Vec<(usize, u64)> = pages.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        rest.sort_unstable();
        reads.extend(rest);
        if reads.is_empty() {
            let done = self.through_interface(at, request.length);
            self.ready.insert((done as u64, request.id));
            return;
        }
        self.reads.insert(request.id, PendingRead { length: request.length, pages: reads.len() });
        for (die, bytes) in reads {
            self.dies[die].reads.push_back(PageRead { request: request.id, bytes });
            self.start(die, at);
        }
    }

    /// Admits blocked writes while the buffer has space. A write that is larger than the buffer is admitted alone.
    fn admit_writes(&mut self, at: f64) {
        while let Some(request) = self.blocked.front().copied() {
            let units = self.units(&request);
            let bytes = units.len() as u64 * self.unit_bytes;
            if self.buffered_bytes > 0 && self.buffered_bytes + bytes > self.parameters.write_buffer_bytes {
                break;
            }
            self.blocked.pop_front();
            self.buffered_bytes += bytes;
            let done = self.through_interface(at, request.length);
            self.ready.insert((done as u64, request.id));
            for unit in units {
                *self.buffered.entry(unit).or_default() += 1;
                self.buffer(unit, at);
            }
        }
    }

    fn buffer(&mut self, unit: u32, at: f64) {
        let die = self.die_of(unit);
        self.partial_pages[die].push(unit);
        if self.partial_pages[die].len() < self.translation.as_ref().map_or(1, |translation| translation.units_per_page)
        {
            return;
        }
        let units = std::mem::take(&mut self.partial_pages[die]);
        self.dies[die].programs.push_back(units);
        self.start(die, at);
    }

    fn is_idle(&self, at: f64) -> bool {
        let idle_after = self.parameters.translation.as_ref().map_or(0.0, |table| table.idle_after_ms * MILLISECOND);
        self.reads.is_empty() && self.blocked.is_empty() && at >= self.last_arrival + idle_after
    }

    /// Starts the next operation of a die that does nothing.
    fn start(&mut self, die: usize, at: f64) {
        if self.dies[die].running.is_some() {
            return;
        }
        let channel = die % self.channels.len();
        let (read_ns, program_ns) = (self.parameters.read_us * MICROSECOND, self.parameters.program_us * MICROSECOND);
        let erase_ns = self.parameters.erase_us * MICROSECOND;
        let channel_rate = self.parameters.channel_mb_per_s;
        let must_collect = self.translation.as_ref().is_some_and(|translation| translation.must_collect(die));
        let (ends, operation) = if let Some(read) = self.dies[die].reads.pop_front() {
            self.channels[channel] = self.channels[channel].max(at + read_ns) + transfer(read.bytes, channel_rate);
            (self.channels[channel], Operation::Read(read))
        } else if must_collect && !self.dies[die].programs.is_empty() {
            self.collect(die, at, true)
        } else if let Some(units) = self.dies[die].programs.pop_front() {
            let bytes = units.len() as u64 * self.unit_bytes;
            self.channels[channel] = self.channels[channel].max(at) + transfer(bytes, channel_rate);
            self.counts.programmed_bytes += bytes;
            let ends = match &mut self.translation {
                Some(translation) => {
                    units.iter().for_each(|unit| translation.write(die, *unit));
                    self.channels[channel] + program_ns
                }
                None => self.channels[channel] + program_ns + erase_ns / self.parameters.pages_per_block as f64,
            };
            (ends, Operation::Program(units))
        } else if self.wants_idle_collection(die) && self.is_idle(at) {
            self.collect(die, at, false)
        } else {
            return;
        };
        self.counts.busy_ns += (ends - at) as u64;
        self.dies[die].running = Some(Running { ends, operation });
    }

    fn wants_idle_collection(&self, die: usize) -> bool {
        self.translation.as_ref().is_some_and(|translation| translation.wants_idle_collection(die))
    }

    /// Runs a step of garbage collection and returns when the step ends. Copies stay inside the die.
    fn collect(&mut self, die: usize, at: f64, is_foreground: bool) -> (f64, Operation) {
        let translation = self.translation.as_mut().expect("only a translation layer collects garbage");
        let ends = match translation.collect(die) {
            Step::Copy { units, pages } => {
                self.counts.collected_bytes += units as u64 * self.unit_bytes;
                let programs = units.div_ceil(translation.units_per_page);
                let copied_us = pages as f64 * self.parameters.read_us + programs as f64 * self.parameters.program_us;
                at + copied_us * MICROSECOND
            }
            Step::Erase => {
                *(match is_foreground {
                    true => &mut self.counts.foreground_erases,
                    false => &mut self.counts.idle_erases,
                }) += 1;
                at + self.parameters.erase_us * MICROSECOND
            }
        };
        (ends, Operation::Collection)
    }

    fn finish(&mut self, die: usize) {
        let Running { ends, operation } = self.dies[die].running.take().expect("the die works");
        match operation {
            Operation::Read(read) => {
                let pending = self.reads.get_mut(&read.request).expect("the request waits for its pages");
                pending.pages -= 1;
                if pending.pages == 0 {
                    let length = pending.length;
                    self.reads.remove(&read.request);
                    let done = self.through_interface(ends, length);
                    self.ready.insert((done as u64, read.request));
                }
            }
            Operation::Program(units) => {
                self.buffered_bytes -= units.len() as u64 * self.unit_bytes;
                for unit in units {
                    let programs = self.buffered.get_mut(&unit).expect("the unit is in the buffer");
                    *programs -= 1;
                    if *programs == 0 {
                        self.buffered.remove(&unit);
                    }
                }
            }
            Operation::Collection => {}
        }
        self.start(die, ends);
        self.admit_writes(ends);
    }

    /// Returns the die whose operation ends first, and when.
    fn next_die_event(&self) -> Option<(f64, usize)> {
        let running = self.dies.iter().enumerate();
        let ends = running.filter_map(|(die, state)| Some((state.running.as_ref()?.ends, die)));
        ends.min_by(|one, other| one.0.total_cmp(&other.0))
    }

    /// Returns when idle time begins on dies that are to collect garbage.
    fn next_idle_event(&self) -> Option<f64> {
        let waits = |(die, state): (usize, &Die)| state.running.is_none() && self.wants_idle_collection(die);
        let idle_after = self.parameters.translation.as_ref()?.idle_after_ms * MILLISECOND;
        let at = self.last_arrival + idle_after;
        (self.reads.is_empty() && self.blocked.is_empty() && self.dies.iter().enumerate().any(waits)).then_some(at)
    }
}

impl Service for Flash {
    fn submit(&mut self, now: ModelTime, request: Request) {
        self.counts.arrived(&request);
        let at = now as f64;
        self.last_arrival = at;
        match request.access {
            Access::Read => self.submit_read(at, &request),
            Access::Write => {
                self.blocked.push_back(request);
                self.admit_writes(at);
            }
            Access::Flush => {
                let done = at + self.parameters.command_us * MICROSECOND;
                self.ready.insert((done as u64, request.id));
            }
        }
    }

    fn discard(&mut self, range: Range<u64>) {
        let Some(translation) = &mut self.translation else { return };
        let units = range.start.div_ceil(self.unit_bytes)..range.end / self.unit_bytes;
        for unit in units.start..units.end.min(u64::from(u32::MAX)) {
            if !self.buffered.contains_key(&(unit as u32)) {
                translation.unmap(unit as u32);
            }
        }
    }

    fn next_event(&self) -> Option<ModelTime> {
        let die = self.next_die_event().map(|(at, _)| at.ceil() as u64);
        let idle = self.next_idle_event().map(|at| at.ceil() as u64);
        die.into_iter().chain(idle).chain(self.ready.first().map(|(at, _)| *at)).min()
    }

    fn advance(&mut self, now: ModelTime, completed: &mut Vec<Completion>) {
        loop {
            let die = self.next_die_event().filter(|(at, _)| at.ceil() as u64 <= now);
            let idle = self.next_idle_event().filter(|at| at.ceil() as u64 <= now);
            match (die, idle) {
                (Some((at, die)), idle) if idle.is_none_or(|idle| at <= idle) => self.finish(die),
                (_, Some(at)) => (0..self.dies.len()).for_each(|die| self.start(die, at.ceil())),
                _ => break,
            }
        }
        complete_ready(&mut self.ready, now, &mut self.counts, completed);
    }

    fn counts(&self) -> ModelCounts {
        self.counts
    }
}

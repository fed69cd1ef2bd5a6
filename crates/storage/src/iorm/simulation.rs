//! Seeded simulations of the scheduler with device models in virtual time.

use super::cost::CostModel;
use super::fair::Request;
use super::plan::{Portion, Terms};
use super::{Nanoseconds, Objective, Scheduler};
use crate::disk::{Access, Completion, ModelCounts, ModelParameters, Request as DeviceRequest, Service};
use crate::request::{DatabaseId, GroupId, IoKind};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

const MS: Nanoseconds = 1_000_000;
const SECOND: Nanoseconds = 1000 * MS;

/// Returns the seeds: a few, or more with LONG=1.
fn seeds() -> Range<u64> {
    if is_long() { 1..9 } else { 1..2 }
}

fn is_long() -> bool {
    std::env::var_os("LONG").is_some()
}

/// Returns the virtual time of a simulation: with LONG=1 all of it, else half.
fn until(end: Nanoseconds) -> Nanoseconds {
    if is_long() { end } else { end / 2 }
}

const SMALL: usize = 8192;
/// What a scan loads at once.
const REGION: usize = 1 << 20;

/// A closed loop: each of `outstanding` slots issues its next request `think` after the end of the previous one.
#[derive(Debug, Clone)]
struct Client {
    database: u32,
    group: u32,
    kind: IoKind,
    outstanding: usize,
    think: Nanoseconds,
    active: Range<Nanoseconds>,
    length: Option<usize>,
    /// Its requests start but never end.
    hangs: bool,
}

impl Client {
    fn small(database: u32, outstanding: usize) -> Self {
        Self {
            database,
            group: 0,
            kind: IoKind::Small,
            outstanding,
            think: 0,
            active: 0..u64::MAX,
            length: None,
            hangs: false,
        }
    }

    fn large(database: u32, outstanding: usize) -> Self {
        Self { kind: IoKind::Large, ..Self::small(database, outstanding) }
    }

    fn during(self, active: Range<Nanoseconds>) -> Self {
        Self { active, ..self }
    }

    fn thinking(self, think: Nanoseconds) -> Self {
        Self { think, ..self }
    }

    /// A scan as the threads that prefetch for it: as many regions are outstanding as the source has threads.
    fn scan(database: u32, group: u32) -> Self {
        Self { group, length: Some(REGION), ..Self::large(database, 8) }
    }

    /// Scans read parts, as with small I/O beside them, unless the length of their reads is set.
    fn bytes(&self, costs: &CostModel) -> usize {
        let parts = if self.kind == IoKind::Small { SMALL } else { costs.split_bytes };
        self.length.unwrap_or(parts)
    }
}

/// The end of a request: when, and how long it took.
#[derive(Debug, Clone, Copy)]
struct Ended {
    at: Nanoseconds,
    latency: Nanoseconds,
}

fn next_random(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 24
}

/// A device that serves any number of requests at the same time, as storage behind a network does. Its latencies vary.
#[derive(Debug)]
struct Remote {
    latencies: Range<Nanoseconds>,
    random: u64,
    ends: BTreeSet<(Nanoseconds, u64)>,
}

impl Service for Remote {
    fn submit(&mut self, now: Nanoseconds, request: DeviceRequest) {
        let Range { start, end } = self.latencies;
        self.ends.insert((now + start + next_random(&mut self.random) % (end - start), request.id));
    }

    fn next_event(&self) -> Option<Nanoseconds> {
        self.ends.first().map(|(at, _)| *at)
    }

    fn advance(&mut self, now: Nanoseconds, completed: &mut Vec<Completion>) {
        while let Some((at, id)) = self.ends.first().copied().filter(|(at, _)| *at <= now) {
            self.ends.remove(&(at, id));
            completed.push(Completion { id, at });
        }
    }

    fn counts(&self) -> ModelCounts {
        ModelCounts::default()
    }
}

struct Simulation {
    scheduler: Scheduler,
    costs: CostModel,
    device: Box<dyn Service>,
    random: u64,
}

impl Simulation {
    fn new(model: &str, objective: Objective, terms: &[Terms], seed: u64) -> Self {
        let parameters = ModelParameters::read(model).unwrap();
        let device = parameters.service(seed);
        Self::of_device(device, CostModel::of_model(&parameters, 1.0), objective, terms, seed)
    }

    fn of_device(device: Box<dyn Service>, costs: CostModel, objective: Objective, terms: &[Terms], seed: u64) -> Self {
        let mut scheduler = Scheduler::new(costs.depth);
        scheduler.set_objective(objective);
        for (database, terms) in terms.iter().enumerate() {
            scheduler.set_terms(DatabaseId(database as u32), *terms);
        }
        Self { scheduler, costs, device, random: seed }
    }

    fn random(&mut self) -> u64 {
        next_random(&mut self.random)
    }

    /// Runs the clients until `end`, and returns the ends of the requests of each.
    fn run(&mut self, clients: &[Client], end: Nanoseconds) -> Vec<Vec<Ended>> {
        let mut ended = vec![Vec::new(); clients.len()];
        // The client of each slot, and when slots issue their next requests.
        let (mut slots, mut due) = (Vec::new(), BTreeSet::new());
        for (number, client) in clients.iter().enumerate() {
            for _ in 0..client.outstanding {
                due.insert((client.active.start, slots.len()));
                slots.push(number);
            }
        }
        let mut scans = vec![0_u64; clients.len()];
        let mut requests: HashMap<u64, (usize, Nanoseconds)> = HashMap::new();
        let (mut now, mut next_id, mut completed) = (0, 0, Vec::new());
        while now < end {
            while let Some((at, slot)) = due.first().copied().filter(|(at, _)| *at <= now) {
                due.remove(&(at, slot));
                let client = &clients[slots[slot]];
                if client.active.end <= now {
                    continue;
                }
                let cost = self.costs.cost(false, client.bytes(&self.costs), client.kind == IoKind::Large);
                let (database, group) = (DatabaseId(client.database), GroupId(client.group));
                self.scheduler.submit(now, Request { id: next_id, database, group, kind: client.kind, cost });
                requests.insert(next_id, (slot, now));
                next_id += 1;
            }
            while let Some(start) = self.scheduler.start(now) {
                let (slot, _) = requests[&start.id];
                let number = slots[slot];
                if clients[number].hangs {
                    continue;
                }
                let length = clients[number].bytes(&self.costs) as u64;
                let offset = match clients[number].kind {
                    IoKind::Small => self.random() % (32 << 30) / length * length,
                    _ => {
                        scans[number] += 1;
                        (64 + 8 * number as u64) % 500 * (1 << 30) + scans[number] * length
                    }
                };
                self.device.submit(now, DeviceRequest { id: start.id, access: Access::Read, offset, length });
            }
            let issued = due.first().map(|(at, _)| *at);
            let next = [self.device.next_event(), self.scheduler.next_event(now), issued];
            now = next.into_iter().flatten().min().unwrap_or(end).max(now + 1);
            self.device.advance(now, &mut completed);
            for Completion { id, .. } in completed.drain(..) {
                self.scheduler.completed(now, id);
                let (slot, issued) = requests.remove(&id).unwrap();
                let number = slots[slot];
                ended[number].push(Ended { at: now, latency: now - issued });
                due.insert((now + clients[number].think, slot));
            }
        }
        ended
    }
}

fn count(ended: &[Ended], during: Range<Nanoseconds>) -> f64 {
    ended.iter().filter(|ended| during.contains(&ended.at)).count() as f64
}

fn percentile(ended: &[Ended], during: Range<Nanoseconds>, share: f64) -> f64 {
    let mut latencies: Vec<Nanoseconds> =
        ended.iter().filter(|ended| during.contains(&ended.at)).map(|ended| ended.latency).collect();
    latencies.sort_unstable();
    let at = ((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1));
    latencies.get(at).map_or(0.0, |latency| *latency as f64)
}

fn share(share: u32) -> Terms {
    Terms { portion: Portion::Share(share), ..Terms::EQUAL }
}

const FLASH: &str = "flash-slc";
const DISK: &str = "hdd-15k";

#[test]
fn shares_divide_a_saturated_device_and_one_database_alone_gets_everything() {
    for (model, seed) in [DISK, FLASH].into_iter().flat_map(|model| seeds().map(move |seed| (model, seed))) {
        let run = |clients: &[Client]| {
            let terms = [share(1), share(2), share(1)];
            let end = until(if model == DISK { 20 * SECOND } else { SECOND / 10 });
            let ended = Simulation::new(model, Objective::HighThroughput, &terms, seed).run(clients, end);
            ended.iter().map(|ended| count(ended, end / 10..end)).collect::<Vec<_>>()
        };
        // The outstanding requests of each exceed what the device takes.
        let outstanding = 128;
        let both = run(&[Client::small(1, outstanding), Client::small(2, outstanding)]);
        let ratio = both[0] / both[1];
        assert!((1.8..2.2).contains(&ratio), "{model}, seed {seed}: {ratio}");
        let alone = run(&[Client::small(2, outstanding)]);
        let unscheduled = {
            let end = until(if model == DISK { 20 * SECOND } else { SECOND / 10 });
            let clients = [Client::small(2, outstanding)];
            let ended = Simulation::new(model, Objective::Off, &[], seed).run(&clients, end);
            count(&ended[0], end / 10..end)
        };
        println!("{model}, seed {seed}: {ratio:.3}, alone {:.3} of an unscheduled device", alone[0] / unscheduled);
        let least = if model == DISK { 0.9 } else { 0.95 };
        assert!(alone[0] >= least * unscheduled, "{model}, seed {seed}: {} of {unscheduled}", alone[0]);
        assert!(both[0] + both[1] >= 0.97 * alone[0], "{model}, seed {seed}: {both:?} of {alone:?}");
    }
}

/// Returns what each of some clients with large requests got from 1 s on, in requests per second.
fn rates(model: &str, objective: Objective, terms: &[Terms], clients: &[Client], seed: u64) -> Vec<f64> {
    let end = until(40 * SECOND);
    let ended = Simulation::new(model, objective, terms, seed).run(clients, end);
    ended.iter().map(|ended| count(ended, SECOND..end) / ((end - SECOND) as f64 / 1e9)).collect()
}

#[test]
fn scans_get_device_time_by_their_shares() {
    let terms = |shares: &[u32]| [vec![share(1)], shares.iter().copied().map(share).collect()].concat();
    for (model, objective) in [(DISK, Objective::HighThroughput), (DISK, Objective::Auto), (FLASH, Objective::Auto)] {
        for seed in seeds() {
            let alone = rates(model, objective, &terms(&[1]), &[Client::scan(1, 0)], seed)[0];
            let off = rates(model, Objective::Off, &[], &[Client::scan(1, 0)], seed)[0];
            assert!(alone >= 0.97 * off, "{model}, {objective}: {alone} of {off}");
            for shares in [&[1, 1][..], &[2, 1], &[1, 4], &[3, 2, 1]] {
                let scans: Vec<_> = (0..shares.len() as u32).map(|at| Client::scan(at + 1, 0)).collect();
                let got = rates(model, objective, &terms(shares), &scans, seed);
                let (sum, whole) = (got.iter().sum::<f64>(), shares.iter().sum::<u32>());
                println!("{model}, {objective}, seed {seed}, {shares:?}: {got:.1?}, {:.2} of one alone", sum / alone);
                for (got, share) in got.iter().zip(shares) {
                    let part = got / sum * f64::from(whole) / f64::from(*share);
                    assert!((0.95..1.05).contains(&part), "{model}, {objective}, {shares:?}: {part} of its share");
                }
                assert!(sum >= 0.7 * alone, "{model}, {objective}, {shares:?}: {sum} of {alone}");
            }
        }
    }
}

/// A scan that begins has one request outstanding. The disk could serve another scan until the request is 300 ms old.
#[test]
fn a_disk_does_not_pass_over_the_only_request_of_a_scan_for_long() {
    for (seed, start) in seeds().flat_map(|seed| [(seed, 0), (seed, 2 * SECOND)]) {
        let mut simulation = Simulation::new(DISK, Objective::HighThroughput, &[], seed);
        let begins = Client { outstanding: 1, ..Client::scan(1, 0).during(start..u64::MAX) };
        let ended = simulation.run(&[begins, Client::scan(2, 0)], until(20 * SECOND));
        let longest = percentile(&ended[0], 0..u64::MAX, 1.0) / 1e9;
        println!("seed {seed}: longest {longest:.3} s, depth {:.3} s", simulation.costs.depth);
        assert!(longest <= 3.0 * simulation.costs.depth, "seed {seed}: {longest} s");
    }
}

/// On a path to a disk that is gone, requests may stay in flight for minutes.
#[test]
fn requests_of_one_scan_that_hang_stop_no_other_source() {
    for (objective, seed) in
        [Objective::HighThroughput, Objective::Auto].into_iter().flat_map(|it| seeds().map(move |seed| (it, seed)))
    {
        let hangs = Client { hangs: true, outstanding: 4, ..Client::scan(1, 0) };
        let background = Client { kind: IoKind::Background, ..Client::large(3, 1) };
        let others = [Client::scan(2, 0), background];
        let expected = rates(DISK, objective, &[], &others, seed);
        let clients = [vec![hangs], others.to_vec()].concat();
        // From 1 s on: as long as the requests count as passed over.
        let got = rates(DISK, objective, &[], &clients, seed);
        println!("{objective}, seed {seed}: {got:.1?}, alone {expected:.1?}");
        assert!(got[1] >= 0.8 * expected[0] && got[2] >= 0.8 * expected[1], "{objective}, seed {seed}: {got:?}");
    }
}

/// Returns how many requests of each client end on a device that was not calibrated, whose costs are those of a fast flash device.
fn ended_uncalibrated(latencies: &Range<Nanoseconds>, terms: &[Terms], clients: &[Client], seed: u64) -> Vec<f64> {
    let device = Box::new(Remote { latencies: latencies.clone(), random: seed, ends: BTreeSet::new() });
    let mut simulation = Simulation::of_device(device, CostModel::ordinary(), Objective::HighThroughput, terms, seed);
    let end = until(1000 * latencies.end);
    simulation.run(clients, end).iter().map(|ended| count(ended, end / 10..end)).collect()
}

#[test]
fn scans_of_several_sources_keep_the_throughput_of_a_device_whose_costs_are_too_low() {
    // Latencies below the least time after which a request is passed over, and above.
    for (latencies, seed) in
        [2 * MS..8 * MS, 20 * MS..80 * MS].into_iter().flat_map(|it| seeds().map(move |seed| (it.clone(), seed)))
    {
        let clients = [Client::large(1, 8), Client::large(2, 8)];
        let ended = |clients| ended_uncalibrated(&latencies, &[], clients, seed).iter().sum::<f64>();
        let (alone, both) = (ended(&clients[..1]), ended(&clients));
        println!("{latencies:?}, seed {seed}: {:.2} of one alone", both / alone);
        assert!(both >= 0.95 * alone, "{latencies:?}, seed {seed}: {both} of {alone}");
    }
}

/// A database that waits for its limit does not use the device: another scan has the whole depth.
#[test]
fn a_scan_that_waits_for_its_limit_lowers_the_throughput_of_no_other_scan() {
    for seed in seeds() {
        let terms = [share(1), Terms { limit: Some(0.0001), ..share(1) }, share(1)];
        let scan = |database| Client { length: Some(32 << 10), ..Client::large(database, 8) };
        let ended = |clients: &[Client]| ended_uncalibrated(&(2 * MS..8 * MS), &terms, clients, seed);
        let (both, alone) = (ended(&[scan(1), scan(2)]), ended(&[scan(2)])[0]);
        println!("seed {seed}: {both:?}, alone {alone}");
        assert!(both[0] > 0.0 && both[1] >= 0.9 * alone, "seed {seed}: {both:?} of {alone}");
    }
}

#[test]
fn scans_of_the_groups_of_a_database_share_its_part_and_a_limit_holds_beside_another_scan() {
    for seed in seeds() {
        let terms = [share(1), share(2), share(1)];
        let groups = [Client::scan(1, 1), Client::scan(1, 2), Client::scan(2, 0)];
        let got = rates(DISK, Objective::HighThroughput, &terms, &groups, seed);
        let sum: f64 = got.iter().sum();
        assert!(got.iter().all(|one| (0.95..1.05).contains(&(3.0 * one / sum))), "seed {seed}: {got:?}");

        let limited = Terms { limit: Some(0.1), ..share(1) };
        let terms = [share(1), limited, share(1)];
        let clients = [Client::scan(1, 0), Client::scan(2, 0)];
        let got = rates(DISK, Objective::HighThroughput, &terms, &clients, seed);
        let alone = rates(DISK, Objective::HighThroughput, &terms, &clients[1..], seed)[0];
        println!("seed {seed}: limited to 10 % {:.1?}, the other alone {alone:.1}", got);
        assert!((0.09..0.11).contains(&(got[0] / alone)), "seed {seed}: {got:?} of {alone}");
        assert!(got[1] >= 0.7 * alone, "seed {seed}: {got:?} of {alone}");
    }
}

#[test]
fn scans_and_block_reads_share_device_time() {
    for seed in seeds() {
        let terms = [share(1), share(1), share(1)];
        let mut simulation = Simulation::new(DISK, Objective::HighThroughput, &terms, seed);
        let ended = simulation.run(&[Client::small(1, 64), Client::large(2, 64)], 20 * SECOND);
        let seconds = |ended: &[Ended], bytes, is_sequential| {
            count(ended, 2 * SECOND..20 * SECOND) * simulation.costs.cost(false, bytes, is_sequential)
        };
        let ratio = seconds(&ended[0], SMALL, false) / seconds(&ended[1], simulation.costs.split_bytes, true);
        assert!((0.9..1.1).contains(&ratio), "seed {seed}: {ratio}");
    }
}

#[test]
fn groups_of_a_database_share_its_part_not_that_of_others() {
    for seed in seeds() {
        let mut simulation = Simulation::new(FLASH, Objective::HighThroughput, &[], seed);
        let of_group = |group| Client { group, ..Client::small(1, 64) };
        let ended = simulation.run(&[of_group(1), of_group(2), of_group(3), Client::small(2, 128)], SECOND / 4);
        let counts: Vec<f64> = ended.iter().map(|ended| count(ended, SECOND / 40..SECOND / 4)).collect();
        let whole: f64 = counts[..3].iter().sum();
        assert!((0.9..1.1).contains(&(whole / counts[3])), "seed {seed}: {counts:?}");
        assert!(counts[..3].iter().all(|one| (0.9..1.1).contains(&(3.0 * one / whole))), "seed {seed}: {counts:?}");
    }
}

#[test]
fn a_limit_holds_on_an_idle_device_and_a_reservation_on_a_busy_one() {
    for seed in seeds() {
        let limited = Terms { limit: Some(0.2), ..Terms::EQUAL };
        let reserved = Terms { reservation: Some(0.5), ..share(1) };
        let end = 20 * SECOND;
        let used = |simulation: &Simulation, ended: &[Ended]| {
            count(ended, 2 * SECOND..end) * simulation.costs.cost(false, SMALL, false) / 18.0
        };
        let mut alone = Simulation::new(DISK, Objective::HighThroughput, &[share(1), limited], seed);
        let ended = alone.run(&[Client::small(1, 32)], end);
        let part = used(&alone, &ended[0]);
        assert!((0.18..0.22).contains(&part), "seed {seed}: {part}");

        let mut busy = Simulation::new(DISK, Objective::HighThroughput, &[share(1), reserved, share(31)], seed);
        let ended = busy.run(&[Client::small(1, 64), Client::small(2, 64)], end);
        let (part, other) = (used(&busy, &ended[0]), used(&busy, &ended[1]));
        assert!(part >= 0.45 && other >= 0.3, "seed {seed}: {part}, {other}");
    }
}

#[test]
fn levels_and_allocations_divide_what_is_left() {
    let at = |level, percent| Terms { portion: Portion::Allocation { level, percent }, ..Terms::EQUAL };
    for seed in seeds() {
        let mut simulation =
            Simulation::new(FLASH, Objective::HighThroughput, &[share(1), at(1, 75), at(2, 100), at(2, 0)], seed);
        let clients = [Client::small(1, 128), Client::small(2, 128), Client::small(3, 64)];
        let ended = simulation.run(&clients, SECOND / 2);
        let counts: Vec<f64> = ended.iter().map(|ended| count(ended, SECOND / 20..SECOND / 2)).collect();
        assert!((2.7..3.3).contains(&(counts[0] / counts[1])), "seed {seed}: {counts:?}");
        assert!(counts[2] > 0.0, "seed {seed}: a database without a part starves: {counts:?}");
    }
}

#[test]
fn no_kind_of_request_starves() {
    for (objective, seed) in [Objective::LowLatency, Objective::Auto, Objective::Static(40), Objective::HighThroughput]
        .into_iter()
        .flat_map(|objective| seeds().map(move |seed| (objective, seed)))
    {
        let kinds = [IoKind::Redo, IoKind::Small, IoKind::Large, IoKind::Background];
        let clients = kinds.map(|kind| Client { kind, ..Client::small(1, 16) });
        let ended = Simulation::new(DISK, objective, &[], seed).run(&clients, 20 * SECOND);
        for (kind, ended) in kinds.iter().zip(&ended) {
            let seconds = (2..12).filter(|second| count(ended, second * SECOND..(second + 8) * SECOND) > 0.0).count();
            assert_eq!(seconds, 10, "{objective}, seed {seed}: {kind:?} in {seconds} of 10 windows");
        }
    }
}

/// Four sessions read blocks, thinking in between. A scan starts after a third of the time. Returns the 99th percentile of the
/// latency of block reads: before, in a part after 200 ms, and in the last half; and the MB per second of the scan.
fn beside_a_scan(model: &str, objective: Objective, seed: u64) -> (f64, f64, f64, f64) {
    let (think, third) = if model == DISK { (10 * MS, 5 * SECOND) } else { (MS / 2, SECOND) };
    let clients = [Client::small(1, 4).thinking(think), Client::large(2, 8).during(third..3 * third)];
    let mut simulation = Simulation::new(model, objective, &[], seed);
    let ended = simulation.run(&clients, 3 * third);
    let p99 = |during| percentile(&ended[0], during, 0.99);
    let soon = third + 200 * MS;
    let scanned = count(&ended[1], soon..3 * third) * simulation.costs.split_bytes as f64;
    let scanned = scanned / ((3 * third - soon) as f64 / 1e9) / 1e6;
    (p99(third / 5..third), p99(soon..soon + third / 2), p99(third + third / 2..3 * third), scanned)
}

fn check_latency(model: &str, allowance: f64) {
    for (objective, ratio) in [
        (Objective::LowLatency, Some(1.2)),
        (Objective::Balanced, Some(2.0)),
        (Objective::Auto, Some(2.0)),
        (Objective::Static(40), None),
        (Objective::Off, None),
    ] {
        // The others are compared, or have the target of another one.
        if !is_long() && !matches!(objective, Objective::LowLatency | Objective::Balanced) {
            continue;
        }
        for seed in seeds() {
            let (idle, soon, later, scanned) = beside_a_scan(model, objective, seed);
            let (soon, later) = (soon / idle, later / idle);
            println!(
                "{model}, {objective}, seed {seed}: idle p99 {:.2} ms; soon after the start of the scan {soon:.2} times; later \
                 {later:.2} times; scan {scanned:.0} MB/s",
                idle / 1e6
            );
            let Some(ratio) = ratio else { continue };
            assert!(soon <= allowance * ratio && later <= allowance * ratio, "{model}, {objective}, seed {seed}");
            assert!(scanned > 0.0, "{model}, {objective}, seed {seed}");
        }
    }
}

// Latencies are learned in steps of a sixteenth of an octave (4.4 %), and the percentiles of few requests vary.

#[test]
fn small_reads_of_a_hard_disk_keep_their_latency_beside_a_scan() {
    check_latency(DISK, 1.25);
}

#[test]
fn small_reads_of_flash_keep_their_latency_beside_a_scan() {
    check_latency(FLASH, 1.25);
}

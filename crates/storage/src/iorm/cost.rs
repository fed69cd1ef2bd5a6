//! What requests cost: device time as a linear function of their length, as in Linux's io.cost.
//!
//! The figures of a device model are measured in model time when the disk is opened. Those of another device are measured on
//! request ([`super::calibration`]). Until then they are those of an ordinary flash device: shares depend only on the ratio between
//! the costs of small and large requests.

use super::{DeviceSeconds, SPLIT_BYTES_MAX, SPLIT_BYTES_MIN};
use crate::disk::{Access, Completion, ModelParameters, Request};
use parking_lot::Mutex;
use std::convert::Infallible;

/// Blocks of PostgreSQL and reads of scans, which the figures are measured with.
const SMALL_BYTES: u64 = 8192;
const LARGE_BYTES: u64 = 1 << 20;
/// Requests of a measurement, and of one with large requests, which take a device model more steps.
const REQUESTS: u64 = 400;
const LARGE_REQUESTS: u64 = 100;
const DEPTH_MAX: u64 = 64;
/// The depth of a device is the least at which random reads reach this part of their highest rate.
const DEPTH_RATE: f64 = 0.95;
/// A part of a large read takes at most this multiple of the time of a small read.
const SPLIT_RATIO: f64 = 2.0;
/// Part of the device's addresses that a measurement uses.
const SPAN_BYTES: u64 = 64 << 30;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostModel {
    read: Direction,
    write: Direction,
    /// Device time of requests in flight with which the device is fully used; at least two parts of large reads.
    pub depth: DeviceSeconds,
    /// Length of the parts of large reads while small I/O is active. A part alone takes at most twice as long as a small read.
    pub split_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Direction {
    per_byte: DeviceSeconds,
    /// Per request, in addition to its bytes.
    sequential: DeviceSeconds,
    random: DeviceSeconds,
}

impl Direction {
    /// Rates in requests per second: small sequential and random ones, and large ones.
    fn of_rates(sequential: f64, random: f64, large: f64) -> Self {
        let per_byte = 1.0 / (large * LARGE_BYTES as f64);
        let base = |rate: f64| (1.0 / rate - per_byte * SMALL_BYTES as f64).max(0.0);
        Self { per_byte, sequential: base(sequential), random: base(random).max(base(sequential)) }
    }

    fn cost(&self, bytes: usize, is_sequential: bool) -> DeviceSeconds {
        self.per_byte * bytes as f64 + if is_sequential { self.sequential } else { self.random }
    }

    fn scaled(self, factor: f64) -> Self {
        let Self { per_byte, sequential, random } = self;
        Self { per_byte: per_byte * factor, sequential: sequential * factor, random: random * factor }
    }
}

impl CostModel {
    /// An ordinary flash device: 1 GB and 60,000 reads per second, half of that for writes.
    pub fn ordinary() -> Self {
        let read = Direction::of_rates(100_000.0, 60_000.0, 1000.0);
        let write = Direction::of_rates(50_000.0, 30_000.0, 500.0);
        Self { read, write, depth: 32.0 / 60_000.0, split_bytes: SPLIT_BYTES_MAX }
    }

    /// Returns the costs of a device model, which is measured once. `time_scale` is real seconds per model second.
    pub fn of_model(parameters: &ModelParameters, time_scale: f64) -> Self {
        static MEASURED: Mutex<Vec<(ModelParameters, CostModel)>> = Mutex::new(Vec::new());
        let mut measured = MEASURED.lock();
        let known = measured.iter().find(|(known, _)| known == parameters).map(|(_, costs)| *costs);
        let costs = known.unwrap_or_else(|| {
            let costs = Self::measured(parameters);
            measured.push((parameters.clone(), costs));
            costs
        });
        Self {
            read: costs.read.scaled(time_scale),
            write: costs.write.scaled(time_scale),
            depth: costs.depth * time_scale,
            split_bytes: costs.split_bytes,
        }
    }

    /// Measures a device model in model time.
    fn measured(parameters: &ModelParameters) -> Self {
        let rate = |access, bytes, is_sequential, depth| {
            Ok::<_, Infallible>(measured_rate(parameters, access, bytes, is_sequential, depth))
        };
        let Ok(costs) = Self::from_rates(rate);
        costs
    }

    /// Returns the costs of a device. `rate` measures requests of a length per second, sequential or random ones, with a number of
    /// requests in flight.
    pub fn from_rates<E>(rate: impl Fn(Access, u64, bool, u64) -> Result<f64, E>) -> Result<Self, E> {
        let depths = std::iter::successors(Some(1), |depth| Some(depth * 2)).take_while(|depth| *depth <= DEPTH_MAX);
        let random = depths.map(|depth| Ok((depth, rate(Access::Read, SMALL_BYTES, false, depth)?)));
        let random = random.collect::<Result<Vec<(u64, f64)>, E>>()?;
        let highest = random.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let (depth, _) =
            *random.iter().find(|(_, rate)| *rate >= DEPTH_RATE * highest).expect("the highest is one of them");
        let direction = |access, random| -> Result<Direction, E> {
            let sequential = rate(access, SMALL_BYTES, true, depth)?;
            Ok(Direction::of_rates(sequential, random, rate(access, LARGE_BYTES, true, 4.min(depth))?))
        };
        let read = direction(Access::Read, highest)?;
        let write = direction(Access::Write, rate(Access::Write, SMALL_BYTES, false, depth)?)?;
        let depth = (depth as f64 * read.cost(SMALL_BYTES as usize, false)).max(2.0 * read.cost(SPLIT_BYTES_MAX, true));
        let shortest = 1.0 / random[0].1;
        let mut split_bytes = SPLIT_BYTES_MAX;
        while split_bytes > SPLIT_BYTES_MIN
            && 1.0 / rate(Access::Read, split_bytes as u64, false, 1)? > SPLIT_RATIO * shortest
        {
            split_bytes /= 2;
        }
        Ok(Self { read, write, depth, split_bytes })
    }

    /// Returns the figures as the text that a disk keeps.
    pub fn to_note(self) -> Vec<u8> {
        let Self { read, write, depth, split_bytes } = self;
        let [read, write] = [read, write].map(|of| format!("{:e} {:e} {:e}", of.per_byte, of.sequential, of.random));
        format!("1 {read} {write} {depth:e} {split_bytes}\n").into_bytes()
    }

    /// Reads the text of [`Self::to_note`]; None if it is damaged.
    pub fn from_note(note: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(note).ok()?.strip_prefix("1 ")?.strip_suffix('\n')?;
        let (figures, split_bytes) = text.rsplit_once(' ')?;
        let figures: Vec<f64> = figures.split(' ').map(|figure| figure.parse().ok()).collect::<Option<_>>()?;
        let split_bytes = split_bytes.parse().ok()?;
        let [a, b, c, d, e, f, depth] = figures[..].try_into().ok()?;
        let is_valid = figures.iter().all(|figure| figure.is_finite() && *figure >= 0.0) && depth > 0.0;
        let is_split = (SPLIT_BYTES_MIN..=SPLIT_BYTES_MAX).contains(&split_bytes);
        let of = |per_byte, sequential, random| Direction { per_byte, sequential, random };
        (is_valid && is_split).then(|| Self { read: of(a, b, c), write: of(d, e, f), depth, split_bytes })
    }

    pub fn cost(&self, is_write: bool, bytes: usize, is_sequential: bool) -> DeviceSeconds {
        if is_write { self.write.cost(bytes, is_sequential) } else { self.read.cost(bytes, is_sequential) }
    }
}

/// Returns the rate of requests to a device model with `depth` of them in flight.
fn measured_rate(parameters: &ModelParameters, access: Access, bytes: u64, is_sequential: bool, depth: u64) -> f64 {
    let mut service = parameters.service(1);
    let blocks = parameters.capacity_bytes().min(SPAN_BYTES) / bytes;
    let offset = |id: u64| match is_sequential {
        true => id % blocks * bytes,
        // The multiplier of Knuth's linear congruential generator scatters the numbers.
        false => {
            (id.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 20) % blocks * bytes
        }
    };
    let requests = if bytes == LARGE_BYTES { LARGE_REQUESTS } else { REQUESTS };
    let (mut next, mut ended, mut now, mut completed) = (0, 0, 0, Vec::new());
    while ended < requests {
        while next < (ended + depth).min(requests) {
            service.submit(now, Request { id: next, access, offset: offset(next), length: bytes });
            next += 1;
        }
        now = service.next_event().map_or(now, |event| event.max(now));
        service.advance(now, &mut completed);
        ended += completed.drain(..).map(|Completion { at, .. }| now = now.max(at)).count() as u64;
    }
    requests as f64 * 1e9 / now.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_every_model_are_measured() {
        for name in ModelParameters::built_in() {
            let parameters = ModelParameters::read(name).unwrap();
            let costs = CostModel::of_model(&parameters, 1.0);
            let (small, large) = (costs.cost(false, 8192, false), costs.cost(false, 1 << 20, true));
            println!(
                "{name}: 8 KiB {:.0} us, 1 MiB {:.0} us, depth {:.2} ms, parts of {} KiB",
                small * 1e6,
                large * 1e6,
                costs.depth * 1e3,
                costs.split_bytes >> 10
            );
            assert!(small > 1e-6 && small < 0.01 && large > 1e-4 && large < 0.1, "{name}");
            assert!(costs.depth >= small * 0.99 && costs.depth < 0.5, "{name}");
            assert!(costs.cost(false, 8192, true) <= small && costs.cost(true, 8192, false) > 0.0, "{name}");
            let half = CostModel::of_model(&parameters, 0.5);
            assert!((half.cost(false, 8192, false) - small / 2.0).abs() < 1e-9, "{name}");
            assert!((half.depth - costs.depth / 2.0).abs() < 1e-9 && half.split_bytes == costs.split_bytes, "{name}");
            assert_eq!(CostModel::of_model(&parameters, 1.0), costs, "{name}");
        }
    }

    #[test]
    fn a_random_request_of_a_hard_disk_costs_as_much_as_a_long_transfer() {
        let costs = CostModel::of_model(&ModelParameters::read("hdd-15k").unwrap(), 1.0);
        let transfer = costs.cost(false, 1 << 20, true) - costs.cost(false, 0, true);
        assert!((0.003..0.009).contains(&transfer), "{transfer}");
        assert!((0.001..0.006).contains(&costs.cost(false, 8192, false)), "{costs:?}");
    }
}

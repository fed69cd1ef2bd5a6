//! A seeded random number generator.

/// A reproducible pseudo-random sequence (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Takes the seed from the environment variable SEED, or from the clock, and prints it, so that a failed test shows
    /// it.
    pub fn from_environment() -> Self {
        let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(clock);
        println!("SEED={seed}");
        Self(seed)
    }

    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let fill = self.next();
        let pattern: Vec<u8> = (0..256).map(|at| (fill as usize + at * 7) as u8).collect();
        let mut bytes = pattern.repeat(count.div_ceil(256));
        bytes.truncate(count);
        bytes
    }
}

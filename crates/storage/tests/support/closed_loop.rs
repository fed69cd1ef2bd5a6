//! Streams of requests to a device model in model time: each stream submits its next request when the previous one has
//! completed. Nothing sleeps.

use cellar_storage::disk::{Access, Completion, ModelTime, Request, Service};

/// What a run measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// Latencies of reads in microseconds, in the order of completion.
    pub reads_us: Vec<f64>,
    pub writes_us: Vec<f64>,
    /// Bytes of all requests.
    pub bytes: u64,
    pub seconds: f64,
}

impl Measured {
    pub fn per_second(&self) -> f64 {
        (self.reads_us.len() + self.writes_us.len()) as f64 / self.seconds
    }

    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }

    /// Returns the mean latency of reads in milliseconds.
    pub fn read_ms(&self) -> f64 {
        self.reads_us.iter().sum::<f64>() / self.reads_us.len() as f64 / 1e3
    }

    /// Returns the percentages of reads shorter than 1, 2, 4, … milliseconds and not shorter than half of that.
    pub fn histogram(&self) -> Vec<f64> {
        let mut counts = [0_u64; 12];
        for latency in &self.reads_us {
            let bucket = (latency / 1e3).max(0.5).log2().floor() + 1.0;
            counts[(bucket as usize).min(11)] += 1;
        }
        counts.iter().map(|count| *count as f64 * 100.0 / self.reads_us.len() as f64).collect()
    }
}

/// A device that several runs use one after the other.
pub struct ClosedLoop {
    device: Box<dyn Service>,
    now: ModelTime,
    next_id: u64,
}

impl ClosedLoop {
    pub fn new(device: Box<dyn Service>) -> Self {
        Self { device, now: 0, next_id: 0 }
    }

    pub fn device(&self) -> &dyn Service {
        &*self.device
    }

    /// Leaves the device without requests.
    pub fn rest(&mut self, seconds: f64) {
        self.now += (seconds * 1e9) as ModelTime;
        self.device.advance(self.now, &mut Vec::new());
    }

    /// Runs `streams` streams for `requests` requests in all. `next` returns access, offset and length of the next request
    /// of a stream.
    pub fn run(
        &mut self,
        streams: usize,
        requests: usize,
        mut next: impl FnMut(usize) -> (Access, u64, u64),
    ) -> Measured {
        let started = self.now;
        let (mut measured, mut flying, mut submitted) = (Measured::default(), Vec::new(), 0);
        let mut completed: Vec<Completion> = Vec::new();
        let mut submit = |device: &mut dyn Service, flying: &mut Vec<_>, now, stream| {
            let (access, offset, length) = next(stream);
            device.submit(now, Request { id: self.next_id, access, offset, length });
            flying.push((self.next_id, stream, access, length, now));
            self.next_id += 1;
        };
        for stream in 0..streams.min(requests) {
            submit(&mut *self.device, &mut flying, self.now, stream);
            submitted += 1;
        }
        while !flying.is_empty() {
            self.now = self.device.next_event().expect("a request is in flight").max(self.now);
            self.device.advance(self.now, &mut completed);
            for Completion { id, at } in completed.drain(..) {
                assert!(at <= self.now, "completions are not in the future");
                let index = flying.iter().position(|(known, ..)| *known == id).expect("the request is in flight");
                let (_, stream, access, length, since) = flying.swap_remove(index);
                assert!(at >= since, "a request completes after its arrival");
                let latency = (at - since) as f64 / 1e3;
                match access {
                    Access::Read => measured.reads_us.push(latency),
                    _ => measured.writes_us.push(latency),
                }
                measured.bytes += length;
                if submitted < requests {
                    submit(&mut *self.device, &mut flying, self.now, stream);
                    submitted += 1;
                }
            }
        }
        measured.seconds = (self.now - started) as f64 / 1e9;
        measured
    }
}

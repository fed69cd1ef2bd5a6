//! The offload simulation, scanned block by block.

use std::os::raw::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use cellar_format::stats::ScanStats;
use cellar_format::units::BLOCK_BYTES;

use super::connection::{CellarEvent, xid_states};
use super::error::{self, CellarError};
use super::items;
use super::request::CellarRequest;
use crate::simulation::{Simulation, Step};

pub type CellarSimulation = Simulation;

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_simulation_new(
    request: &CellarRequest,
    error: *mut CellarError,
) -> *mut CellarSimulation {
    let built = catch_unwind(AssertUnwindSafe(|| Simulation::new(request))).unwrap_or_else(|_| Err(error::panicked()));
    match built {
        Ok(simulation) => Box::into_raw(Box::new(simulation)),
        Err(report) => {
            // SAFETY: the header requires a place for the error.
            unsafe { ptr::write(error, error::last(&report)) };
            ptr::null_mut()
        }
    }
}

/// # Safety
/// See the header: `simulation` came from `cellar_simulation_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_simulation_free(simulation: *mut CellarSimulation) {
    if !simulation.is_null() {
        // SAFETY: cellar_simulation_new boxed the simulation, and the caller does not use it again.
        drop(unsafe { Box::from_raw(simulation) });
    }
}

/// # Safety
/// See the header: `page` is one block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_simulation_block(
    simulation: &mut CellarSimulation,
    block: u32,
    page: *const c_void,
) -> CellarEvent {
    // SAFETY: the header requires one block's bytes.
    let page = unsafe { items(page.cast::<u8>(), BLOCK_BYTES) };
    match catch_unwind(AssertUnwindSafe(|| simulation.block(block, page))) {
        Ok(Step::Counted) => CellarEvent::RangeDone,
        Ok(Step::NeedXids) => CellarEvent::XidQuery,
        Err(_) => CellarEvent::Failed,
    }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_simulation_xids(simulation: &CellarSimulation, count: *mut usize) -> *const u32 {
    // SAFETY: the header requires a place for the count.
    unsafe { ptr::write(count, simulation.needed_xids().len()) };
    simulation.needed_xids().as_ptr()
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_simulation_answer_xids(
    simulation: &mut CellarSimulation,
    states: *const u8,
    count: usize,
) {
    // SAFETY: the header requires `count` states.
    simulation.answer(&xid_states(unsafe { items(states, count) }));
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_simulation_stats(simulation: &mut CellarSimulation) -> ScanStats {
    simulation.stats()
}

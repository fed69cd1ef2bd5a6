//! The tests of the storage layer, one module per file: one program links faster than one per file. `memory.rs` and
//! `damaged_records.rs` are separate programs, because they count allocations and panics of the whole process.

mod support;

mod columnar;
mod crash;
mod device_crash;
mod device_models;
mod device_volume;
mod disk_conformance;
mod disk_sizes;
mod faults;
mod file_redundancy;
mod flash_and_copies;
mod flash_log;
mod flash_log_simulation;
mod flash_simulation;
mod flash_speed;
mod group;
mod mirror;
mod mirror_disks;
mod mirror_disks_simulation;
mod mirror_repair;
mod mirror_resync;
mod mirror_simulation;
mod power_loss;
mod random_comparison;
mod rebalance;
mod rebalance_simulation;
mod regions;
mod saved_facts;
mod slow_disks;
mod space;
mod unit_slots;
mod units;
mod units_concurrency;
mod units_crash;
mod waiting;
mod write_back_mode;
mod write_back_simulation;
mod write_back_speed;

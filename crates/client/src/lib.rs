//! The cell's client, a static library in the Postgres extension: builds requests, owns the socket, decodes results,
//! and runs the cell's code on pages that Postgres has read (offload simulation, compression advisor). Renders AWR reports.
//!
//! Invariants: no function calls Postgres, blocks, or lets a panic cross the C boundary. A frame from the cell is
//! checked before the backend gets a pointer into the frame. `include/cellar_client.h` documents the C functions, which
//! are in [`ffi`]; all other modules are safe Rust.

pub mod batch;
pub mod connection;
pub mod ffi;
pub mod request;
pub mod simulation;

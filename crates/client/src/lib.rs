//! The cell's client, linked into the Postgres extension as a static library: request building, the socket, result
//! decoding, and the cell's own code over pages that Postgres has read (offload simulation, compression advisor).
//!
//! Invariants: nothing here calls Postgres, blocks, or lets a panic cross the C boundary; a frame from the cell is
//! checked before the backend is given a pointer into it. The C side is `include/cellar_client.h`, whose functions
//! are in [`ffi`]; all else is safe Rust.

pub mod batch;
pub mod connection;
pub mod ffi;
pub mod request;
pub mod simulation;

//! Names of objects, as Oracle forms them: the disk with number 3 of the cell `cell1` is the cell disk `CD_03_cell1` and the grid
//! disk `DG_CD_03_cell1` of the disk group `DG_cell1`.

pub fn cell_disk_name(number: u64, cell: &str) -> String {
    format!("CD_{number:02}_{cell}")
}

pub fn grid_disk_name(number: u64, cell: &str) -> String {
    format!("DG_{}", cell_disk_name(number, cell))
}

pub fn disk_group_name(cell: &str) -> String {
    format!("DG_{cell}")
}

pub fn flash_log_name(cell: &str) -> String {
    format!("{cell}_FLASHLOG")
}

pub fn flash_cache_name(cell: &str) -> String {
    format!("{cell}_FLASHCACHE")
}

//! A cell with a flash cache, on a real mount: random reads, writes, truncates and syncs of a file against a copy in memory,
//! with kills of the daemon, starts without flash, and a flash disk that is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FILE_BYTES_MAX: u64 = 3 << 20;
const OPERATIONS: usize = 80;

struct Cell {
    folder: tempfile::TempDir,
    port: u16,
    daemon: Option<Child>,
}

impl Cell {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let cell = Self { folder, port, daemon: None };
        for name in ["mount", "disk"] {
            fs::create_dir(cell.path(name)).unwrap();
        }
        File::create(cell.path("device")).unwrap().set_len(320 << 20).unwrap();
        cell
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the daemon. The cell disk follows a model, so that its pages are not read from the operating system's cache.
    fn start(&mut self, flash: Option<&str>) {
        let at = |name: &str| self.path(name).display().to_string();
        let flash = flash.map(|name| format!("flash_disks = [\"{}\"]\nflash_cache_size = \"192MiB\"\n", at(name)));
        let config = format!(
            "name = \"flash\"\nmount = \"{}\"\nsocket = \"{}\"\ncache_size = \"16MiB\"\n{}[metrics]\nlisten = \"{}\"\n\
             [disk_group]\nreserve_size = \"1MiB\"\ndisks = [\"{}\"]\nmodel = \"hdd-7k2\"\nmodel_time_scale = 0.001\n",
            at("mount"),
            at("cell.sock"),
            flash.unwrap_or_default(),
            self.port,
            at("disk")
        );
        fs::write(self.path("cell.toml"), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["cell", "--config"]).arg(self.path("cell.toml")).env_remove("NOTIFY_SOCKET");
        let mut daemon = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
        self.daemon = Some(daemon);
        let mut seen = Vec::new();
        let is_ready = |line: &String| {
            seen.push(line.clone());
            line.starts_with("cell flash ready")
        };
        let ready = lines.by_ref().map_while(Result::ok).find(is_ready);
        assert!(ready.is_some(), "the daemon exited before it was ready: {seen:?}");
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("{line}")));
    }

    fn end(&mut self, signal: &str) {
        let mut daemon = self.daemon.take().unwrap();
        Command::new("kill").args([signal, &daemon.id().to_string()]).status().unwrap();
        let status = daemon.wait().unwrap();
        assert_eq!(status.success(), signal == "-TERM", "{signal}: {status}");
    }

    fn metric(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: cell\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
    }

    /// Makes the kernel read the file from the cell again.
    fn forget(&self) {
        let file = format!("if={}", self.path("mount/file").display());
        assert!(
            Command::new("dd").args([&file, "iflag=nocache", "count=0", "status=none"]).status().unwrap().success()
        );
    }

    /// Reads the whole file page by page.
    fn check(&self, content: &[u8]) {
        self.forget();
        let file = File::open(self.path("mount/file")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), content.len() as u64);
        for (number, expected) in content.chunks(8192).enumerate() {
            let mut found = vec![0; expected.len()];
            file.read_exact_at(&mut found, number as u64 * 8192).unwrap();
            assert!(found == expected, "page {number}");
        }
    }
}

/// Values of CELL_FLASH_CACHE in the ioctl; `READ` changes nothing.
const DEFAULT: u64 = 0;
const KEEP: u64 = 1;
const NONE: u64 = 2;
const READ: u64 = u64::MAX;

/// Sends the ioctl `_IOWR(0xCE, 2, uint64_t[4])`: setting, cached bytes, hits and misses of a file.
fn flash_cache(path: &Path, setting: u64) -> std::io::Result<[u64; 4]> {
    let (file, mut numbers) = (File::open(path)?, [setting, 0, 0, 0]);
    // SAFETY: the command reads and writes the 32 bytes of `numbers`.
    match unsafe { libc::ioctl(file.as_raw_fd(), 0xC020_CE02_u64 as _, numbers.as_mut_ptr()) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(numbers),
    }
}

#[test]
fn segments_and_forks_of_a_relation_have_the_setting_of_its_first_segment() {
    let mut cell = Cell::new();
    cell.start(Some("flash"));
    let folder = cell.path("mount/base/5");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("100"), [1; 8192]).unwrap();
    assert_eq!(flash_cache(&folder.join("100"), NONE).unwrap()[0], DEFAULT);
    for (name, expected) in
        [("100.1", NONE), ("100_vm", NONE), ("1001", DEFAULT), ("100a.1", DEFAULT), ("101.1", DEFAULT)]
    {
        fs::write(folder.join(name), [1; 8192]).unwrap();
        assert_eq!(flash_cache(&folder.join(name), READ).unwrap()[0], expected, "{name}");
    }
    let refused = flash_cache(&folder.join("100"), 3).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    cell.end("-TERM");
    cell.start(None);
    assert_eq!(flash_cache(&folder.join("100"), KEEP).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    cell.end("-TERM");
}

impl Drop for Cell {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.end("-KILL");
        }
        let _ = Command::new("umount").args(["-l"]).arg(self.path("mount")).stderr(Stdio::null()).status();
    }
}

/// splitmix64
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }
}

/// Random operations on the file and on its copy in memory.
fn operate(cell: &Cell, content: &mut Vec<u8>, random: &mut Random) {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(cell.path("mount/file"));
    let file = file.unwrap();
    for _ in 0..OPERATIONS {
        let size = content.len() as u64;
        match random.below(10) {
            0..=3 => {
                let at = random.below((size + 50_000).min(FILE_BYTES_MAX));
                let limit = if random.below(5) == 0 { 200_000 } else { 20_000 };
                let length = 1 + random.below(limit);
                let data = vec![random.below(256) as u8; length as usize];
                file.write_all_at(&data, at).unwrap();
                content.resize(content.len().max((at + length) as usize), 0);
                content[at as usize..(at + length) as usize].copy_from_slice(&data);
            }
            4..=7 if size > 0 => {
                cell.forget();
                let at = random.below(size);
                let mut found = vec![0; (1 + random.below(60_000)).min(size - at) as usize];
                file.read_exact_at(&mut found, at).unwrap();
                assert!(found == content[at as usize..][..found.len()], "{} bytes at {at}", found.len());
            }
            8 => {
                let length = random.below((size + 30_000).min(FILE_BYTES_MAX));
                file.set_len(length).unwrap();
                content.resize(length as usize, 0);
            }
            _ => file.sync_all().unwrap(),
        }
    }
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn rounds(flash: &str, seed: u64) {
    let (mut cell, mut content, mut random) = (Cell::new(), Vec::new(), Random(seed));
    let mut hits = 0;
    for round in 0..6 {
        // The fourth start is without flash, and changes the file.
        let with_flash = round != 3;
        cell.start(with_flash.then_some(flash));
        if round > 0 {
            cell.check(&content);
        }
        operate(&cell, &mut content, &mut random);
        // Once to fill the cache, once to read what is in it.
        cell.check(&content);
        cell.check(&content);
        if with_flash {
            hits += cell.metric("cellar_flash_cache_hits_total");
        }
        cell.end(if round == 4 { "-TERM" } else { "-KILL" });
    }
    assert!(hits > 10, "{hits} reads were answered by flash");
}

#[test]
fn a_file_keeps_its_content_with_a_cache_in_a_directory_through_kills() {
    rounds("flash", 17);
}

#[test]
fn a_file_keeps_its_content_with_a_cache_on_a_device_through_kills() {
    rounds("device", 18);
}

#[test]
fn cached_pages_survive_a_restart_and_a_kill_but_not_a_lost_flash_disk() {
    let mut cell = Cell::new();
    cell.start(Some("flash"));
    let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 1000) as u8).collect();
    fs::write(cell.path("mount/file"), &content).unwrap();
    File::open(cell.path("mount/file")).unwrap().sync_all().unwrap();
    cell.check(&content);
    let cellcli = |command: &str| {
        let mut process = Command::new(env!("CARGO_BIN_EXE_cellar"));
        process.args(["cellcli", "-e", command]).env("CELLAR_CELL", cell.path("cell.toml"));
        String::from_utf8(process.output().unwrap().stdout).unwrap()
    };
    let listed = cellcli("list flashcache attributes name, size, status");
    assert_eq!(listed, "\t flash_FLASHCACHE\t 192M\t normal\n");
    let misses = cellcli("list metriccurrent where name = FC_IO_RQ_R_MISS and metricValue > 0");
    assert!(misses.contains("flash_FLASHCACHE"), "{misses}");
    wait_until("the cache is filled", || cell.metric("cellar_flash_cache_used_bytes") > 900_000);
    let listed =
        || cellcli("list flashcachecontent attributes name, cellFlashCache, objectNumber where cachedSize > 900K");
    assert_eq!(listed(), "\t file\t DEFAULT\n");
    assert_eq!(flash_cache(&cell.path("mount/file"), KEEP).unwrap()[0], DEFAULT);
    assert_eq!(listed(), "\t file\t KEEP\n");
    let read = cellcli("list flashcachecontent attributes name where missCount > 0 and cachedKeepSize > 900K");
    assert_eq!(read, "\t file\n");
    cell.end("-TERM");
    for signal in ["-KILL", "-TERM"] {
        cell.start(Some("flash"));
        assert!(cell.metric("cellar_flash_cache_used_bytes") > 900_000, "before {signal}");
        assert_eq!(flash_cache(&cell.path("mount/file"), READ).unwrap()[0], KEEP);
        cell.check(&content);
        assert!(cell.metric("cellar_flash_cache_hits_total") > 0);
        cell.end(signal);
    }
    fs::remove_dir_all(cell.path("flash")).unwrap();
    // Looks like a device that is not mounted: the cell works without flash cache until a start without flash disks.
    for flash in [Some("flash"), Some("flash"), None] {
        cell.start(flash);
        cell.check(&content);
        if flash.is_some() {
            assert_eq!(cell.metric("cellar_flash_cache_online"), 0);
        }
        cell.end("-TERM");
    }
    cell.start(Some("flash"));
    assert_eq!(cell.metric("cellar_flash_cache_used_bytes"), 0);
    cell.check(&content);
    cell.end("-TERM");
}

//! Tests of the daemon as an operator uses it: start, stop, crash, restart, status, logs.

use cellar_client::connection::{Connection, Event};
use cellar_client::request::RequestBuilder;
use cellar_format::postgres::{Align, Width};
use cellar_format::wire::{Attribute, BlockRange, FileIoQuery, Hello, Missing, expr};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

struct Cell {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
    notify_socket: Option<String>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Cell {
    fn new() -> Self {
        Self::with_disk2(None)
    }

    /// Creates a cell whose second disk is elsewhere.
    fn with_disk2(disk2: Option<PathBuf>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["mount", "disk1", "disk2"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let cell = Self { folder, daemon: None, notify_socket: None, log: Arc::default() };
        let at = |name: &str| cell.path(name).display().to_string();
        let (mount, disk1) = (at("mount"), at("disk1"));
        let disk2 = disk2.map_or_else(|| at("disk2"), |path| path.display().to_string());
        let config = format!(
            "name = \"test\"\nmount = \"{mount}\"\ncache_size = \"64MiB\"\n\
             [disk_group]\nau_size = \"1MiB\"\nreserve_size = \"32MiB\"\ndisks = [\"{disk1}\", \"{disk2}\"]\n"
        );
        fs::write(cell.path("cell.toml"), config).unwrap();
        cell
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["cell", "--log-level", "warn", "--config"]).arg(self.path("cell.toml"));
        match &self.notify_socket {
            Some(socket) => command.env("NOTIFY_SOCKET", socket),
            None => command.env_remove("NOTIFY_SOCKET"),
        };
        command
    }

    /// Starts the daemon and waits until it is ready. Later log lines are collected in `log`.
    fn start(&mut self) {
        let mut daemon = self.command().stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
        self.daemon = Some(daemon);
        let ready = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("cell test ready: mounted on "));
        assert!(ready.is_some(), "the daemon exited before it was ready");
        let log = self.log.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                println!("{line}");
                log.lock().unwrap().push(line);
            }
        });
    }

    fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Stops the daemon with SIGTERM and returns its exit code.
    fn stop(&mut self) -> Option<i32> {
        let mut daemon = self.daemon.take().unwrap();
        Command::new("kill").arg(daemon.id().to_string()).status().unwrap();
        daemon.wait().unwrap().code()
    }

    fn signal(&self, name: &str) {
        let pid = self.daemon.as_ref().unwrap().id();
        assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
    }

    /// Returns every folder and file below the cell's folder, except below the mount, with the content of files.
    fn snapshot(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path == self.path("mount") || path.ends_with("cell.sock") {
                    continue;
                }
                found.insert(path.clone(), fs::read(&path).ok());
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        found
    }

    fn is_mounted(&self) -> bool {
        let mount = self.path("mount");
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains(mount.to_str().unwrap())
    }
}

/// A request to scan a table with two int4 columns for rows without NULLs.
fn scan_request(file: &str) -> RequestBuilder {
    let mut request = RequestBuilder::default();
    request.file(file, 131_072, false, 6);
    for _ in 0..2 {
        let (width, align) = (Width::Fixed(4), Align::Int);
        let missing = Missing::Null;
        request.attribute(Attribute { type_oid: 23, typmod: -1, width, align, by_value: true, missing });
    }
    for column in [2, 1] {
        expr::encode_column(&mut request.program, column);
        expr::encode_is_null(&mut request.program, false);
        request.qual_end();
    }
    request
}

/// Scans blocks and waits for the end of the range.
fn scan(connection: &mut Connection, request: &RequestBuilder, range: BlockRange) {
    connection.scan_open(request.encode());
    connection.scan_range(range);
    loop {
        match connection.next_event() {
            Event::RangeDone(_) => return,
            Event::Failed(error) => panic!("{error:?}"),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.kill();
        }
        while self.is_mounted() {
            let status = Command::new("fusermount3").args(["-u", "-z"]).arg(self.path("mount")).status();
            if !status.is_ok_and(|status| status.success()) {
                break;
            }
        }
    }
}

/// Receives notifications as systemd does.
struct ServiceManager(UnixDatagram);

impl ServiceManager {
    fn new(socket: &str) -> Self {
        let address = match socket.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).unwrap(),
            None => SocketAddr::from_pathname(socket).unwrap(),
        };
        Self(UnixDatagram::bind_addr(&address).unwrap())
    }

    /// Returns the next notification, or None if none arrives in time.
    fn next(&self, patience: Duration) -> Option<String> {
        let mut bytes = [0; 4096];
        self.0.set_read_timeout(Some(patience)).unwrap();
        let length = self.0.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
    }

    /// Returns the notifications up to the first that contains the line `last`.
    fn until(&self, last: &str) -> Vec<String> {
        let mut received = Vec::new();
        while !received.last().is_some_and(|text: &String| text.lines().any(|line| line == last)) {
            let next = self.next(Duration::from_secs(30));
            received.push(next.unwrap_or_else(|| panic!("{last} is missing after {received:?}")));
        }
        received
    }
}

/// Continues a stopped process, also if an assertion fails.
struct Stopped<'a>(&'a Cell);

impl<'a> Stopped<'a> {
    fn new(cell: &'a Cell) -> Self {
        cell.signal("-STOP");
        Self(cell)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal("-CONT");
    }
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_stopped_cell_unmounts_and_keeps_its_files() {
    let mut cell = Cell::new();
    cell.start();
    fs::write(cell.path("mount/a"), "kept").unwrap();
    assert_eq!(cell.stop(), Some(0));
    assert!(!cell.is_mounted());
    assert!(!cell.path("mount/a").exists());
    cell.start();
    assert_eq!(fs::read_to_string(cell.path("mount/a")).unwrap(), "kept", "a clean stop syncs all files");
    assert_eq!(cell.stop(), Some(0));
}

#[test]
fn a_killed_cell_restarts_on_its_stale_mount_with_all_synced_data() {
    let mut cell = Cell::new();
    for round in 0..3_u8 {
        cell.start();
        let name = |number: u8| cell.path(&format!("mount/{number}"));
        for earlier in 0..round {
            let bytes = fs::read(name(earlier)).unwrap();
            assert!(bytes == vec![earlier + 1; 2_500_000], "file {earlier} in round {round}");
        }
        let temporary = cell.path("mount/temporary");
        let file = File::create(&temporary).unwrap();
        file.write_all_at(&vec![round + 1; 2_500_000], 0).unwrap();
        file.sync_all().unwrap();
        fs::rename(&temporary, name(round)).unwrap();
        File::open(cell.path("mount")).unwrap().sync_all().unwrap();
        fs::write(cell.path("mount/unsynced"), vec![99; 1_000_000]).unwrap();
        let held_open = File::open(name(round)).unwrap();
        cell.kill();
        fs::write(cell.path("mount/late"), "x").expect_err("the mount is stale after the daemon was killed");
        drop(held_open);
    }
    cell.start();
    if let Ok(bytes) = fs::read(cell.path("mount/unsynced")) {
        assert!(
            bytes.iter().all(|byte| *byte == 0 || *byte == 99),
            "unsynced data may be lost, but is never another file's"
        );
    }
    assert_eq!(cell.stop(), Some(0));
}

#[test]
fn the_service_manager_is_notified_when_the_mount_serves_and_when_the_cell_stops() {
    let mut cell = Cell::new();
    let path = cell.path("notify").display().to_string();
    for socket in [path, format!("@cellar-test-{}", std::process::id())] {
        let manager = ServiceManager::new(&socket);
        cell.notify_socket = Some(socket);
        cell.daemon = Some(cell.command().spawn().unwrap());
        let starting = manager.until("READY=1");
        assert!(cell.is_mounted());
        fs::write(cell.path("mount/a"), "x").unwrap();
        let hello = Hello { backend_pid: 1, database: 5, system_identifier: 7, incarnation: 9 };
        Connection::open(&cell.path("disk1/cell.sock"), hello).unwrap();
        let (ready, before) = starting.split_last().unwrap();
        assert_eq!(*ready, format!("READY=1\nSTATUS=mounted on {}", cell.path("mount").display()));
        assert!(before.iter().all(|text| text.starts_with("STATUS=")) && !before.is_empty(), "{before:?}");
        assert_eq!(manager.next(Duration::from_millis(100)), None);
        assert_eq!(cell.stop(), Some(0));
        manager.until("STOPPING=1");
        assert_eq!(manager.next(Duration::from_millis(100)), None);
    }
    cell.notify_socket = Some(cell.path("missing").display().to_string());
    cell.start();
    assert_eq!(cell.stop(), Some(0), "the cell runs without its service manager's socket");
}

/// The second disk of the cell is a folder on the mount of another cell. While that cell is stopped, the disk hangs.
#[test]
fn the_service_manager_is_notified_only_after_a_slow_recovery() {
    let mut slow_disk = Cell::new();
    slow_disk.start();
    let disk2 = slow_disk.path("mount/disk2");
    fs::create_dir(&disk2).unwrap();
    let mut cell = Cell::with_disk2(Some(disk2));
    cell.start();
    let file = File::create(cell.path("mount/a")).unwrap();
    file.write_all_at(&vec![1; 3 << 20], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    cell.kill();

    let socket = cell.path("notify").display().to_string();
    let manager = ServiceManager::new(&socket);
    cell.notify_socket = Some(socket);
    {
        let _stopped = Stopped::new(&slow_disk);
        cell.daemon = Some(cell.command().spawn().unwrap());
        assert_eq!(manager.next(Duration::from_secs(30)).as_deref(), Some("STATUS=opening the cell disks"));
        assert_eq!(manager.next(Duration::from_millis(700)), None, "the cell is not ready during the recovery");
    }
    manager.until("READY=1");
    assert!(cell.is_mounted());
    assert!(fs::read(cell.path("mount/a")).unwrap() == vec![1; 3 << 20]);
    assert_eq!(cell.stop(), Some(0));
    assert_eq!(slow_disk.stop(), Some(0));
}

#[test]
fn a_second_daemon_fails_and_changes_nothing() {
    let mut cell = Cell::new();
    cell.start();
    fs::write(cell.path("mount/a"), "x").unwrap();
    let second = cell.command().output().unwrap();
    assert_eq!(second.status.code(), Some(3), "{}", message(&second));
    assert!(message(&second).contains("in use by another cell daemon"), "{}", message(&second));
    assert_eq!(fs::read_to_string(cell.path("mount/a")).unwrap(), "x");
    assert_eq!(cell.stop(), Some(0));
}

#[test]
fn a_stop_waits_for_users_of_the_mount_and_an_unmount_stops_the_daemon() {
    let mut cell = Cell::new();
    cell.start();
    fs::write(cell.path("mount/a"), "x").unwrap();
    let user = File::open(cell.path("mount/a")).unwrap();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        drop(user);
    });
    let started = Instant::now();
    assert_eq!(cell.stop(), Some(0));
    assert!(started.elapsed() >= Duration::from_millis(600));
    assert!(!cell.is_mounted());
    release.join().unwrap();

    cell.start();
    let unmounted = Command::new("fusermount3").arg("-u").arg(cell.path("mount")).status().unwrap();
    assert!(unmounted.success());
    assert_eq!(cell.daemon.take().unwrap().wait().unwrap().code(), Some(0));
}

#[test]
fn a_cell_does_not_mount_over_the_mount_of_another_cell() {
    let mut cell = Cell::new();
    cell.start();
    fs::write(cell.path("mount/a"), "kept").unwrap();
    let other = Cell::new();
    let config = fs::read_to_string(other.path("cell.toml")).unwrap();
    let [own, taken] = [&other, &cell].map(|cell| cell.path("mount").display().to_string());
    fs::write(other.path("cell.toml"), config.replace(&own, &taken)).unwrap();
    let refused = other.command().output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", message(&refused));
    assert!(message(&refused).contains("is in use by another cell"), "{}", message(&refused));
    assert_eq!(fs::read_to_string(cell.path("mount/a")).unwrap(), "kept");
    assert_eq!(cell.stop(), Some(0));
}

#[test]
fn a_stop_ignores_a_detached_mount_and_leaves_other_mounts_at_the_path() {
    let mut cell = Cell::new();
    cell.start();
    fs::write(cell.path("mount/a"), "kept").unwrap();
    let user = File::open(cell.path("mount/a")).unwrap();
    assert!(Command::new("fusermount3").args(["-u", "-z"]).arg(cell.path("mount")).status().unwrap().success());
    assert_eq!(cell.stop(), Some(0), "the mount of the daemon was detached, and a process uses it");
    drop(user);
    if !is_root() {
        return;
    }
    cell.start();
    assert_eq!(fs::read_to_string(cell.path("mount/a")).unwrap(), "kept");
    let mount = |program: &str, arguments: &[&str]| {
        assert!(Command::new(program).args(arguments).arg(cell.path("mount")).status().unwrap().success());
    };
    mount("mount", &["-t", "tmpfs", "-o", "size=64k", "above"]);
    let pid = cell.daemon.as_ref().unwrap().id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(500));
    fs::write(cell.path("mount/above"), "x").unwrap();
    mount("umount", &[]);
    assert_eq!(cell.daemon.take().unwrap().wait().unwrap().code(), Some(0));
    assert!(!cell.is_mounted());
}

#[test]
fn errors_have_different_exit_codes() {
    let mut cell = Cell::new();
    cell.start();
    assert_eq!(cell.stop(), Some(0));
    let config = cell.path("cell.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("disk2", "disk3")).unwrap();
    let foreign = cell.command().output().unwrap();
    assert_eq!(foreign.status.code(), Some(4), "{}", message(&foreign));
    fs::write(&config, format!("colour = 1\n{text}")).unwrap();
    let unknown = cell.command().output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(message(&unknown).contains("colour"), "{}", message(&unknown));
    fs::write(&config, &text).unwrap();
    fs::remove_dir(cell.path("mount")).unwrap();
    let no_mount = cell.command().output().unwrap();
    assert_eq!(no_mount.status.code(), Some(2));
    assert!(message(&no_mount).contains("create the directory"), "{}", message(&no_mount));
    fs::create_dir(cell.path("mount")).unwrap();
    let socket = cell.path("cell.sock").display().to_string();
    fs::write(&config, format!("socket = \"{socket}\"\n{text}redundancy = \"normal\"\n")).unwrap();
    let checked = cell.command().arg("--check").output().unwrap();
    assert_eq!(checked.status.code(), Some(2), "{}", message(&checked));
    assert!(message(&checked).contains("has redundancy \"external\""), "{}", message(&checked));
    let unsupported = cell.command().output().unwrap();
    assert_eq!(unsupported.status.code(), Some(2), "{}", message(&unsupported));
}

#[test]
fn a_cell_refuses_the_socket_of_another_cell_and_a_file_that_is_not_a_socket() {
    let (mut first, mut second) = (Cell::new(), Cell::new());
    let text = fs::read_to_string(second.path("cell.toml")).unwrap();
    let name_socket = |cell: &Cell, socket: &Path| {
        fs::write(cell.path("cell.toml"), format!("socket = \"{}\"\n{text}", socket.display())).unwrap();
    };
    first.start();
    let socket = first.path("disk1/cell.sock");
    name_socket(&second, &socket);
    let superblock = |disk: &str| second.path(disk).join("superblock").exists();
    for arguments in [&[][..], &["--check"]] {
        let refused = second.command().args(arguments).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{}", message(&refused));
        assert!(message(&refused).contains("another process uses the socket"), "{}", message(&refused));
        assert!(!superblock("disk1") && !superblock("disk2"), "no group was formed");
    }
    assert!(socket.exists());
    assert!(cellar_cell::status::query_metrics(&socket).is_ok(), "the first cell still answers");
    let file = second.path("notes");
    fs::write(&file, "text").unwrap();
    name_socket(&second, &file);
    let refused = second.command().output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", message(&refused));
    assert!(message(&refused).contains("is not a socket"), "{}", message(&refused));
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    // A killed daemon leaves its socket.
    let own = second.path("cell.sock");
    name_socket(&second, &own);
    second.start();
    second.kill();
    assert!(own.exists());
    second.start();
    assert_eq!(second.stop(), Some(0));
    assert_eq!(first.stop(), Some(0));
}

#[test]
fn a_check_of_a_new_group_finds_what_a_start_refuses() {
    let cell = Cell::new();
    let text = fs::read_to_string(cell.path("cell.toml")).unwrap();
    let (head, _) = text.split_once("disks = ").unwrap();
    let at = |name: &str| cell.path(name).display().to_string();
    let check_refused = |group: &str, expected: &str| {
        let config = format!("socket = \"{}\"\n{head}{group}\n", at("cell.sock"));
        fs::write(cell.path("cell.toml"), config).unwrap();
        for arguments in [&["--check"][..], &[]] {
            let refused = cell.command().args(arguments).output().unwrap();
            assert!(message(&refused).contains(expected), "{arguments:?}: {}", message(&refused));
            assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {}", message(&refused));
        }
    };
    let disks = |first: &str, second: &str| {
        let disk = |name: &str, group: &str| format!("{{ path = \"{}\", failure_group = \"{group}\" }}", at(name));
        format!("redundancy = \"normal\"\ndisks = [{}, {}]", disk("disk1", first), disk("disk2", second))
    };
    check_refused(&disks("a", "a"), "2 copies need 2 failure groups, but the disks are in 1");
    check_refused(&disks("a", ""), "failure group \"\" is invalid");
    let three_copies = disks("a", "b") + "\nfile_redundancy = { wal = \"high\" }";
    check_refused(&three_copies, "redundancy of file types: 3 copies need 3 failure groups");
    check_refused(&format!("disks = [\"{0}\", \"{0}/inner\"]", at("disk1")), "is below cell disk");
    assert!(!cell.path("disk1/inner").exists());
}

#[test]
fn a_group_of_an_earlier_release_with_a_disk_below_another_one_starts() {
    let mut cell = Cell::new();
    cell.start();
    assert_eq!(cell.stop(), Some(0));
    let (config, text) = (cell.path("cell.toml"), fs::read_to_string(cell.path("cell.toml")).unwrap());
    fs::rename(cell.path("disk2"), cell.path("disk1/inner")).unwrap();
    fs::write(&config, text.replace("disk2", "disk1/inner")).unwrap();
    let checked = cell.command().arg("--check").output().unwrap();
    assert!(message(&checked).contains("is below cell disk"), "{}", message(&checked));
    assert_eq!(checked.status.code(), Some(0), "{}", message(&checked));
    cell.start();
    assert_eq!(cell.stop(), Some(0));
}

#[test]
fn a_disk_that_a_stopped_cell_cannot_add_is_not_added_to_the_configuration() {
    let cell = Cell::new();
    let (config, before) = (cell.path("cell.toml"), fs::read_to_string(cell.path("cell.toml")).unwrap());
    fs::create_dir(cell.path("disk3")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    let output = command.args(["group", "add"]).arg(cell.path("disk3")).arg("--config").arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    assert!(message(&output).contains("could not connect to a cell"), "{}", message(&output));
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
}

#[test]
fn a_check_changes_nothing() {
    let mut cell = Cell::new();
    let check = |cell: &Cell| {
        let before = cell.snapshot();
        let output = cell.command().arg("--check").output().unwrap();
        assert!(cell.snapshot() == before, "the check changed the disks");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &message(&output))
    };
    let check_finds = |cell: &Cell, code: i32, expected: &str| {
        let (found, text) = check(cell);
        assert_eq!(found, Some(code), "{text}");
        assert!(text.contains(expected), "{expected:?} is not in {text:?}");
    };
    check_finds(&cell, 0, "a start forms a new disk group on 2 disks");
    let total = |text: &str| text.split_once("MiB free").unwrap().0.rsplit_once(" of ").unwrap().1.to_owned();
    let total_of_present_disks = total(&check(&cell).1);

    let config = cell.path("cell.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("disk2", "disk3")).unwrap();
    check_finds(&cell, 0, "disk3 does not exist; a start creates the directory");
    assert_eq!(total(&check(&cell).1), total_of_present_disks, "the directory will be on the same file system");
    fs::write(&config, text.replace("\"32MiB\"", "\"4000TiB\"")).unwrap();
    check_finds(&cell, 0, "files can use only what is left; lower reserve_size");
    fs::write(&config, text.replace("/disk2", "/missing/disk2")).unwrap();
    check_finds(&cell, 4, "could not open cell disk");
    fs::write(&config, &text).unwrap();
    fs::write(cell.path("disk2/foreign"), "x").unwrap();
    check_finds(&cell, 4, "is neither empty nor a cell disk");
    fs::remove_file(cell.path("disk2/foreign")).unwrap();

    cell.start();
    fs::write(cell.path("mount/a"), "x").unwrap();
    File::open(cell.path("mount/a")).unwrap().sync_all().unwrap();
    File::open(cell.path("mount")).unwrap().sync_all().unwrap();
    let running = cell.command().arg("--check").output().unwrap();
    assert_eq!(running.status.code(), Some(3), "{}", message(&running));
    // A crash leaves metadata that a start repairs.
    cell.kill();
    check_finds(&cell, 0, ": disk group ");
    fs::write(&config, text.replace("disk2", "disk3")).unwrap();
    check_finds(&cell, 4, "is not among the configured ones");
    fs::write(&config, &text).unwrap();
    cell.start();
    assert_eq!(fs::read_to_string(cell.path("mount/a")).unwrap(), "x");
    assert_eq!(cell.stop(), Some(0));
}

#[test]
fn status_describes_a_running_cell_and_fails_without_an_answer() {
    let mut cell = Cell::new();
    let status = |cell: &Cell, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["cell", "status", "--config"]).arg(cell.path("cell.toml")).args(more).output().unwrap()
    };
    let gone = status(&cell, &[]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(message(&gone).contains("could not connect to a cell at"), "{}", message(&gone));

    cell.start();
    let text = status(&cell, &[]);
    assert!(text.status.success(), "{}", message(&text));
    let text = String::from_utf8(text.stdout).unwrap();
    for part in [
        "cell test, version ",
        "disk1: ",
        "free, reserve 32 MiB\n",
        "page cache  0 bytes of 64 MiB filled",
        "groups: 0 bytes of 128 MiB",
        "0 Smart Scans",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&status(&cell, &["--json"]).stdout).unwrap();
    let pid = cell.daemon.as_ref().unwrap().id();
    assert_eq!(json["pid"], pid);
    assert_eq!(json["mount"], cell.path("mount").to_str().unwrap());
    assert_eq!(json["disks"].as_array().unwrap().len(), 2);
    assert!(json["disks"][1]["available_bytes"].as_u64().unwrap() > 0);
    let reserve = ["reserve_bytes", "reserve_free_bytes"].map(|key| json["disks"][1][key].as_u64());
    assert_eq!(reserve, [Some(32 << 20); 2]);
    assert_eq!(json["memory"]["limit_bytes"], 576 << 20);
    assert_eq!(json["memory"]["kinds"]["page_cache"]["limit_bytes"], 64 << 20);

    let mut inspect = Command::new(env!("CARGO_BIN_EXE_cellar"));
    let wrong = inspect.args(["inspect", "file", "nothing", "--config"]).arg(cell.path("cell.toml")).output().unwrap();
    assert_eq!(wrong.status.code(), Some(1), "{}", message(&wrong));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(*cell.log.lock().unwrap(), Vec::<String>::new(), "a mistyped name is no warning in the cell's log");

    let signal = |name: &str| Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    signal("-STOP");
    let silent = status(&cell, &["--json"]);
    signal("-CONT");
    assert_eq!(silent.status.code(), Some(1));
    assert!(message(&silent).contains("no answer from the cell at"), "{}", message(&silent));
    assert_eq!(cell.stop(), Some(0));
}

#[test]
fn slow_smart_scans_are_logged_with_their_session_and_relation() {
    let mut cell = Cell::new();
    let config = cell.path("cell.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("slow_scan_log_ms = 0\n{text}")).unwrap();
    cell.start();
    // All-zero pages are valid pages without rows.
    fs::write(cell.path("mount/table"), vec![0; 300 * 8192]).unwrap();
    let hello = Hello { backend_pid: 1, database: 5, system_identifier: 7, incarnation: 9 };
    let mut connection = Connection::open(&cell.path("disk1/cell.sock"), hello).unwrap();
    let (request, range) = (scan_request("table"), BlockRange { first: 0, end: 300 });
    scan(&mut connection, &request, range);
    // Opening the next scan logs the previous one; the end of the session logs the last one.
    scan(&mut connection, &request, range);
    drop(connection);
    let deadline = Instant::now() + Duration::from_secs(10);
    let slow = loop {
        let log = cell.log.lock().unwrap().clone();
        let slow: Vec<_> = log.iter().filter(|line| line.contains("slow Smart Scan: ")).cloned().collect();
        if slow.len() == 2 {
            break slow;
        }
        assert!(Instant::now() < deadline, "{log:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(cell.stop(), Some(0));
    let context = format!("[session 1, process {}, database 5, file table] ", std::process::id());
    for (line, (excluded, saved)) in slow.into_iter().zip([(0, 0), (3, 300 * 8192)]) {
        assert!(line.contains(&context), "{context:?} is not in {line:?}");
        for part in [
            "file table, 300 blocks, predicate columns: 1, 2, 0 rows scanned, 0 rows returned, elapsed ",
            &format!(" ms, {excluded} regions excluded, {saved} bytes saved by the storage index"),
        ] {
            assert!(line.contains(part), "{part:?} is not in {line:?}");
        }
    }
}

/// User and group id of an account without rights (`nobody` in Debian).
const ORDINARY_USER: u32 = 65534;

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Starts a process of an ordinary user that has a file open until it is killed.
fn holder(path: &Path) -> Child {
    let mut command = Command::new("sleep");
    command.arg("600").stdin(File::open(path).unwrap());
    if is_root() {
        command.uid(ORDINARY_USER);
    }
    command.spawn().unwrap()
}

fn end(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Checks that the cell serves reads, and refuses every kind of change.
fn assert_refuses_changes(cell: &Cell) {
    let at = |name: &str| cell.path("mount").join(name);
    assert_eq!(fs::read_to_string(at("a")).unwrap(), "old");
    let attempts = [
        ("write", fs::OpenOptions::new().write(true).open(at("a")).unwrap().write_all_at(b"new", 0)),
        ("truncate", fs::OpenOptions::new().write(true).open(at("a")).unwrap().set_len(1)),
        ("chmod", fs::set_permissions(at("a"), fs::Permissions::from_mode(0o600))),
        ("create", File::create_new(at("b")).map(drop)),
        ("mkdir", fs::create_dir(at("c"))),
        ("link", fs::hard_link(at("a"), at("d"))),
        ("symlink", std::os::unix::fs::symlink("a", at("e"))),
        ("rename", fs::rename(at("a"), at("f"))),
        ("unlink", fs::remove_file(at("a"))),
        ("rmdir", fs::remove_dir(at("folder"))),
    ];
    for (attempt, result) in attempts {
        assert_eq!(result.map_err(|error| error.raw_os_error()), Err(Some(libc::EBUSY)), "{attempt}");
    }
    assert_eq!(fs::read_to_string(at("a")).unwrap(), "old");
    File::open(at("a")).unwrap().sync_all().expect("a sync changes nothing");
}

#[test]
fn changes_are_refused_while_a_process_has_a_file_of_a_previous_mount_open() {
    let mut cell = Cell::new();
    let file = cell.path("mount/a");
    cell.start();
    fs::write(&file, "old").unwrap();
    fs::create_dir(cell.path("mount/folder")).unwrap();
    File::open(cell.path("mount")).unwrap().sync_all().unwrap();
    let reader = holder(&file);
    cell.kill();
    cell.start();
    assert_refuses_changes(&cell);
    let refusal = format!("refusing changes of files: process {} (sleep) has files", reader.id());
    let deadline = Instant::now() + Duration::from_secs(20);
    while !cell.log.lock().unwrap().iter().any(|line| line.contains(&refusal)) {
        assert!(Instant::now() < deadline, "{refusal:?} is not in {:?}", cell.log.lock().unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = holder(&file);
    end(reader);
    fs::write(&file, "new").expect("the first change after the exit of the process succeeds");
    fs::write(&file, "old").unwrap();

    // A mount that was detached is in no list of mounts.
    assert!(Command::new("fusermount3").args(["-u", "-z"]).arg(cell.path("mount")).status().unwrap().success());
    cell.kill();
    cell.start();
    assert_refuses_changes(&cell);
    // The record of the mount survives a further daemon.
    cell.kill();
    cell.start();
    assert_refuses_changes(&cell);
    end(second);
    fs::write(&file, "new").expect("the first change after the exit of the process succeeds");

    // A directory of the previous mount as working directory does not count.
    let mut elsewhere = Command::new("sleep").arg("600").current_dir(cell.path("mount/folder")).spawn().unwrap();
    cell.kill();
    cell.start();
    fs::write(&file, "newer").unwrap();
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
    assert_eq!(cell.stop(), Some(0));
}

/// Threads that look up and create files on the mount of a cell until `stop` is called.
struct Lookups {
    is_stopping: Arc<AtomicBool>,
    /// Each with the number of calls that have succeeded.
    threads: Vec<(JoinHandle<()>, Arc<AtomicUsize>)>,
}

impl Lookups {
    /// Looks up the existing file `a`, and creates and removes other files. Each error must be one of a stale mount: ENOENT
    /// comes from the directory below the mount.
    fn start(cell: &Cell) -> Self {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let run = |work: fn(&Path, u64) -> std::io::Result<()>| {
            let succeeded = Arc::new(AtomicUsize::new(0));
            let (mount, is_stopping, counter) = (cell.path("mount"), is_stopping.clone(), succeeded.clone());
            let thread = std::thread::spawn(move || {
                for number in 0.. {
                    if is_stopping.load(Ordering::Relaxed) {
                        break;
                    }
                    match work(&mount, number) {
                        Ok(()) => _ = counter.fetch_add(1, Ordering::Relaxed),
                        Err(error) => assert_ne!(error.kind(), ErrorKind::NotFound, "a lookup left the mount: {error}"),
                    }
                }
            });
            (thread, succeeded)
        };
        let look_up = run(|mount, _| fs::metadata(mount.join("a")).map(drop));
        let create = run(|mount, number| {
            let name = mount.join(format!("created{number}"));
            File::create(&name)?;
            // A crash may have lost the file.
            let _ = fs::remove_file(&name);
            Ok(())
        });
        Self { is_stopping, threads: vec![look_up, create] }
    }

    /// Waits until a call of each thread has succeeded since the beginning of the wait.
    fn wait(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        for (thread, succeeded) in &self.threads {
            let before = succeeded.load(Ordering::Relaxed);
            while !thread.is_finished() && succeeded.load(Ordering::Relaxed) == before {
                assert!(Instant::now() < deadline, "no call succeeds");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn stop(self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|(thread, _)| thread.join().unwrap());
    }
}

/// The socket of the Smart Scan server is on the mount of another cell. While that cell is stopped, the new daemon waits
/// between the opening of its disks and its mount.
#[test]
fn no_lookup_reaches_the_directory_below_while_a_daemon_replaces_a_stale_mount() {
    let mut slow = Cell::new();
    slow.start();
    let mut cell = Cell::new();
    let config = cell.path("cell.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("socket = \"{}\"\n{text}", slow.path("mount/cell.sock").display())).unwrap();
    cell.start();
    fs::write(cell.path("mount/a"), "kept").unwrap();
    File::open(cell.path("mount/a")).unwrap().sync_all().unwrap();
    File::open(cell.path("mount")).unwrap().sync_all().unwrap();
    let socket = cell.path("notify").display().to_string();
    let manager = ServiceManager::new(&socket);
    cell.notify_socket = Some(socket);
    let lookups = Lookups::start(&cell);
    for _ in 0..3 {
        lookups.wait();
        cell.kill();
        {
            let _stopped = Stopped::new(&slow);
            cell.daemon = Some(cell.command().spawn().unwrap());
            assert_eq!(manager.next(Duration::from_secs(30)).as_deref(), Some("STATUS=opening the cell disks"));
            assert_eq!(manager.next(Duration::from_millis(700)), None, "the daemon waits for the folder of the socket");
        }
        manager.until("READY=1");
        assert_eq!(fs::read_to_string(cell.path("mount/a")).unwrap(), "kept");
    }
    lookups.wait();
    lookups.stop();
    assert_eq!(cell.stop(), Some(0));
    assert!(!cell.is_mounted(), "no stale mount remains");
    let below = fs::read_dir(cell.path("mount")).unwrap();
    assert_eq!(below.count(), 0, "no file was created in the directory below the mount");
    assert_eq!(slow.stop(), Some(0));
}

#[test]
fn each_run_of_the_daemon_has_another_instance() {
    let mut cell = Cell::new();
    let hello = Hello { backend_pid: 1, database: 5, system_identifier: 7, incarnation: 9 };
    let mut instances = Vec::new();
    for _ in 0..2 {
        cell.start();
        let mut connection = Connection::open(&cell.path("disk1/cell.sock"), hello.clone()).unwrap();
        while connection.instance().is_none() {
            let event = connection.next_event();
            assert!(matches!(event, Event::WaitReadable | Event::WaitWritable | Event::WaitConnect), "{event:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        instances.extend(connection.instance());
        drop(connection);
        assert_eq!(cell.stop(), Some(0));
    }
    assert!(instances[0] != 0 && instances[0] != instances[1], "{instances:?}");
}

/// Runs a function in a thread with the effective ids of an ordinary user.
fn as_nobody<T: Send>(groups: &[u32], function: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let unchanged = -1_i64;
            let id = i64::from(ORDINARY_USER);
            // SAFETY: the raw system calls change only the ids of this thread, which ends with the function.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, unchanged, id, unchanged), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, unchanged, id, unchanged), 0);
            }
            function()
        });
        thread.join().unwrap()
    })
}

/// The answers to one request of each kind that names a file: "done", or the SQLSTATE of the error.
fn answers(cell: &Cell, groups: &[u32]) -> [String; 5] {
    let request = scan_request("folder/table");
    let range = BlockRange { first: 0, end: 128 };
    let hello = Hello { backend_pid: 1, database: 5, system_identifier: 7, incarnation: 9 };
    let blocks = || request.blocks(range);
    type Send<'a> = &'a (dyn Fn(&mut Connection) + Sync);
    let requests: [Send<'_>; 5] = [
        &|connection| {
            connection.scan_open(request.encode());
            connection.scan_range(range);
        },
        &|connection| connection.query_units(blocks()),
        &|connection| connection.query_due_units(blocks(), 1, 0),
        &|connection| connection.query_file_io(FileIoQuery { roots: vec!["folder".into()] }),
        &|connection| connection.compress(blocks(), 0),
    ];
    as_nobody(groups, || {
        requests.map(|send| {
            let mut connection = Connection::open(&cell.path("disk1/cell.sock"), hello.clone()).unwrap();
            send(&mut connection);
            loop {
                match connection.next_event() {
                    Event::Failed(error) => {
                        assert_eq!(error.message, "permission denied for a file on the cell");
                        assert!(error.detail.contains("User id 65534 is not permitted to"), "{error:?}");
                        break error.sqlstate;
                    }
                    Event::RangeDone(_)
                    | Event::Units(_)
                    | Event::DueUnits(_)
                    | Event::FileIo(_)
                    | Event::FileTypeIo(_)
                    | Event::CompressDone(_) => break "done".to_owned(),
                    _ => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        })
    })
}

#[test]
fn without_a_mount_lookups_of_an_ordinary_user_fail_with_eacces() {
    if !is_root() {
        return;
    }
    let new_cell = || {
        let cell = Cell::new();
        for (folder, mode) in [(cell.path(""), 0o755), (cell.path("mount"), 0o777)] {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        cell
    };
    let look_up = |cell: &Cell| as_nobody(&[], || fs::metadata(cell.path("mount/a")).unwrap_err().kind());
    let create = |cell: &Cell| as_nobody(&[], || File::create(cell.path("mount/b")).unwrap_err().kind());
    let mut cell = new_cell();
    assert_eq!(look_up(&cell), ErrorKind::NotFound);
    cell.start();
    fs::write(cell.path("mount/a"), "kept").unwrap();
    assert_eq!(cell.stop(), Some(0));
    assert_eq!((look_up(&cell), create(&cell)), (ErrorKind::PermissionDenied, ErrorKind::PermissionDenied));

    cell.start();
    assert_eq!(fs::read_to_string(cell.path("mount/a")).unwrap(), "kept");
    cell.kill();
    assert!(Command::new("fusermount3").args(["-u", "-z"]).arg(cell.path("mount")).status().unwrap().success());
    assert_eq!((look_up(&cell), create(&cell)), (ErrorKind::PermissionDenied, ErrorKind::PermissionDenied));

    // A directory with files keeps its permissions.
    let mut cell = new_cell();
    fs::write(cell.path("mount/hidden"), "x").unwrap();
    cell.start();
    assert_eq!(cell.stop(), Some(0));
    assert_eq!(look_up(&cell), ErrorKind::NotFound);
}

#[test]
fn the_owner_and_the_mode_of_a_file_decide_what_a_peer_may_request() {
    const GROUP: u32 = 4321;
    if !is_root() {
        return;
    }
    let mut cell = Cell::new();
    let config = cell.path("cell.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("user = \"nobody\"\n{text}")).unwrap();
    for folder in [cell.path(""), cell.path("disk1"), cell.path("mount")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    cell.start();
    let (folder, table) = (cell.path("mount/folder"), cell.path("mount/folder/table"));
    fs::create_dir(&folder).unwrap();
    fs::write(&table, vec![0; 128 * 8192]).unwrap();
    let inspect = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.arg("inspect").args(arguments).arg("--config").arg(&config).uid(ORDINARY_USER).gid(ORDINARY_USER);
        command.output().unwrap()
    };
    let denied = "42501";
    // Group and modes of the directory and of the table; results of scan, units, due units, file I/O, decompression.
    let cases = [
        (0, 0o755, 0o600, [denied, denied, denied, "done", denied]),
        (0, 0o755, 0o644, ["done", "done", "done", "done", denied]),
        (0, 0o755, 0o666, ["done", "done", "done", "done", "done"]),
        (0, 0o700, 0o666, [denied; 5]),
        (0, 0o711, 0o666, ["done", "done", "done", denied, "done"]),
        (GROUP, 0o750, 0o640, ["done", "done", "done", "done", denied]),
        (GROUP, 0o705, 0o606, [denied; 5]),
    ];
    for (group, folder_mode, mode, expected) in cases {
        for (path, mode) in [(&folder, folder_mode), (&table, mode)] {
            chown(path, Some(0), Some(group)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let context = format!("group {group}, modes {folder_mode:o} and {mode:o}");
        assert_eq!(answers(&cell, &[1, GROUP]), expected, "{context}");
        if group == 0 {
            let file = inspect(&["file", "folder/table"]);
            assert_eq!(file.status.success(), expected[0] == "done", "{context}: {}", message(&file));
            let files = inspect(&["files"]);
            assert!(files.status.success(), "{context}: {}", message(&files));
            let files = String::from_utf8(files.stdout).unwrap();
            assert_eq!(files.contains("folder/table"), folder_mode & 5 == 5, "{context}: {files}");
        }
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let file = inspect(&["file", "folder/table"]);
    let expected = "permission denied for a file on the cell: user id 65534 is not permitted to search folder";
    assert!(message(&file).contains(expected), "{}", message(&file));
    let number = format!("inode:{}", fs::metadata(&table).unwrap().ino());
    let block = inspect(&["block", &number, "0"]);
    assert!(message(&block).contains(expected), "{}", message(&block));
    for path in [&folder, &table] {
        chown(path, Some(ORDINARY_USER), Some(0)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    assert_eq!(answers(&cell, &[]), ["done"; 5]);
    assert!(inspect(&["block", &number, "0"]).status.success());
    assert_eq!(cell.stop(), Some(0));
}

//! The daemon's life as an operator sees it: start, stop, kill, start again.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Cell {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Cell {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["mount", "disk1", "disk2"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let cell = Self { folder, daemon: None };
        let at = |name: &str| cell.path(name).display().to_string();
        let (mount, disk1, disk2) = (at("mount"), at("disk1"), at("disk2"));
        let config = format!(
            "name = \"test\"\nmount = \"{mount}\"\ncache_size = \"64MiB\"\n\
             [disk_group]\nau_size = \"1MiB\"\ndisks = [\"{disk1}\", \"{disk2}\"]\n"
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
        command
    }

    /// Starts the daemon and waits until it is ready.
    fn start(&mut self) {
        let mut daemon = self.command().stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
        self.daemon = Some(daemon);
        let ready = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("cell test ready: mounted on "));
        assert!(ready.is_some(), "the daemon ended before it was ready");
        // What it says from now on shows when the test fails.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("{line}")));
    }

    fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Stops the daemon as an operator does; returns its exit code.
    fn stop(&mut self) -> Option<i32> {
        let mut daemon = self.daemon.take().unwrap();
        Command::new("kill").arg(daemon.id().to_string()).status().unwrap();
        daemon.wait().unwrap().code()
    }

    fn is_mounted(&self) -> bool {
        let mount = self.path("mount");
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains(mount.to_str().unwrap())
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

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_stopped_cell_leaves_nothing_mounted_and_keeps_its_files() {
    let mut cell = Cell::new();
    cell.start();
    fs::write(cell.path("mount/a"), "kept").unwrap();
    assert_eq!(cell.stop(), Some(0));
    assert!(!cell.is_mounted());
    assert!(!cell.path("mount/a").exists());
    cell.start();
    assert_eq!(fs::read_to_string(cell.path("mount/a")).unwrap(), "kept", "without any fsync: the stop was clean");
    assert_eq!(cell.stop(), Some(0));
}

#[test]
fn a_killed_cell_starts_again_on_its_dead_mount_with_all_that_was_synced() {
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
        fs::write(cell.path("mount/late"), "x").expect_err("the mount died with its daemon");
        drop(held_open);
    }
    cell.start();
    if let Ok(bytes) = fs::read(cell.path("mount/unsynced")) {
        assert!(bytes.iter().all(|byte| *byte == 0 || *byte == 99), "no other file's bytes");
    }
    assert_eq!(cell.stop(), Some(0));
}

#[test]
fn a_second_daemon_is_refused_and_disturbs_nothing() {
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
fn a_mount_in_use_is_waited_for_and_a_foreign_unmount_ends_the_daemon() {
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
fn mistakes_are_told_with_their_own_exit_codes() {
    let mut cell = Cell::new();
    let check = cell.command().arg("--check").output().unwrap();
    assert!(check.status.success(), "{}", message(&check));
    assert!(String::from_utf8_lossy(&check.stdout).contains("disk group"));

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
    assert_eq!(no_mount.status.code(), Some(1));
    assert!(message(&no_mount).contains("create the directory"), "{}", message(&no_mount));
    fs::create_dir(cell.path("mount")).unwrap();
    cell.start();
    assert_eq!(cell.stop(), Some(0));
}

#[test]
fn a_running_cell_tells_its_facts_and_one_that_cannot_answer_is_an_error() {
    let mut cell = Cell::new();
    let status = |cell: &Cell, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["cell", "status", "--config"]).arg(cell.path("cell.toml")).args(more).output().unwrap()
    };
    let gone = status(&cell, &[]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(message(&gone).contains("no cell answers at"), "{}", message(&gone));

    cell.start();
    let text = status(&cell, &[]);
    assert!(text.status.success(), "{}", message(&text));
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["cell test, version ", "disk1: ", "page cache  0 bytes of 64 MiB filled", "0 Smart Scans"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&status(&cell, &["--json"]).stdout).unwrap();
    let pid = cell.daemon.as_ref().unwrap().id();
    assert_eq!(json["pid"], pid);
    assert_eq!(json["mount"], cell.path("mount").to_str().unwrap());
    assert_eq!(json["disks"].as_array().unwrap().len(), 2);
    assert!(json["disks"][1]["available_bytes"].as_u64().unwrap() > 0);

    let signal = |name: &str| Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    signal("-STOP");
    let silent = status(&cell, &["--json"]);
    signal("-CONT");
    assert_eq!(silent.status.code(), Some(1));
    assert!(message(&silent).contains("does not answer"), "{}", message(&silent));
    assert_eq!(cell.stop(), Some(0));
}

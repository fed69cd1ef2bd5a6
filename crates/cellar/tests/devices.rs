//! A cell on devices without a file system, and with a device model, as an operator uses it.

use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const DEVICE_BYTES: u64 = 256 << 20;

struct Cell {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Cell {
    /// A cell on a device and a directory; the second one follows a device model.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cell = Self { folder, daemon: None };
        for name in ["mount", "directory"] {
            fs::create_dir(cell.path(name)).unwrap();
        }
        File::create(cell.path("device")).unwrap().set_len(DEVICE_BYTES).unwrap();
        let at = |name: &str| cell.path(name).display().to_string();
        let config = format!(
            "name = \"test\"\nmount = \"{}\"\nsocket = \"{}\"\ncache_size = \"64MiB\"\n[disk_group]\nau_size = \"1MiB\"\n\
             reserve_size = \"16MiB\"\ndisks = [\"{}\", \"{}\"]\nmodel = [\"\", \"flash-mlc\"]\nmodel_time_scale = 0.01\n",
            at("mount"),
            at("cell.sock"),
            at("device"),
            at("directory")
        );
        fs::write(cell.path("cell.toml"), config).unwrap();
        cell
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn cellar(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(arguments).env_remove("NOTIFY_SOCKET").output().unwrap()
    }

    fn start(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["cell", "--config"]).arg(self.path("cell.toml")).env_remove("NOTIFY_SOCKET");
        let mut daemon = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
        self.daemon = Some(daemon);
        let ready = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("cell test ready"));
        assert!(ready.is_some(), "the daemon exited before it was ready");
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("{line}")));
    }

    fn end(&mut self, signal: &str) {
        let mut daemon = self.daemon.take().unwrap();
        Command::new("kill").args([signal, &daemon.id().to_string()]).status().unwrap();
        daemon.wait().unwrap();
    }

    fn status(&self) -> Value {
        let output = self.cellar(&["cell", "status", "--json", "--config", self.path("cell.toml").to_str().unwrap()]);
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.end("-KILL");
        }
        let _ = Command::new("umount").args(["-l"]).arg(self.path("mount")).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_cell_on_a_device_keeps_its_files_and_reports_its_device_model() {
    let mut cell = Cell::new();
    cell.start();
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|at| (at / 100) as u8).collect();
    let file = cell.path("mount").join("file");
    fs::write(&file, &bytes).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    fs::write(cell.path("mount").join("other"), b"removed").unwrap();
    fs::remove_file(cell.path("mount").join("other")).unwrap();
    let status = cell.status();
    let model = &status["disk_models"][0];
    assert_eq!((&model["model"], status["disk_models"].as_array().unwrap().len()), (&"flash-mlc".into(), 1));
    assert!(model["request_seconds"]["write"]["count"].as_u64().unwrap() > 0, "{model}");
    assert!(model["write_amplification"].as_f64().unwrap() >= 1.0, "{model}");
    assert!(status["disks"][0]["total_bytes"].as_u64().unwrap() < DEVICE_BYTES);
    cell.end("-KILL");
    cell.start();
    assert!(fs::read(&file).unwrap() == bytes, "the content survives a kill");
    cell.end("-TERM");
    let inspected = cell.cellar(&["inspect", "disks", "--json", "--config", cell.path("cell.toml").to_str().unwrap()]);
    assert!(inspected.status.success(), "{}", String::from_utf8_lossy(&inspected.stderr));
    let checked = cell.cellar(&["cell", "--check", "--config", cell.path("cell.toml").to_str().unwrap()]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    cell.start();
    assert!(fs::read(&file).unwrap() == bytes, "the content survives a clean stop");
    let device = cell.path("device");
    let format = cell.cellar(&["disk", "format", "--force", device.to_str().unwrap()]);
    assert_eq!(format.status.code(), Some(3), "a device in use is not formatted");
    cell.end("-TERM");
    let format = cell.cellar(&["disk", "format", device.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&format.stderr).into_owned();
    assert!(format.status.code() == Some(1) && message.contains("a cell disk of disk group"), "{message}");
    let format = cell.cellar(&["disk", "format", "--force", "--json", device.to_str().unwrap()]);
    let result: Value = serde_json::from_slice(&format.stdout).unwrap();
    assert_eq!(result["size_bytes"], DEVICE_BYTES);
}

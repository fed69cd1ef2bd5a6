//! `cellar cellcli` with a running cell, as an operator types it.

use cellar_client::connection::Connection;
use cellar_format::wire::{ConsumerGroups, DatabaseNames, Hello};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A cell with two copies of its data on two directories.
struct Cell {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Cell {
    fn start() -> Self {
        Self::with_group(|disk1, disk2| {
            format!(
                "redundancy = \"normal\"\ndisks = [{{ path = \"{disk1}\", failure_group = \"left\" }}, \
                 {{ path = \"{disk2}\", failure_group = \"right\" }}]\n"
            )
        })
    }

    /// Starts a cell with lines of its configuration that describe its disk group.
    fn with_group(lines: impl Fn(&str, &str) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut cell = Self { folder, daemon: None };
        for name in ["mount", "disk1", "disk2"] {
            fs::create_dir(cell.path(name)).unwrap();
        }
        let at = |name: &str| cell.path(name).display().to_string();
        let config = format!(
            "name = \"c1\"\nmount = \"{}\"\nsocket = \"{}\"\ncache_size = \"64MiB\"\n[disk_group]\nau_size = \"1MiB\"\n\
             reserve_size = \"16MiB\"\n{}",
            at("mount"),
            at("cell.sock"),
            lines(&at("disk1"), &at("disk2"))
        );
        fs::write(cell.path("cell.toml"), config).unwrap();
        cell.start_daemon();
        cell
    }

    fn start_daemon(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["cell", "--config"]).arg(self.path("cell.toml")).env_remove("NOTIFY_SOCKET");
        let mut daemon = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
        self.daemon = Some(daemon);
        let ready = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("cell c1 ready"));
        assert!(ready.is_some(), "the daemon exited before it was ready");
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("{line}")));
    }

    /// Stops the daemon and waits until it has exited.
    fn stop(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
        assert!(daemon.wait().unwrap().success());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["cellcli", "--interval", "100ms"]).env("CELLAR_CELL", self.path("cell.toml"));
        command.current_dir(self.folder.path());
        command
    }

    /// Runs a command, whose words need no quotes.
    fn run(&self, command: &str) -> Output {
        self.command().arg("-e").args(command.split(' ')).output().unwrap()
    }

    /// Returns the output of a command that succeeds.
    fn text(&self, command: &str) -> String {
        let output = self.run(command);
        assert!(output.status.success(), "{command}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, command: &str) -> Value {
        let output = self.command().args(["--json", "-e", command]).output().unwrap();
        assert!(output.status.success(), "{command}: {}", errors(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the error of a command that fails, without a line end.
    fn error(&self, command: &str) -> String {
        let output = self.run(command);
        assert_eq!(output.status.code(), Some(1), "{command}");
        errors(&output).trim_end().to_owned()
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = Command::new("umount").args(["-l"]).arg(self.path("mount")).stderr(Stdio::null()).status();
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn objects_of_a_running_cell_are_listed_and_altered() {
    let cell = Cell::start();
    let disk1 = cell.path("disk1").display().to_string();

    assert_eq!(cell.text("list cell"), "\t c1\t online\n");
    let detail = cell.text("list cell detail");
    assert!(
        detail.contains("\t name:                   c1\n") && detail.contains("\t cellsrvStatus:          running\n")
    );
    assert_eq!(cell.text("LIST CELLDISK"), "\t CD_00_c1\t normal\n\t CD_01_c1\t normal\n");
    assert_eq!(
        cell.text("list griddisk attributes name, asmFailGroupName, asmmodestatus order by name desc limit 1"),
        "\t DG_CD_01_c1\t right\t ONLINE\n"
    );
    assert_eq!(
        cell.text("list celldisk where deviceName like .*/disk1 and size > 1M and not status = offline"),
        "\t CD_00_c1\t normal\n"
    );
    assert_eq!(cell.text("list celldisk where name like CD_(00|07).*"), "\t CD_00_c1\t normal\n");
    assert_eq!(cell.text("list diskgroup attributes name, status, type"), "\t DG_c1\t MOUNTED\t NORMAL\n");
    assert_eq!(cell.text("describe celldisk").lines().next(), Some("\t name"));
    assert!(cell.text("help alter").contains("ALTER GRIDDISK {ALL | name [, name]...} INACTIVE"));
    let disk = cell.json("list celldisk cd_00_C1 attributes name, deviceName, diskType, medium, errorCount, size");
    assert_eq!(disk[0]["deviceName"], *disk1);
    let expected = [json!("HardDisk"), json!("Directory"), json!(0)];
    assert_eq!(["diskType", "medium", "errorCount"].map(|name| disk[0][name].clone()), expected);
    assert_eq!(cell.text("list celldisk all where diskType = HardDisk attributes name limit 1"), "\t CD_00_c1\n");
    assert_eq!(cell.text("list griddisk all"), cell.text("list griddisk"));
    assert_eq!(cell.text("list cell attributes releaseVersion"), format!("\t {}\n", env!("CARGO_PKG_VERSION")));
    assert!(disk[0]["size"].as_u64().unwrap() > 1 << 20);

    assert_eq!(cell.text("alter griddisk DG_CD_01_c1 inactive"), "GridDisk DG_CD_01_c1 successfully altered\n");
    assert_eq!(cell.text("list celldisk where status != normal"), "\t CD_01_c1\t offline\n");
    assert_eq!(cell.text("list griddisk where offlineSince > 2020-01-01T00:00:00Z"), "\t DG_CD_01_c1\t inactive\n");
    assert_eq!(cell.text("list diskgroup attributes status, offlineDisks"), "\t DEGRADED\t 1\n");
    let refused = cell.error("alter celldisk CD_00_c1 inactive");
    assert!(refused.starts_with("CELL-90005: the cell refused the request"), "{refused}");
    assert_eq!(
        cell.text("alter celldisk all where status = offline active"),
        "CellDisk CD_01_c1 successfully altered\n"
    );
    assert_eq!(cell.text("list griddisk where asmModeStatus != ONLINE"), "");
    assert_eq!(cell.text("alter diskgroup DG_c1 scrub rate = 0"), "DiskGroup DG_c1 scrub started\n");
    let started = cell.json("list diskgroup attributes scrubStatus, scrubStarted");
    assert!(started[0]["scrubStarted"].as_str().unwrap().ends_with("+00:00"), "{started}");
    assert_eq!(cell.text("alter diskgroup all scrub stop"), "DiskGroup DG_c1 scrub stopped\n");

    assert_eq!(cell.text("list flashcache detail"), "", "without flash disks there is none");
    assert_eq!(cell.text("list flashlog detail"), "");
    assert_eq!(cell.text("list metriccurrent where name like 'F[CL]_.*'"), "");
    assert_eq!(cell.text("list metriccurrent FC_BY_USED"), "", "a metric without values");
    let no_cache = "CELL-90002: FLASHCACHE: this cell has no flash cache: flash_disks in its configuration file";
    for (command, expected) in [
        ("alter flashcache all flush", no_cache),
        ("drop flashcache", no_cache),
        (
            "list metriccurrent FC_BY_USE",
            "CELL-90002: METRICDEFINITION \"FC_BY_USE\" does not exist; LIST METRICDEFINITION",
        ),
        ("list quarantine all detail", "CELL-90003: QUARANTINE: this cell has no quarantines"),
        ("drop pluggabledatabase all", "CELL-90003: PLUGGABLEDATABASE: PostgreSQL has no pluggable databases"),
        (
            "alter iormplan",
            "CELL-01504: invalid command syntax at the end of the command: expected objective = objective; dbplan",
        ),
        ("alter metriccurrent all", "CELL-90004: ALTER does not change METRICCURRENT"),
        ("list iormprofile", "CELL-90003: IORMPROFILE: this cell has no profiles"),
        (
            "list metrichistory where collectionTime > yesterday",
            "CELL-90007: \"yesterday\" is not a time; write one like '2026-08-06T11:30:00'",
        ),
        ("list metrichistory CD_IO_NONE", "CELL-90002: METRICDEFINITION \"CD_IO_NONE\" does not exist"),
        ("create flashlog all", "CELL-90004: CREATE: the objects of a cell follow from its configuration file"),
        ("drop celldisk CD_00_c1", "CELL-90004: DROP: the objects of a cell follow from its configuration file"),
        (
            "list celldisk cd_07_c1",
            "CELL-90002: CELLDISK \"cd_07_c1\" does not exist; this cell has CD_00_c1, CD_01_c1",
        ),
        (
            "list celldisk attributes colour",
            "CELL-90001: \"colour\" is not an attribute of CELLDISK; its attributes are name, ",
        ),
        ("list celldisk where colour = red", "CELL-90001: \"colour\" is not an attribute of CELLDISK"),
        ("list celldisk order by colour", "CELL-90001: \"colour\" is not an attribute of CELLDISK"),
        ("list celldisk where name like CD_[", "CELL-90007: \"CD_[\" is not a regular expression"),
        ("alter griddisk all offline", "CELL-90004: ALTER GRIDDISK does not know \"offline\": the operations are"),
        ("alter griddisk all != inactive", "CELL-90004: ALTER GRIDDISK does not know \"!= inactive\""),
        ("alter griddisk all name = x", "CELL-90004: ALTER GRIDDISK cannot assign name: the operations are"),
        ("alter cell name = x", "CELL-90004: ALTER CELL cannot assign name: the operations are flashCacheMode"),
        ("alter diskgroup all scrub rate = fast", "CELL-90007: RATE fast: write MiB per second"),
        ("list celldisks", "CELL-01504: invalid command syntax at \"celldisks\": expected one of CELL, CELLDISK"),
    ] {
        let error = cell.error(command);
        assert!(error.starts_with(expected), "{command}: {error}");
    }
}

#[test]
fn the_plan_of_resource_management_is_changed_refused_with_a_reason_and_kept() {
    let mut cell = Cell::start();
    assert_eq!(cell.text("list iormplan"), "\t c1_IORMPLAN\t off\t inactive\n");
    let altered =
        cell.text("ALTER IORMPLAN objective=auto, dbplan=((name=sales, share=8), (name=other, share=2, limit=50))");
    assert_eq!(altered, "IORMPLAN c1_IORMPLAN successfully altered\n");
    for (command, reason) in [
        (
            "alter iormplan objective=fast",
            "could not change the IORM plan: objective \"fast\" does not exist; write one of off, basic, auto",
        ),
        (
            "alter iormplan dbplan=((name=a,allocation=60),(name=b,allocation=50))",
            "allocations of level 1 add up to 110 %",
        ),
        ("alter iormplan objective=basic, dbplan=((name=a,colour=3))", "\"colour\" is not an attribute of a database"),
        ("alter iormplan colour=3", "ALTER IORMPLAN cannot assign colour"),
        ("alter iormplan catplan=((name=a,level=1,allocation=1))", "no categories"),
    ] {
        let error = cell.error(command);
        assert!(error.contains(reason), "{command}: {error}");
    }
    let expected = json!([{
        "name": "c1_IORMPLAN",
        "catPlan": null,
        "dbPlan": "((name=sales,share=8),(name=other,share=2,limit=50))",
        "objective": "auto",
        "status": "active",
    }]);
    assert_eq!(cell.json("list iormplan detail"), expected);
    cell.stop();
    cell.start_daemon();
    assert_eq!(cell.json("list iormplan detail"), expected);
    cell.text("alter iormplan objective=off, dbplan=''");
    assert_eq!(cell.json("list iormplan attributes dbPlan, status"), json!([{ "dbPlan": null, "status": "inactive" }]));
}

/// Reads 8 KiB blocks of a file, past the kernel's page cache and far from each other.
fn read_blocks(file: &std::path::Path, count: u32) -> std::time::Duration {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(file).unwrap();
    let mut memory = vec![0; 2 * 8192];
    let aligned = memory.as_ptr().align_offset(4096);
    let started = std::time::Instant::now();
    for number in 0..u64::from(count) {
        let block = number * u64::from(FILE_BLOCKS / 2 + 1) % u64::from(FILE_BLOCKS);
        file.read_exact_at(&mut memory[aligned..aligned + 8192], block * 8192).unwrap();
    }
    started.elapsed()
}

/// Blocks of a file that is read.
const FILE_BLOCKS: u32 = 200;

#[test]
fn a_limit_slows_reads_of_one_database_of_a_running_cell_only() {
    // At 1 % of a device time of 1 ms each, these take five seconds.
    const BLOCKS: u32 = 50;
    let cell = Cell::with_group(|disk, _| {
        format!(
            "disks = [\"{disk}\"]\nmodel = \"hdd-15k\"\nmodel_time_scale = 1.0\n[iorm]\nobjective = \"high_throughput\"\n"
        )
    });
    assert_eq!(cell.text("list iormplan attributes objective"), "\t high_throughput\n");
    let [limited, other] = ["base/16384", "base/16385"].map(|folder| {
        let folder = cell.path("mount").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("1"), vec![1; 8192 * FILE_BLOCKS as usize]).unwrap();
        folder.join("1")
    });
    let before = read_blocks(&limited, BLOCKS);
    cell.text("alter iormplan dbplan=((name=16384,share=1,limit=1))");
    let (slow, fast) = (read_blocks(&limited, BLOCKS), read_blocks(&other, BLOCKS));
    println!("unlimited {before:?}, limited {slow:?}, other database {fast:?}");
    assert!(slow > 3 * fast && slow > 3 * before, "unlimited {before:?}, limited {slow:?}, other database {fast:?}");
    let metrics = cellar_cell::status::query_metrics(&cell.path("cell.sock")).unwrap();
    let families = metrics["metrics"].as_array().unwrap();
    let waits = families.iter().find(|family| family["name"] == "cellar_iorm_wait_seconds_total").unwrap();
    let waited = |database: &str| {
        let samples = waits["samples"].as_array().unwrap().iter();
        let of_this = samples.filter(|sample| sample["labels"]["database"] == database);
        of_this.filter_map(|sample| sample["value"].as_f64()).sum::<f64>()
    };
    assert!(waited("16384") > slow.as_secs_f64() / 2.0 && waited("16385") < fast.as_secs_f64(), "{waits}");
    let databases = cell.json("list metriccurrent where name = 'DB_IO_RQ_SM' attributes metricObjectName, objectType");
    for database in ["16384", "16385"] {
        let expected = json!({ "metricObjectName": database, "objectType": "IORM_DATABASE" });
        assert!(databases.as_array().unwrap().contains(&expected), "{databases}");
    }
    cell.text("alter iormplan objective=off");
    assert!(3 * read_blocks(&limited, BLOCKS) < slow);
}

#[test]
fn a_plan_and_metrics_use_the_names_that_the_server_tells() {
    const BLOCKS: u32 = 50;
    let cell = Cell::with_group(|disk, _| {
        format!(
            "disks = [\"{disk}\"]\nmodel = \"hdd-15k\"\nmodel_time_scale = 1.0\n[iorm]\nobjective = \"high_throughput\"\n"
        )
    });
    // Two clusters, each with a database 16384.
    let [limited, other] = ["pg1/base/16384", "pg2/base/16384"].map(|folder| {
        let folder = cell.path("mount").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("1"), vec![1; 8192 * FILE_BLOCKS as usize]).unwrap();
        folder.join("1")
    });
    let shown = || cell.json("list database attributes name").to_string();
    assert_eq!(shown(), r#"[{"name":"pg1/16384"},{"name":"pg2/16384"}]"#);
    // The kernel tells the cell the thread that reads, which is the process of a backend.
    let thread = fs::read_link("/proc/thread-self").unwrap();
    let thread: u32 = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let told = [("pg1", "sales"), ("pg2", "hr")].map(|(root, name)| {
        let hello = Hello { backend_pid: std::process::id(), database: 0, system_identifier: 0, incarnation: 0 };
        let mut connection = Connection::open(&cell.path("cell.sock"), hello).unwrap();
        // The cell processes the frames in this order.
        connection.tell_group(ConsumerGroups { processes: vec![(thread, "reports".into())] });
        connection.tell_names(DatabaseNames { roots: vec![root.into()], databases: vec![(16384, name.into())] });
        connection
    });
    let started = Instant::now();
    while shown() != r#"[{"name":"sales"},{"name":"hr"}]"# {
        assert!(started.elapsed() < Duration::from_secs(10), "{}", shown());
        std::thread::sleep(Duration::from_millis(20));
    }
    cell.text("alter iormplan dbplan=((name=sales,share=1,limit=1))");
    let (slow, fast) = (read_blocks(&limited, BLOCKS), read_blocks(&other, BLOCKS));
    assert!(slow > 3 * fast, "limited {slow:?}, other cluster {fast:?}");
    let groups = || {
        let groups =
            cell.json("list metriccurrent where name = 'CG_IO_RQ_SM' attributes metricObjectName, metricValue");
        groups.to_string()
    };
    assert!(groups().contains(r#""sales.reports""#) && groups().contains(r#""hr.reports""#), "{}", groups());
    drop(told);
}

#[test]
fn the_history_of_metrics_survives_a_kill() {
    let mut cell =
        Cell::with_group(|disk, _| format!("disks = [\"{disk}\"]\n[metrics]\nhistory_interval_seconds = 1\n"));
    let times = |cell: &Cell, condition: &str| -> Vec<String> {
        let text =
            cell.json(&format!("list metrichistory where name = CD_IO_RQ_R_SM {condition} attributes collectionTime"));
        text.as_array().unwrap().iter().map(|object| object["collectionTime"].as_str().unwrap().to_owned()).collect()
    };
    let wait_for = |cell: &Cell, count: usize| {
        let started = Instant::now();
        while times(cell, "").len() < count {
            assert!(started.elapsed() < Duration::from_secs(30), "{:?}", times(cell, ""));
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    wait_for(&cell, 2);
    let mut daemon = cell.daemon.take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    cell.start_daemon();
    wait_for(&cell, 5);
    let all = times(&cell, "");
    assert_eq!(cell.text("list metrichistory CD_IO_RQ_R_SM where ageInMinutes > 1000"), "", "the metric exists");
    let later = times(&cell, &format!("and collectionTime > '{}'", all[1]));
    let expected: Vec<String> = all.iter().filter(|time| **time > all[1]).cloned().collect();
    assert_eq!(later[..expected.len()], expected, "the cell may have added records meanwhile");
    let report = |condition: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["iorm", "report", "--where", condition, "--cell"]).arg(cell.path("cell.sock")).output().unwrap()
    };
    let output = report(&format!("collectionTime >= '{}'", all[0]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("Time: {}\n", all[0])) && text.contains("\nCELL METRICS SUMMARY\n"), "{text}");
    let output = report("collectionTime > '2999-01-01T00:00:00'");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("it reaches from 20"), "{error}");
}

#[test]
fn conditions_about_ages_dates_and_alerts_hold_as_in_oracle_s_manual() {
    let cell = Cell::with_group(|disk, _| format!("disks = [\"{disk}\"]\n[metrics]\nhistory_interval_seconds = 1\n"));
    cell.text("create threshold cl_memut.C1 comparison = '>', warning = 0, critical = 1000");
    let has_values = || !cell.text("list metrichistory CD_IO_RQ_R_SM").is_empty();
    let state = || cell.text("list metriccurrent CL_MEMUT attributes alertState");
    let started = Instant::now();
    while !has_values() || state() != "\t warning\n" {
        assert!(started.elapsed() < Duration::from_secs(30), "{}", state());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(cell.text("list metriccurrent where alertState != normal attributes name"), "\t CL_MEMUT\n");

    // A metric without values for which a condition holds is empty, and so is one that the cell does not have.
    for condition in ["collectionTime > '2999-01-01'", "ageInMinutes > 60", "metricValue > 1e12", "ageInMinutes < 0"] {
        for metric in ["CD_IO_RQ_R_SM", "FC_BY_USED"] {
            assert_eq!(
                cell.text(&format!("list metrichistory {metric} where {condition}")),
                "",
                "{metric} {condition}"
            );
        }
    }
    for condition in ["collectionTime > '2020-01-31'", "ageInMinutes < 5", "not ageInMinutes > 5"] {
        assert_ne!(cell.text(&format!("list metrichistory CD_IO_RQ_R_SM where {condition}")), "", "{condition}");
    }
    assert!(cell.error("list metrichistory FC_BY_USE").starts_with("CELL-90002: METRICDEFINITION \"FC_BY_USE\""));
    let mut report = Command::new(env!("CARGO_BIN_EXE_cellar"));
    report.args(["iorm", "report", "--where", "collectionTime > '2020-01-31'", "--cell"]).arg(cell.path("cell.sock"));
    assert!(report.output().unwrap().status.success());

    let alert = cell.text("list alerthistory where metricName = CL_MEMUT attributes name").trim().to_owned();
    let names = |condition: &str| {
        let names =
            cell.text(&format!("list alerthistory where metricName = CL_MEMUT and {condition} attributes name"));
        names.trim().to_owned()
    };
    let open = "notificationState like '[023]' and severity like '[warning|critical]' and examinedBy = NULL";
    for condition in
        [open, "examinedBy = ''", "examinedBy like ''", "beginTime > '2020-01-31'", "notificationState like 0"]
    {
        assert_eq!(names(condition), alert, "{condition}");
    }
    assert_eq!(names("examinedBy != ''"), "");
    cell.text(&format!("alter alerthistory {alert} examinedBy = ann"));
    assert_eq!([names(open), names("examinedBy = ''")], ["", ""]);
    assert_eq!(names("examinedBy != '' and examinedBy != NULL"), alert);
}

#[test]
fn a_link_names_the_program_in_its_usage() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cellcli", "dcli"] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cellar"), &link).unwrap();
        let help = Command::new(link).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(help.contains(&format!("\nUsage: cellar {name} [OPTIONS]")), "{help}");
    }
}

#[test]
fn commands_come_from_options_files_and_standard_input() {
    let cell = Cell::start();
    let run = |arguments: &[&str]| cell.command().args(arguments).output().unwrap();
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();

    let output = run(&["-e", "list cell; -- nothing\nlist celldisk -\n attributes name", "-e", "list", "diskgroup"]);
    assert_eq!(text(&output), "\t c1\t online\n\t CD_00_c1\n\t CD_01_c1\n\t DG_c1\t MOUNTED\n");
    let output = run(&["-m", "-e", "alter griddisk all inactive"]);
    assert_eq!(
        (output.status.code(), errors(&output).as_str()),
        (Some(1), "CELL-90006: ALTER changes the cell, which option -m forbids\n")
    );

    let script = "REM a script\nspool log\nset echo on\nlist lun\n@inner.scl\nlist cell -\n  detail\n";
    fs::write(cell.path("outer.scl"), script).unwrap();
    fs::write(cell.path("inner.scl"), "list cell attributes name; exit; list celldisk").unwrap();
    let output = run(&["-e", "@outer.scl"]);
    assert_eq!(output.status.code(), Some(1), "one of the commands fails, and the others run");
    assert_eq!(text(&output), "> list lun\n> @inner.scl\n> list cell attributes name\n\t c1\n> exit\n");
    let spooled = fs::read_to_string(cell.path("log")).unwrap();
    assert!(
        spooled.contains(
            "CELL-90003: LUN: this cell does not manage devices; LIST CELLDISK shows its disks\n> @inner.scl\n"
        ),
        "{spooled}"
    );
    let missing = run(&["-e", "start", "missing.scl"]);
    assert!(errors(&missing).starts_with("CELL-90008: could not read missing.scl"), "{}", errors(&missing));
    fs::write(cell.path("endless.scl"), "@endless.scl").unwrap();
    assert!(errors(&run(&["-e", "@endless.scl"])).contains("started by 16 files that start each other"));

    let mut command = cell.command();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"list -\ncell\nlist celldisk limit 1; quit\nlist cell").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output).as_str(), output.status.code()), ("\t c1\t online\n\t CD_00_c1\t normal\n", Some(0)));

    let socket = cell.path("cell.sock").display().to_string();
    assert_eq!(text(&run(&["--cell", &socket, "-e", "list cell"])), "\t c1\t online\n");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = cell.command().args(["-e", "list cell; list celldisk"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(errors(&output), "could not write to standard output: No space left on device (os error 28)\n");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = cell.command().args(["-e", "list cell"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), errors(&output).as_str()), (Some(1), ""));
    let missing = run(&["--cell", "missing.toml", "-e", "list cell"]);
    assert_eq!(missing.status.code(), Some(2), "{}", errors(&missing));
    let mut daemon_stopped = cell;
    let mut daemon = daemon_stopped.daemon.take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let error = daemon_stopped.error("list cell");
    assert!(error.starts_with("CELL-01514: could not connect to a cell at "), "{error}");
}

#[test]
fn databases_are_those_whose_files_the_cell_serves() {
    let cell = Cell::start();
    let folder = cell.path("mount/pg/base/5");
    fs::create_dir_all(&folder).unwrap();
    let file = File::create(folder.join("16384")).unwrap();
    file.write_all_at(&[1; 3 * 8192], 0).unwrap();
    file.sync_all().unwrap();
    let databases = cell.json("list database attributes name, clusterRoot, databaseID, writeSize");
    assert_eq!(databases, json!([{ "name": "pg/5", "clusterRoot": "pg", "databaseID": 5, "writeSize": 3 * 8192 }]));
    assert_eq!(cell.text("list database where databaseID > 4 and syncRequests > 0"), "\t pg/5\n");
}

#[test]
fn metrics_have_oracle_s_names_and_the_values_of_the_counters() {
    let cell = Cell::start();
    let file = File::create(cell.path("mount/a")).unwrap();
    file.write_all_at(&vec![1; 8 << 20], 0).unwrap();
    file.sync_all().unwrap();

    assert_eq!(
        cell.text("list metricdefinition where objectType = cell"),
        "\t CL_CPUT\n\t CL_CPUT_CS\n\t CL_MEMUT\n\t CL_RUNQ\n\t IORM_MODE\n"
    );
    let definition = cell.text("list metricdefinition cd_io_by_w_lg detail");
    let expected = "\t name:                   CD_IO_BY_W_LG\n\t description:            \"Number of megabytes written in large blocks to a cell disk\"\n\
                    \t metricType:             Cumulative\n\t objectType:             CELLDISK\n\t unit:                   MB\n";
    assert_eq!(definition, expected);

    // Both disks store a copy of the file.
    let written = cell.json("list metriccurrent where name like 'CD_IO_BY_W_.*' and metricType = Cumulative");
    let mebibytes: f64 = written.as_array().unwrap().iter().map(|metric| metric["metricValue"].as_f64().unwrap()).sum();
    assert!((16.0..32.0).contains(&mebibytes), "{written}");
    // The kernel's requests may be large or small, but are alike.
    let mostly = cell
        .text("list metriccurrent where name like CD_IO_BY_W_.[GM] and metricValue > 4 attributes metricObjectName");
    assert_eq!(mostly, "\t CD_00_c1\n\t CD_01_c1\n");
    let requests = cell.json("list metriccurrent GD_IO_RQ_W_SM, CD_IO_RQ_W_SM order by metricObjectName");
    assert_eq!(requests[2]["metricObjectName"], "DG_CD_00_c1");
    assert_eq!(requests[2]["metricValue"], requests[0]["metricValue"], "a grid disk is all of a cell disk");
    assert!(requests[0]["metricValue"].as_f64().unwrap() > 0.0, "{requests}");

    let started = std::time::Instant::now();
    let rates = cell.text("list metriccurrent where metricType = Rate and name like 'CD_IO_RQ.*' and metricValue = 0");
    assert_eq!(rates.lines().filter(|line| line.ends_with("0.0 IO/sec")).count(), rates.lines().count());
    assert!(started.elapsed().as_millis() >= 100, "a rate takes two readings");
    let cpu = cell.text("list metriccurrent where name like 'CL_CPUT.*' detail");
    assert!(cpu.contains("\t metricObjectName:       c1\n") && cpu.contains(" %\n"), "{cpu}");
}

#[test]
fn disks_of_the_group_are_added_dropped_and_replaced() {
    let cell = Cell::start();
    let disk = |name: &str| cell.path(name).display().to_string();
    let altered = "DiskGroup DG_c1 successfully altered\n";
    let refused = cell.error(&format!("alter diskgroup all add disk '{}'", disk("absent")));
    assert!(refused.contains("does not exist; mount its device"), "{refused}");
    assert!(!fs::read_to_string(cell.path("cell.toml")).unwrap().contains("absent"));
    ["disk3", "disk4"].iter().for_each(|name| fs::create_dir(cell.path(name)).unwrap());
    let wait_for = |expected: &str| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while cell.text("list griddisk attributes name, asmFailGroupName") != expected {
            assert!(std::time::Instant::now() < deadline, "{}", cell.text("list griddisk attributes all"));
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    let add = format!("alter diskgroup DG_c1 add failgroup third disk '{}' rebalance power 11", disk("disk3"));
    assert_eq!(cell.text(&add), altered);
    let config = fs::read_to_string(cell.path("cell.toml")).unwrap();
    assert!(config.contains(&format!("path = \"{}\", failure_group = \"third\"", disk("disk3"))), "{config}");
    assert_eq!(cell.text("list diskgroup attributes rebalancePower"), "\t 11\n");
    let template =
        |redundancy: &str| format!("alter diskgroup all modify template onlinelog attributes ({redundancy})");
    let converts = "DiskGroup DG_c1 successfully altered; the next rebalance converts existing files\n";
    assert_eq!(cell.text(&template("high")), converts);
    assert_eq!(cell.text("list diskgroup attributes fileRedundancy"), "\t wal=HIGH\n");
    let refused = cell.error("alter diskgroup all drop disk CD_00_c1");
    assert!(refused.contains("3 copies need 3 failure groups, but the disks are in 2"), "{refused}");
    assert_eq!(cell.text(&template("default")), converts);
    assert_eq!(cell.text("alter diskgroup all drop disk CD_00_c1"), altered);
    wait_for("\t DG_CD_01_c1\t right\n\t DG_CD_02_c1\t third\n");
    let refused = cell.error("alter diskgroup all drop disk DG_CD_01_c1");
    assert!(refused.contains("2 copies need 2 failure groups, but the disks are in 1"), "{refused}");
    assert_eq!(cell.text("alter griddisk DG_CD_01_c1 inactive"), "GridDisk DG_CD_01_c1 successfully altered\n");
    let replace = format!("alter diskgroup all replace disk CD_01_c1 with '{}'", disk("disk4"));
    assert_eq!(cell.text(&replace), altered);
    wait_for("\t DG_CD_02_c1\t third\n\t DG_CD_03_c1\t right\n");
    assert_eq!(cell.text("alter diskgroup all set disk_repair_time = 2d"), altered);
    assert_eq!(cell.text("list diskgroup attributes diskRepairTime"), "\t 172800\n");
    assert_eq!(cell.text("alter diskgroup all rebalance"), "DiskGroup DG_c1 rebalance started\n");
    assert!(cell.error("alter diskgroup all rebalance power 12").starts_with("CELL-90007: POWER 12"));
    let refused = cell.error("alter diskgroup all drop disk CD_07_c1");
    assert!(refused.contains("CD_07_c1 is not a disk of the group; its disks are"), "{refused}");
}

#[test]
fn a_disk_goes_offline_and_online_by_its_number_without_an_error_of_the_disk() {
    let cell = Cell::start();
    let group = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        let config = cell.path("cell.toml");
        let output = command.arg("group").args(arguments).args(["--json", "--config"]).arg(config).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let report = group(&["offline", "1"]);
    assert_eq!(report["disks"][1]["mode_status"], "OFFLINE");
    let file = File::create(cell.path("mount").join("file")).unwrap();
    file.sync_all().unwrap();
    let report = group(&["online", "1"]);
    let disk = &report["disks"][1];
    assert_eq!(disk["mode_status"], "ONLINE");
    assert_eq!((&disk["read_errs"], &disk["write_errs"], &disk["sync_errs"]), (&0.into(), &0.into(), &0.into()));
}

#[test]
fn disks_keep_their_numbers_after_a_drop() {
    let cell = Cell::with_group(|disk1, disk2| format!("disks = [\"{disk1}\", \"{disk2}\"]\n"));
    let group = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        let output = command.arg("group").args(arguments).arg("--config").arg(cell.path("cell.toml")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    };
    let disk1 = cell.path("disk1").display().to_string();
    group(&["drop", &disk1]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while cell.text("list celldisk") != "\t CD_01_c1\t normal\n" {
        assert!(std::time::Instant::now() < deadline, "disk 0 does not leave the group");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let metric = "list metriccurrent CD_IO_RQ_W_SM attributes metricObjectName";
    assert_eq!(cell.text(metric), "\t CD_01_c1\n");

    // The path returns with another number, and no metric has two samples for the path.
    fs::remove_dir_all(&disk1).unwrap();
    fs::create_dir(&disk1).unwrap();
    group(&["add", &disk1]);
    assert_eq!(cell.text(metric), "\t CD_01_c1\n\t CD_02_c1\n");
    let metrics = cellar_cell::status::query_metrics(&cell.path("cell.sock")).unwrap();
    for family in metrics["metrics"].as_array().unwrap() {
        let samples = family["samples"].as_array().unwrap().iter();
        let mut labels: Vec<String> = samples.map(|sample| sample["labels"].to_string()).collect();
        let count = labels.len();
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), count, "{}", family["name"]);
    }
}

/// Opens a terminal, and returns its two ends.
fn terminal() -> (File, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: the first two pointers are valid for the descriptors that the call writes; the others may be null.
    let opened = unsafe {
        libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut())
    };
    assert_eq!(opened, 0);
    // SAFETY: the call above opened both descriptors, which nothing else owns.
    unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}

#[test]
fn the_prompt_completes_words_and_remembers_commands() {
    let cell = Cell::start();
    let (mut master, slave) = terminal();
    let mut command = cell.command();
    command.env("HOME", cell.folder.path()).env("TERM", "xterm");
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = command.spawn().unwrap();
    drop(command);
    let (mut seen, mut from) = (String::new(), 0);
    // Reads until a text appears, after the place where the former one did.
    let mut until = |master: &mut File, text: &str| {
        let mut buffer = [0; 1024];
        let found = loop {
            if let Some(at) = seen[from..].find(text) {
                break at;
            }
            let length = master.read(&mut buffer).unwrap_or(0);
            assert!(length > 0, "{text} is missing in {seen}");
            seen += &String::from_utf8_lossy(&buffer[..length]);
        };
        from += found + text.len();
    };
    until(&mut master, "HELP lists the commands");
    until(&mut master, "CellCLI> ");
    master.write_all(b"list celld\t attributes name -\r").unwrap();
    until(&mut master, "celldisk");
    until(&mut master, "\n");
    master.write_all(b"limit 1\r").unwrap();
    until(&mut master, "CD_00_c1");
    until(&mut master, "CellCLI> ");
    master.write_all(b"show\r").unwrap();
    until(&mut master, "CELL-01504");
    until(&mut master, "CellCLI> ");
    master.write_all(b"quit\r").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "a command failed");
    let history = fs::read_to_string(cell.path(".cellcli_history")).unwrap();
    assert!(history.contains("list celldisk attributes name -\nlimit 1\nshow\nquit\n"), "{history}");
}

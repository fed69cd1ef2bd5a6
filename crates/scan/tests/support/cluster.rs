//! A temporary PostgreSQL cluster. Runs as user postgres if the test runs as root. Dropping the value stops the
//! cluster.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub struct Cluster {
    bin: PathBuf,
    dir: PathBuf,
    sessions: Vec<Child>,
}

/// Returns the directory of PostgreSQL's programs: from `PG_CONFIG`, or the newest version under /usr/lib/postgresql.
fn find_bin() -> Option<PathBuf> {
    if let Ok(pg_config) = std::env::var("PG_CONFIG") {
        let output = Command::new(pg_config).arg("--bindir").output().ok()?;
        return Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()));
    }
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|e| e.path()).collect();
    found.sort();
    found.into_iter().rev().map(|version| version.join("bin")).find(|bin| bin.join("initdb").exists())
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"))
}

impl Cluster {
    /// Creates and starts a cluster. None: PostgreSQL is not installed.
    pub fn start(name: &str) -> Option<Self> {
        let bin = find_bin()?;
        let dir = std::env::temp_dir().join(format!("cellar-scan-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).expect("the temporary directory can be created");
        if is_root() {
            assert!(Command::new("chown").arg("postgres").arg(&dir).status().is_ok_and(|status| status.success()));
        }
        let cluster = Self { bin, dir, sessions: Vec::new() };
        let data = cluster.data().display().to_string();
        cluster.run("initdb", &["-D", &data, "-E", "UTF8", "--locale=C", "-A", "trust", "-U", "postgres", "-k", "-N"]);
        // The cell assumes UTC where a function depends on the time zone.
        let options = format!(
            "-k {} -c TimeZone=UTC -c listen_addresses= -c fsync=off -c autovacuum=off -c full_page_writes=off",
            cluster.dir.display()
        );
        let log = cluster.dir.join("log").display().to_string();
        cluster.run("pg_ctl", &["-D", &data, "-o", &options, "-l", &log, "-w", "start"]);
        Some(cluster)
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn command(&self, program: &str) -> Command {
        let path = self.bin.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir("/");
        command
    }

    fn run(&self, program: &str, args: &[&str]) {
        let output = self.command(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).status();
        assert!(output.is_ok_and(|status| status.success()), "{program} {args:?}");
    }

    fn psql(&self) -> Command {
        let mut command = self.command("psql");
        command.args(["-X", "-q", "-A", "-t", "-F", "|", "-U", "postgres", "-d", "postgres", "-h"]).arg(&self.dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a script and returns its output. Panics if a statement fails.
    pub fn sql(&self, script: &str) -> String {
        let (out, err) = self.script(&format!("\\set ON_ERROR_STOP on\n{script}"));
        assert!(!err.contains("ERROR"), "{err}");
        out
    }

    /// Runs a script and continues after errors. Returns the output and the error output.
    pub fn script(&self, script: &str) -> (String, String) {
        let mut child = self.psql().spawn().expect("psql starts");
        let mut stdin = child.stdin.take().expect("psql has a standard input");
        let script = script.to_owned();
        let writer = std::thread::spawn(move || stdin.write_all(script.as_bytes()));
        let output = child.wait_with_output().expect("psql exits");
        let _ = writer.join();
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs a script in a session that stays open, with its transaction, until the cluster stops.
    pub fn keep_open(&mut self, script: &str) {
        let _ = std::fs::remove_file(self.marker());
        let mut child = self.psql().spawn().expect("psql starts");
        let stdin = child.stdin.as_mut().expect("psql has a standard input");
        writeln!(stdin, "{script}\n\\! touch {}", self.marker().display()).expect("psql reads");
        stdin.flush().expect("psql reads");
        self.sessions.push(child);
        for _ in 0..600 {
            if self.marker().exists() {
                let _ = std::fs::remove_file(self.marker());
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("the session did not complete its script in 30 seconds");
    }

    fn marker(&self) -> PathBuf {
        self.dir.join("script_completed")
    }

    /// Returns the bytes of a table's file, after a checkpoint.
    pub fn heap(&self, table: &str) -> Vec<u8> {
        let path = self.sql(&format!("checkpoint; select pg_relation_filepath('{table}')"));
        std::fs::read(self.data().join(Path::new(path.trim()))).expect("the heap file can be read")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for session in &mut self.sessions {
            let _ = session.kill();
            let _ = session.wait();
        }
        let data = self.data().display().to_string();
        let stopped = self.command("pg_ctl").args(["-D", &data, "-m", "immediate", "-w", "stop"]).output();
        drop(stopped);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

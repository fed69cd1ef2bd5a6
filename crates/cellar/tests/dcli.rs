//! `cellar dcli` with scripts in place of ssh and scp: a cell is a folder, in which its commands run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

const SSH: &str = r#"#!/bin/sh
while :; do
    case $1 in
    -o) options="$options $2"; shift 2 ;;
    -l) user=$2; shift 2 ;;
    *) break ;;
    esac
done
cell=$1
shift
if [ "$cell" = down ]; then
    echo "ssh: connect to host down port 22: No route to host" >&2
    exit 255
fi
cd "$CELLS/$cell" || exit 255
CELL=$cell REMOTE_USER=$user OPTIONS=$options exec sh -c -- "$*"
"#;
const SCP: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
# As scp, takes an argument with a colon before the first slash for one on another machine.
case $1 in
[!/]*:*) case ${1%%:*} in */*) ;; *) exit 1 ;; esac ;;
esac
for last; do :; done
host=${last%%:*}
while [ $# -gt 1 ]; do
    cp -p -r "$1" "$CELLS/${host#*@}/${last#*:}" || exit 1
    shift
done
"#;

struct Cells(tempfile::TempDir);

impl Cells {
    fn new() -> Self {
        let cells = Self(tempfile::tempdir().unwrap());
        for cell in ["cell1", "cell2", "cell3"] {
            fs::create_dir(cells.path(cell)).unwrap();
        }
        for (name, text) in [("ssh", SSH), ("scp", SCP)] {
            fs::write(cells.path(name), text).unwrap();
            fs::set_permissions(cells.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        cells
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn dcli(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.arg("dcli").arg("--scp").arg(self.path("scp"));
        if !arguments.contains(&"--ssh") {
            command.arg("--ssh").arg(self.path("ssh"));
        }
        command.args(arguments).env("CELLS", self.0.path()).current_dir(self.0.path()).output().unwrap()
    }

    /// Checks output and exit code.
    fn check(&self, arguments: &[&str], code: i32, expected: &str) {
        let output = self.dcli(arguments);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{arguments:?}: {}", errors(&output));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_command_runs_on_all_cells() {
    let cells = Cells::new();
    fs::write(cells.path("group"), "# the group\ncell2\ncell3\n").unwrap();
    let group = cells.path("group").display().to_string();

    let out = "cell1: hello cell1\ncell2: hello cell2\n";
    cells.check(&["-c", "cell1,cell2", "echo", "  hello $CELL"], 0, out);
    cells.check(&["-c", "cell1,cell2", "--serial", "echo hello $CELL"], 0, out);
    cells.check(&["-g", &group, "-c", "cell1", "--batchsize", "2", "echo x"], 0, "cell1: x\ncell2: x\ncell3: x\n");
    cells.check(&["-c", "cell1", "-l", "root", "-s", "-o Port=22", "echo $REMOTE_USER -e"], 0, "cell1: root -e\n");
    cells.check(&[&format!("-g{group}"), "-lroot", "echo $REMOTE_USER", "-e"], 0, "cell2: root -e\ncell3: root -e\n");
    cells.check(&["-ccell1", "--serial", "echo", "-x", "--vmstat"], 0, "cell1: -x --vmstat\n");
    cells.check(&["-c", "cell1", "--", "-k", "2>&1 | grep -c -- -k"], 0, "cell1: 1\n");
    let options = "BatchMode=yes ConnectTimeout=3 ConnectTimeout=10 ServerAliveInterval=15 ControlMaster=no";
    let expected = format!("cell1: {options}\n");
    cells.check(&["-c", "cell1", "-s", "-o ConnectTimeout=3", "echo $OPTIONS"], 0, &expected);
    cells.check(&["-t", "-g", &group], 0, "Target cells: ['cell2', 'cell3']\n");
    cells.check(&["-t", "-c", "cell1", "echo x"], 0, "Target cells: ['cell1']\ncell1: x\n");
    let command = "echo 1; echo 2 >&2; echo 3";
    cells.check(&["-c", "cell1", command], 0, "cell1: 1\ncell1: 2\ncell1: 3\n");
    cells.check(&["-c", "cell1", "--hidestderr", command], 0, "cell1: 1\ncell1: 3\n");
}

#[test]
fn a_key_is_added_once_to_each_cell() {
    let cells = Cells::new();
    let dcli = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.arg("dcli").arg("--ssh").arg(cells.path("ssh")).args(arguments);
        let output = command.env("HOME", cells.0.path()).env("CELLS", cells.0.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout.clone()).unwrap(), errors(&output))
    };
    let (code, _, error) = dcli(&["-k", "-c", "cell1"]);
    assert!(code == Some(2) && error.contains("has no public key"), "{error}");

    fs::create_dir(cells.path(".ssh")).unwrap();
    let key = "ssh-ed25519 AAAA it's ann@server";
    fs::write(cells.path(".ssh/id_ed25519.pub"), format!("{key}\n")).unwrap();
    fs::create_dir(cells.path("cell2/.ssh")).unwrap();
    fs::write(cells.path("cell2/.ssh/authorized_keys"), "ssh-rsa BBBB other").unwrap();
    let added = dcli(&["-k", "-c", "cell1,cell2", "echo", "$OPTIONS"]);
    let (text, options) = added.1.split_at(added.1.find("cell1: BatchMode").unwrap());
    assert_eq!((added.0, text), (Some(0), "cell1: ssh key added\ncell2: ssh key added\n"));
    assert!(options.starts_with("cell1: BatchMode=yes "), "the command itself must not ask: {options}");
    let keys = |cell: &str| fs::read_to_string(cells.path(cell).join(".ssh/authorized_keys")).unwrap();
    assert_eq!((keys("cell1"), keys("cell2")), (format!("{key}\n"), format!("ssh-rsa BBBB other\n{key}\n")));
    let again = dcli(&["-k", "-c", "cell1"]);
    assert_eq!((again.0, again.1.as_str()), (Some(0), "cell1: ssh key already exists\n"));
    assert_eq!(keys("cell1"), format!("{key}\n"));
    let mode = fs::metadata(cells.path("cell1/.ssh/authorized_keys")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let removed = dcli(&["--unkey", "-c", "cell2"]);
    assert_eq!((removed.0, removed.1.as_str()), (Some(0), "cell2: ssh key dropped\n"), "{removed:?}");
    assert_eq!(keys("cell2"), "ssh-rsa BBBB other\n", "other keys stay");
    let again = dcli(&["--unkey", "-c", "cell1,cell2"]);
    assert_eq!((again.0, again.1.as_str()), (Some(0), "cell1: ssh key dropped\ncell2: ssh key does not exist\n"));
    assert_eq!(keys("cell1"), "");
    assert_eq!(fs::read_dir(cells.path("cell1/.ssh")).unwrap().count(), 1, "no temporary file is left");
    let failed = dcli(&["-k", "-c", "down", "echo"]);
    assert_eq!(failed.0, Some(1), "{failed:?}");
}

/// Administrators restrict keys with options and rename their comments.
#[test]
fn a_key_is_removed_whatever_its_options_and_comment() {
    let cells = Cells::new();
    let unkey = |cell: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.arg("dcli").arg("--ssh").arg(cells.path("ssh")).args(["--unkey", "-c", cell]);
        let output = command.env("HOME", cells.0.path()).env("CELLS", cells.0.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    for folder in [".ssh", "cell1/.ssh", "cell1/kept", "cell2/.ssh", "cell2/.ssh/authorized_keys"] {
        fs::create_dir(cells.path(folder)).unwrap();
    }
    fs::write(cells.path(".ssh/id_ed25519.pub"), "ssh-ed25519 AAAA+/1= ann@server\n").unwrap();
    // Not the key: a comment, a comment of a key, an option, a longer key, and one of another type.
    let others = "# ssh-ed25519 AAAA+/1= ann@server\n\
                  ssh-rsa BBBB ssh-ed25519 AAAA+/1=\n\
                  command=\"echo \\\" ssh-ed25519 AAAA+/1=\" ssh-rsa CCCC bob\r\n\
                  ssh-ed25519 AAAA+/1=2 ann@server\n\
                  \n\
                  ssh-rsa AAAA+/1= ann@server\n";
    let own = "ssh-ed25519 AAAA+/1=\n\
               ssh-ed25519 AAAA+/1= another comment\n\
               \tssh-ed25519  AAAA+/1= ann@server\r\n\
               ssh-ed25519 AAAA+/1=\r\n\
               from=\"10.0.0.1,10.0.0.2\",no-pty ssh-ed25519 AAAA+/1= ann@server\n\
               no-pty,command=\"echo \\\"a b\\\" ssh-rsa\" ssh-ed25519 AAAA+/1= ann@server";
    let file = cells.path("cell1/kept/keys");
    fs::write(&file, format!("{others}{own}")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let link = cells.path("cell1/.ssh/authorized_keys");
    std::os::unix::fs::symlink("../kept/keys", &link).unwrap();
    assert_eq!(unkey("cell1"), (Some(0), "cell1: ssh key dropped\n".to_owned()));
    assert_eq!(fs::read_to_string(&file).unwrap(), others);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(unkey("cell1"), (Some(0), "cell1: ssh key does not exist\n".to_owned()));
    assert_eq!(fs::read_link(&link).unwrap(), PathBuf::from("../kept/keys"), "the link stays");
    assert_eq!(fs::read_dir(cells.path("cell1/kept")).unwrap().count(), 1, "no temporary file is left");

    let (code, output) = unkey("cell2");
    assert!(code == Some(1) && !output.contains("does not exist"), "a file that cannot be read: {code:?} {output}");
    assert_eq!(fs::read_dir(cells.path("cell2/.ssh")).unwrap().count(), 1, "no temporary file is left");
    assert_eq!(unkey("cell3"), (Some(0), "cell3: ssh key does not exist\n".to_owned()));
}

#[test]
fn failures_are_shown_and_set_the_exit_code() {
    let cells = Cells::new();
    let unreachable = "down: ssh: connect to host down port 22: No route to host\n";
    cells.check(&["-c", "cell1,down", "echo ok"], 1, &format!("cell1: ok\n{unreachable}"));
    cells.check(&["-n", "-c", "cell1,down,cell2", "echo ok"], 1, &format!("OK: ['cell1', 'cell2']\n{unreachable}"));
    cells.check(
        &["-n", "-c", "cell1,cell2", "[ $CELL = cell1 ] || { echo no; exit 3; }"],
        1,
        "OK: ['cell1']\ncell2: no\n",
    );
    cells.check(&["-c", "cell1,cell2", "[ $CELL = cell1 ]"], 1, "cell2: exit code 1\n");
    let command = "echo CD_00 normal; echo CD_01 offline";
    let expected = ".*normal: ['cell1', 'cell2']\ncell1: CD_01 offline\ncell2: CD_01 offline\n";
    cells.check(&["-r", ".*normal", "-c", "cell1,cell2", command], 0, expected);

    for (arguments, expected) in [
        (&["echo x"][..], "there are no cells; name them with -c or -g"),
        (&["-c", "cell1"], "there is no command"),
        (&["-c", "cell1,-oProxyCommand=x", "echo x"], "is not the name of a cell"),
        (&["-g", "/missing", "echo x"], "could not read /missing"),
        (&["-c", "cell1", "-r", "[", "echo x"], "no closing bracket"),
        (&["-c", "cell1", "--vmstat", "3"], "unexpected argument '--vmstat'"),
        (&["--unkey", "-k", "-c", "cell1"], "'--unkey' cannot be used with '-k'"),
        (&["-c", "cell1", "--ssh", "/missing/ssh", "echo x"], "could not run /missing/ssh"),
    ] {
        let output = cells.dcli(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors(&output).contains(expected), "{arguments:?}: {}", errors(&output));
    }
}

#[test]
fn a_program_that_does_not_start_for_one_cell_is_a_failure_of_that_cell() {
    let cells = Cells::new();
    // The first cell removes its copy of the program.
    let ssh = cells.path("own-ssh");
    fs::copy(cells.path("ssh"), &ssh).unwrap();
    let ssh = ssh.display().to_string();
    let remove = format!("echo x; rm -f {ssh}");
    let out = format!("cell1: x\ncell2: could not run {ssh}: No such file or directory (os error 2)\n");
    cells.check(&["--ssh", &ssh, "--serial", "-c", "cell1,cell2", &remove], 1, &out);
}

#[test]
fn files_are_copied_and_scripts_run() {
    let cells = Cells::new();
    fs::write(cells.path("notes.txt"), "text").unwrap();
    fs::write(cells.path("run me.sh"), "#!/bin/sh\necho $CELL $1 $(cat notes.txt)\n").unwrap();
    fs::write(cells.path("a.scl"), "list cell").unwrap();
    fs::write(cells.path("a:b"), "colon").unwrap();
    let at = |name: &str| cells.path(name).display().to_string();

    cells.check(&["-c", "cell1,cell2", "-f", &at("notes.txt")], 0, "");
    cells.check(&["-c", "cell1,cell2", "cat notes.txt"], 0, "cell1: text\ncell2: text\n");
    cells.check(
        &["-c", "cell1,cell2", "-l", "u", "-x", &at("run me.sh"), "go"],
        0,
        "cell1: cell1 go text\ncell2: cell2 go text\n",
    );
    cells.check(&["-c", "cell1", "-f", &at("notes.txt"), "-d", "other", "cat other"], 0, "cell1: text\n");
    fs::create_dir(cells.path("cell1/folder")).unwrap();
    cells.check(&["-c", "cell1", "-x", &at("run me.sh"), "-d", "folder", "go"], 0, "cell1: cell1 go text\n");
    assert!(cells.path("cell1/folder/run me.sh").exists());
    cells.check(&["-c", "cell1", "-x", &at("run me.sh"), "-d", "./run", "go"], 0, "cell1: cell1 go text\n");
    cells.check(&["-c", "cell1", "-f", "a:b", "cat a:b"], 0, "cell1: colon\n");
    // The command for a script of CellCLI, which needs no cell to be seen.
    let bin = cells.path("cell3/bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("cellar"), "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(bin.join("cellar"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    command.arg("dcli").arg("--ssh").arg(cells.path("ssh")).arg("--scp").arg(cells.path("scp"));
    let output =
        command.args(["-c", "cell3", "-x", &at("a.scl")]).env("CELLS", cells.0.path()).env("PATH", path).output();
    assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout), "cell3: cellcli -e @'./a.scl'\n");
    assert!(cells.path("cell3/a.scl").exists());

    let arguments = cells.dcli(&["-c", "cell3", "-x", &at("a.scl"), "go"]);
    assert_eq!(arguments.status.code(), Some(2));
    assert!(errors(&arguments).contains("takes no arguments, but go follows"), "{}", errors(&arguments));

    let missing = cells.dcli(&["-c", "cell1", "-f", "/missing/file", "echo not run"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(!String::from_utf8_lossy(&missing.stdout).contains("not run"));
}

#[test]
fn a_reader_of_the_output_may_end_early() {
    let cells = Cells::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    command.arg("dcli").arg("--ssh").arg(cells.path("ssh")).args(["-t", "-c", "cell1", "echo x"]);
    let output = command.env("CELLS", cells.0.path()).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), errors(&output).as_str()), (Some(0), ""));
}

#[test]
fn a_link_to_the_binary_runs_the_command_of_its_name() {
    let cells = Cells::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cellar"), cells.path("dcli")).unwrap();
    let mut command = Command::new(cells.path("dcli"));
    command.arg("--ssh").arg(cells.path("ssh")).args(["-c", "cell1", "echo x"]);
    let output = command.env("CELLS", cells.0.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "cell1: x\n");
}

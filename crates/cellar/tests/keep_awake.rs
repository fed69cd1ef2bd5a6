//! Tests of `cellar keep-awake`: it becomes ready, lowers the weight of its session, and exits with its parent.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn exits_within(child: &mut Child, timeout: Duration) -> bool {
    let since = Instant::now();
    while since.elapsed() < timeout {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

fn start(memory: std::fs::File) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    command.arg("keep-awake").stdin(memory).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn the_session_has_the_lowest_weight_and_exits_with_its_parent() {
    let memory = tempfile::tempfile().unwrap();
    memory.set_len(128).unwrap();
    let mut child = start(memory);
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0]).unwrap();
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", child.id()));
    if let Ok(group) = of("autogroup") {
        assert!(group.trim().ends_with("nice 19"), "{group}");
    }
    let session = |stat: String| stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap().to_string();
    assert_eq!(session(of("stat").unwrap()), child.id().to_string());
    assert!(!exits_within(&mut child, Duration::from_millis(200)));
    drop(output);
    assert!(exits_within(&mut child, Duration::from_secs(5)));
}

#[test]
fn keep_awake_fails_without_shared_memory() {
    let mut child = start(tempfile::tempfile().unwrap());
    assert!(exits_within(&mut child, Duration::from_secs(5)));
    assert!(!child.wait().unwrap().success());
}

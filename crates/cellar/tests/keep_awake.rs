//! The program that keeps CPUs awake: ready soon, in a session of the least weight, gone when its starter is.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn ended_within(child: &mut Child, patience: Duration) -> bool {
    let since = Instant::now();
    while since.elapsed() < patience {
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
fn it_is_light_and_ends_with_whoever_started_it() {
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
    assert!(!ended_within(&mut child, Duration::from_millis(200)));
    drop(output);
    assert!(ended_within(&mut child, Duration::from_secs(5)));
}

#[test]
fn without_memory_to_share_it_fails_at_once() {
    let mut child = start(tempfile::tempfile().unwrap());
    assert!(ended_within(&mut child, Duration::from_secs(5)));
    assert!(!child.wait().unwrap().success());
}

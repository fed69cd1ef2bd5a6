//! Tests of the client against a peer that sends valid and invalid bytes. Invalid bytes lead to an error with the
//! SQLSTATE of a protocol violation, never to a wrong batch, a panic or an endless wait.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use cellar_client::connection::{Connection, Event};
use cellar_format::stats::ScanStats;
use cellar_format::wire::{
    BATCH_HEADER_BYTES, BatchHeader, BatchMode, BlockRange, ColumnHeader, ConsumerGroups, DatabaseNames, ErrorReport,
    FrameHeader, Hello, Kind, PROTOCOL_VERSION, RangeDone, Welcome, XidQuery, XidState,
};

struct Peer {
    stream: UnixStream,
    /// For further connections of the client.
    listener: UnixListener,
    _folder: tempfile::TempDir,
}

fn connected() -> (Connection, Peer) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cell.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let hello = Hello { backend_pid: 1, database: 2, system_identifier: 3, incarnation: 4 };
    let connection = Connection::open(&path, hello).unwrap();
    let (stream, _) = listener.accept().unwrap();
    (connection, Peer { stream, listener, _folder: folder })
}

/// Returns the next event other than a wait.
fn event(connection: &mut Connection) -> Event {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match connection.next_event() {
            Event::WaitReadable | Event::WaitWritable | Event::WaitConnect => {
                assert!(Instant::now() < deadline, "no event came");
                std::thread::sleep(Duration::from_millis(1));
            }
            event => return event,
        }
    }
}

fn frame(kind: Kind, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    FrameHeader::frame(&mut bytes, kind, write);
    bytes
}

fn welcome() -> Vec<u8> {
    frame(Kind::Welcome, |out| Welcome { instance: 11 }.encode(out))
}

/// Returns a frame with a batch of two int4 values.
fn batch() -> Vec<u8> {
    frame(Kind::Batch, |out| {
        out.extend(BatchHeader { rows: 2, first_block: 9, columns: 1, mode: BatchMode::Columns }.encode());
        let header = ColumnHeader { nulls_offset: 0, values_offset: 40, data_offset: 0, data_bytes: 0, stride: 4 };
        out.extend(header.encode());
        out.extend(7u32.to_le_bytes());
        out.extend(8u32.to_le_bytes());
    })
}

fn failure(connection: &mut Connection) -> ErrorReport {
    match event(connection) {
        Event::Failed(report) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_arrives_byte_by_byte() {
    let (mut connection, mut peer) = connected();
    connection.scan_range(BlockRange { first: 0, end: 10 });
    let mut bytes = welcome();
    bytes.extend(batch());
    bytes.extend(frame(Kind::RangeDone, |out| {
        RangeDone { stats: ScanStats { rows_returned: 2, ..Default::default() } }.encode(out)
    }));
    let sender = std::thread::spawn(move || {
        for byte in bytes {
            peer.stream.write_all(&[byte]).unwrap();
        }
        peer
    });
    assert_eq!(connection.instance(), None);
    match event(&mut connection) {
        Event::Batch(batch) => {
            assert_eq!(connection.instance(), Some(11));
            assert_eq!((batch.rows, batch.first_block), (2, 9));
            let at = batch.columns[0].header.values_offset as usize;
            assert_eq!(connection.payload()[at..at + 4], 7u32.to_le_bytes());
            assert_eq!(connection.payload().as_ptr() as usize % 8, 0);
        }
        other => panic!("{other:?}"),
    }
    match event(&mut connection) {
        Event::RangeDone(stats) => assert_eq!(stats.rows_returned, 2),
        other => panic!("{other:?}"),
    }
    drop(sender.join());
}

#[test]
fn transaction_states_answer_a_query() {
    let (mut connection, mut peer) = connected();
    peer.stream.write_all(&frame(Kind::XidQuery, |out| XidQuery { xids: vec![700, 701] }.encode(out))).unwrap();
    match event(&mut connection) {
        Event::XidQuery(query) => assert_eq!(query.xids, [700, 701]),
        other => panic!("{other:?}"),
    }
    connection.answer_xids(vec![XidState::Committed, XidState::Running]);
    let mut received = vec![0; 16 + 24 + 16 + 6];
    peer.stream.read_exact(&mut received).unwrap();
    assert_eq!(received[16 + 24..][..16], FrameHeader { kind: Kind::XidStates, payload_bytes: 6 }.encode());
    assert_eq!(received[62 - 2..], [1, 2]);
}

#[test]
fn an_error_of_the_cell_is_reported_unchanged() {
    let (mut connection, mut peer) = connected();
    let report = ErrorReport {
        sqlstate: "58030".to_owned(),
        message: "could not read".to_owned(),
        detail: "disk 1".to_owned(),
        hint: "look".to_owned(),
    };
    peer.stream.write_all(&frame(Kind::Error, |out| report.encode(out))).unwrap();
    assert_eq!(failure(&mut connection), report);
    assert_eq!(failure(&mut connection), report);
}

#[test]
fn a_cell_of_another_protocol_version_is_an_error_that_names_both_versions() {
    let (mut connection, mut peer) = connected();
    let mut greeting = welcome();
    greeting[6..8].copy_from_slice(&4u16.to_le_bytes());
    peer.stream.write_all(&greeting).unwrap();
    let report = failure(&mut connection);
    assert_eq!(report.sqlstate, "08P01");
    assert!(report.message.ends_with("uses another protocol version"), "{report:?}");
    let expected = format!("The cell uses protocol version 4, the extension uses version {PROTOCOL_VERSION}.");
    assert_eq!(report.detail, expected);
}

#[test]
fn a_closed_connection_is_an_error() {
    let (mut connection, peer) = connected();
    connection.scan_range(BlockRange { first: 0, end: 10 });
    drop(peer);
    assert_eq!(failure(&mut connection).sqlstate, "08006");
}

/// Returns a socket whose listen queue is full, as that of a stopped daemon.
fn full_queue(folder: &tempfile::TempDir) -> (std::path::PathBuf, UnixListener, Vec<UnixStream>) {
    let path = folder.path().join("cell.sock");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let waiting = vec![UnixStream::connect(&path).unwrap()];
    (path, listener, waiting)
}

#[test]
fn connecting_is_retried_while_the_listen_queue_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let (path, listener, waiting) = full_queue(&folder);
    let hello = Hello { backend_pid: 1, database: 2, system_identifier: 3, incarnation: 4 };
    let mut connection = Connection::open(&path, hello).unwrap();
    connection.scan_range(BlockRange { first: 0, end: 10 });
    assert!(matches!(connection.next_event(), Event::WaitConnect));
    assert!(matches!(connection.next_event(), Event::WaitConnect));
    drop(listener.accept().unwrap());
    assert!(matches!(connection.next_event(), Event::WaitReadable));
    let (mut peer, _) = listener.accept().unwrap();
    let mut received = vec![0; 16 + 24 + 16 + 8];
    peer.read_exact(&mut received).unwrap();
    assert_eq!(received[..16], FrameHeader { kind: Kind::Hello, payload_bytes: 24 }.encode());
    peer.write_all(&batch()).unwrap();
    assert!(matches!(event(&mut connection), Event::Batch(_)));
    drop(waiting);
}

#[test]
fn connecting_fails_after_two_seconds_with_a_full_listen_queue() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _listener, _waiting) = full_queue(&folder);
    let hello = Hello { backend_pid: 1, database: 2, system_identifier: 3, incarnation: 4 };
    let mut connection = Connection::open(&path, hello).unwrap();
    let report = failure(&mut connection);
    assert_eq!(report.sqlstate, "08001");
    assert!(report.detail.contains("no connection in 2 s"), "{report:?}");
    assert!(report.hint.contains("stopped or overloaded"), "{report:?}");
}

#[test]
fn counts_of_a_range_arrive_before_its_rows_and_at_its_end() {
    let (mut connection, mut peer) = connected();
    connection.scan_range(BlockRange { first: 0, end: 10 });
    let counts = |eligible_bytes| RangeDone { stats: ScanStats { eligible_bytes, ..Default::default() } };
    peer.stream.write_all(&frame(Kind::RangeProgress, |out| counts(3).encode(out))).unwrap();
    peer.stream.write_all(&batch()).unwrap();
    peer.stream.write_all(&frame(Kind::RangeDone, |out| counts(7).encode(out))).unwrap();
    assert!(matches!(event(&mut connection), Event::RangeProgress(stats) if stats.eligible_bytes == 3));
    assert!(matches!(event(&mut connection), Event::Batch(_)));
    assert!(matches!(event(&mut connection), Event::RangeDone(stats) if stats.eligible_bytes == 7));
}

#[test]
fn a_new_scan_receives_no_frame_of_an_abandoned_scan() {
    let (mut connection, Peer { stream: mut first, listener, _folder }) = connected();
    connection.scan_range(BlockRange { first: 0, end: 10 });
    first.write_all(&batch()).unwrap();
    assert!(matches!(event(&mut connection), Event::Batch(_)));
    connection.scan_open(Ok(vec![0; 8]));
    let (mut second, _) = listener.accept().unwrap();
    second.write_all(&frame(Kind::XidQuery, |out| XidQuery { xids: vec![5] }.encode(out))).unwrap();
    assert!(matches!(event(&mut connection), Event::XidQuery(_)));
}

/// Receives a frame that the client has sent.
fn sent(stream: &mut UnixStream) -> (Kind, Vec<u8>) {
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    let FrameHeader { kind, payload_bytes } = FrameHeader::decode(&header).unwrap();
    let mut payload = vec![0; payload_bytes as usize];
    stream.read_exact(&mut payload).unwrap();
    (kind, payload)
}

#[test]
fn names_are_sent_when_they_change_and_the_own_group_also_on_the_socket_of_a_new_scan() {
    let (mut connection, Peer { stream: mut first, listener, _folder }) = connected();
    let names = |name: &str| DatabaseNames { roots: vec!["pg".into()], databases: vec![(5, name.into())] };
    let group = |group: &str| ConsumerGroups { processes: vec![(1, group.into())] };
    for name in ["sales", "sales", "sold"] {
        connection.tell_names(names(name));
        connection.tell_group(group(name));
    }
    connection.scan_range(BlockRange { first: 0, end: 10 });
    assert_eq!(sent(&mut first).0, Kind::Hello);
    for name in ["sales", "sold"] {
        let (kind, payload) = sent(&mut first);
        assert_eq!((kind, DatabaseNames::decode(&payload).unwrap()), (Kind::DatabaseNames, names(name)));
        let (kind, payload) = sent(&mut first);
        assert_eq!((kind, ConsumerGroups::decode(&payload).unwrap()), (Kind::ConsumerGroups, group(name)));
    }
    assert_eq!(sent(&mut first).0, Kind::ScanRange);
    // The answer to the range is still outstanding.
    connection.scan_open(Ok(vec![0; 8]));
    let (mut second, _) = listener.accept().unwrap();
    assert_eq!([(); 3].map(|()| sent(&mut second).0), [Kind::Hello, Kind::ConsumerGroups, Kind::ScanOpen]);
}

#[test]
fn corrupt_frames_are_errors_and_never_panic() {
    let seed = std::env::var("CELLAR_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    println!("CELLAR_SEED={seed}");
    let mut state = seed;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let good = batch();
    for _ in 0..300 {
        let (mut connection, mut peer) = connected();
        let mut bytes = good.clone();
        for _ in 0..1 + random() % 3 {
            let at = random() % bytes.len();
            bytes[at] = random() as u8;
        }
        bytes.truncate(1 + random() % bytes.len());
        let _ = peer.stream.write_all(&bytes);
        drop(peer);
        loop {
            match event(&mut connection) {
                Event::Failed(report) => {
                    assert!(["08P01", "08006"].contains(&report.sqlstate.as_str()), "{report:?}");
                    break;
                }
                Event::Batch(batch) => assert!(
                    batch.rows as usize * 4 <= connection.payload().len() - BATCH_HEADER_BYTES
                        || batch.columns.is_empty()
                ),
                _ => {}
            }
        }
    }
}

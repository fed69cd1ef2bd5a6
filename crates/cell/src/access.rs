//! Which files a peer of the socket may use.
//!
//! A request names a file by its path below the mount. The cell grants what the kernel would grant if the peer opened the
//! file on the mount: search permission on each directory of the path, and read or write permission on the file, by
//! owner, group and mode. As for the kernel, root needs no permission.

use std::sync::Arc;

use cellar_storage::{Attr, Error, ErrorKind, Ino, ROOT_INO, Result, Volume};

const READ: u16 = 0o4;
const WRITE: u16 = 0o2;
const SEARCH: u16 = 0o1;

/// The permissions that a request needs on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Read,
    ReadAndWrite,
    /// To list a directory's files with their attributes.
    List,
}

impl Permission {
    fn bits(self) -> u16 {
        match self {
            Self::Read => READ,
            Self::ReadAndWrite => READ | WRITE,
            Self::List => READ | SEARCH,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadAndWrite => "write",
            Self::List => "list",
        }
    }
}

/// The effective user and groups of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Returns root's credentials, which grant everything.
    pub fn root() -> Arc<Self> {
        Arc::new(Self { uid: 0, gid: 0, groups: Vec::new() })
    }

    /// Returns the inode at a path, which need not be a file, or None if the path does not exist. Returns an error of kind
    /// [`ErrorKind::NotPermitted`] if the peer lacks the permission.
    pub fn resolve(&self, volume: &Volume, path: &str, permission: Permission) -> Result<Option<Ino>> {
        let denied = |attempt: &str, at: &str| {
            let at = if at.is_empty() { "the root directory of the mount" } else { at };
            let message = format!("user id {} is not permitted to {attempt} {at}", self.uid);
            Error::new(ErrorKind::NotPermitted, message)
        };
        let (mut ino, mut walked) = (ROOT_INO, String::new());
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            if !self.is_granted(&volume.getattr(ino)?, SEARCH) {
                return Err(denied("search", &walked));
            }
            let Some(next) = volume.entry(ino, name.as_bytes()) else { return Ok(None) };
            ino = next;
            if !walked.is_empty() {
                walked.push('/');
            }
            walked.push_str(name);
        }
        match self.is_granted(&volume.getattr(ino)?, permission.bits()) {
            true => Ok(Some(ino)),
            false => Err(denied(permission.verb(), &walked)),
        }
    }

    /// Checks a permission on an inode by its path. Only root may use an inode without a path.
    pub fn check(&self, volume: &Volume, ino: Ino, permission: Permission) -> Result<()> {
        match volume.path_of(ino) {
            _ if self.uid == 0 => Ok(()),
            Some(path) => self.resolve(volume, &path, permission).map(drop),
            None => {
                let message = format!("user id {} is not permitted to use inode {ino}, which has no path", self.uid);
                Err(Error::new(ErrorKind::NotPermitted, message))
            }
        }
    }

    /// Returns whether the mode grants all of the wanted permission bits.
    fn is_granted(&self, attr: &Attr, wanted: u16) -> bool {
        let shift = if attr.uid == self.uid {
            6
        } else if attr.gid == self.gid || self.groups.contains(&attr.gid) {
            3
        } else {
            0
        };
        self.uid == 0 || attr.mode >> shift & wanted == wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellar_storage::disk::{DirectoryDisk, Disk};
    use cellar_storage::{Kind, NewNode, SetAttr, VolumeOptions};

    const OWNER: u32 = 100;
    const GROUP: u32 = 200;

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid, groups: groups.to_vec() }
    }

    /// A volume with the file `folder/file`.
    fn volume(folder: &std::path::Path) -> (Arc<Volume>, [Ino; 2]) {
        let disk = Arc::new(DirectoryDisk::new(folder.join("disk")).unwrap()) as Arc<dyn Disk>;
        let options = VolumeOptions { root_uid: OWNER, root_gid: GROUP, ..VolumeOptions::default() };
        let volume = Volume::open(vec![disk], options).unwrap();
        let new = |kind, mode| NewNode { kind, mode, uid: OWNER, gid: GROUP, device: 0, target: b"" };
        let folder = volume.create(ROOT_INO, b"folder", &new(Kind::Directory, 0o700)).unwrap().ino;
        let file = volume.create(folder, b"file", &new(Kind::File, 0o600)).unwrap().ino;
        (volume, [folder, file])
    }

    #[test]
    fn owner_group_and_mode_decide_as_in_the_kernel() {
        let temporary = tempfile::tempdir().unwrap();
        let (volume, [folder, file]) = volume(temporary.path());
        let set_mode = |ino, mode| {
            volume.setattr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
        };
        let (owner, stranger) = (user(OWNER, 1, &[]), user(7, 8, &[9]));
        let (member, supplementary) = (user(7, GROUP, &[]), user(7, 8, &[9, GROUP]));
        let allowed = |peer: &Credentials, permission| match peer.resolve(&volume, "folder/file", permission) {
            Ok(found) => {
                assert_eq!(found, Some(file));
                peer.check(&volume, file, permission).unwrap();
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
                assert!(error.to_string().contains("folder"), "{error}");
                peer.check(&volume, file, permission).unwrap_err();
                false
            }
        };
        use Permission::{Read, ReadAndWrite};
        set_mode(ROOT_INO, 0o755);
        // The modes of the directory and of the file; who may read; who may write.
        let cases = [
            (0o700, 0o600, [true, false, false], [true, false, false]),
            (0o755, 0o640, [true, true, false], [true, false, false]),
            (0o750, 0o666, [true, true, false], [true, true, false]),
            (0o711, 0o644, [true, true, true], [true, false, false]),
            (0o755, 0o666, [true, true, true], [true, true, true]),
            // The owner and the group do not have the permissions of others.
            (0o755, 0o046, [false, true, true], [false, false, true]),
            (0o755, 0o606, [true, false, true], [true, false, true]),
            // Read permission on a directory is not permission to search.
            (0o766, 0o666, [true, false, false], [true, false, false]),
            (0o677, 0o666, [false, true, true], [false, true, true]),
        ];
        for (folder_mode, file_mode, reads, writes) in cases {
            set_mode(folder, folder_mode);
            set_mode(file, file_mode);
            for (permission, expected) in [(Read, reads), (ReadAndWrite, writes)] {
                let peers = [&owner, &member, &stranger];
                let found = peers.map(|peer| allowed(peer, permission));
                assert_eq!(found, expected, "{folder_mode:o} {file_mode:o} {permission:?}");
                assert_eq!(allowed(&supplementary, permission), expected[1]);
                assert!(allowed(&Credentials::root(), permission));
            }
        }
        set_mode(folder, 0o755);
        assert_eq!(stranger.resolve(&volume, "folder/missing", Read).unwrap(), None);
        set_mode(folder, 0o700);
        stranger
            .resolve(&volume, "folder/missing", Read)
            .expect_err("a stranger cannot find out whether a file exists");

        volume.lookup(folder, b"file").unwrap();
        volume.unlink(folder, b"file").unwrap();
        owner.check(&volume, file, Read).expect_err("only root may use a file without a path");
        Credentials::root().check(&volume, file, Read).unwrap();
        volume.forget(file, 1);
        volume.close().unwrap();
    }
}

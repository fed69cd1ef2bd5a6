//! Option -k: adds the public key of the user to the authorized keys on a cell, so that ssh asks for no password from then on. Option
//! --unkey removes it.

use super::remote::quoted;
use std::path::Path;

/// The files that ssh-keygen writes, in the order in which ssh tries the keys.
const PUBLIC_KEYS: [&str; 3] = ["id_rsa.pub", "id_ecdsa.pub", "id_ed25519.pub"];

/// Returns the command that adds the key of the user who runs this program. It runs in the home folder on the cell, as commands of ssh
/// do.
pub fn addition() -> Result<String, String> {
    let key = own_key()?;
    // The last line of the file may have no end.
    Ok(format!(
        "umask 077; f=.ssh/authorized_keys; mkdir -p .ssh && touch $f || exit; \
         if grep -qxF -e {key} $f; then echo ssh key already exists; exit; fi; \
         if [ -n \"$(tail -c 1 $f)\" ]; then echo >>$f; fi; \
         printf '%s\\n' {key} >>$f && echo ssh key added"
    ))
}

/// Returns the command that removes the key. The file with the other keys takes the place of the old one at once, so that an interruption
/// locks nobody out.
pub fn removal() -> Result<String, String> {
    let key = own_key()?;
    Ok(format!(
        "umask 077; f=.ssh/authorized_keys; \
         if ! grep -qsxF -e {key} $f; then echo ssh key does not exist; exit; fi; \
         t=$(mktemp $f.XXXXXX) || exit; \
         grep -vxF -e {key} $f >$t; \
         if [ $? -gt 1 ]; then rm -f $t; exit 1; fi; \
         mv $t $f && echo ssh key dropped"
    ))
}

/// Returns the public key of the user who runs this program, quoted for a shell.
fn own_key() -> Result<String, String> {
    let home = std::env::var_os("HOME").ok_or("HOME is not set, so that there is no folder with keys")?;
    Ok(quoted(&public_key(&Path::new(&home).join(".ssh"))?))
}

fn public_key(folder: &Path) -> Result<String, String> {
    for name in PUBLIC_KEYS {
        let path = folder.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) if text.trim().is_empty() || text.trim().contains(char::is_control) => {
                return Err(format!("{} is not a public key", path.display()));
            }
            Ok(text) => return Ok(text.trim().to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("could not read {}: {error}", path.display())),
        }
    }
    let names = PUBLIC_KEYS.join(", ");
    Err(format!("{} has no public key ({names}); make one with ssh-keygen", folder.display()))
}

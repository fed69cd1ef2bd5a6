//! Option -k: adds the public key of the user to the authorized keys on a cell, so that ssh asks for no password from then on. Option
//! --unkey removes it.

use super::remote::quoted;
use std::path::Path;

/// The files that ssh-keygen writes, in the order in which ssh tries the keys.
const PUBLIC_KEYS: [&str; 3] = ["id_rsa.pub", "id_ecdsa.pub", "id_ed25519.pub"];

/// Returns the command that adds the key of the user who runs this program. It runs in the home folder on the cell, as commands of ssh
/// do.
pub fn addition() -> Result<String, String> {
    let key = quoted(&own_key()?);
    // The last line of the file may have no end.
    Ok(format!(
        "umask 077; f=.ssh/authorized_keys; mkdir -p .ssh && touch $f || exit; \
         if grep -qxF -e {key} $f; then echo ssh key already exists; exit; fi; \
         if [ -n \"$(tail -c 1 $f)\" ]; then echo >>$f; fi; \
         printf '%s\\n' {key} >>$f && echo ssh key added"
    ))
}

/// Copies the lines of authorized keys without those of a key, whatever their options and comment. As in sshd, a line begins with the
/// type of the key, or else with options, in which blanks between quotation marks belong to an option. The exit code is 3 if there is
/// no such line.
const WITHOUT_KEY: &str = r#"
function is_key(text,  word) {
    split(text, word, /[ \t]+/)
    return word[1] "" == type "" && word[2] "" == blob ""
}
function after_options(text,  at, c, is_quoted) {
    for (at = 1; at <= length(text); at++) {
        c = substr(text, at, 1)
        if (c == "\\" && substr(text, at + 1, 1) == "\"") at++
        else if (c == "\"") is_quoted = !is_quoted
        else if (!is_quoted && c ~ /[ \t]/) break
    }
    text = substr(text, at)
    sub(/^[ \t]+/, "", text)
    return text
}
{
    text = $0
    sub(/\r$/, "", text)
    sub(/^[ \t]+/, "", text)
    if (is_key(text) || text !~ /^#/ && is_key(after_options(text))) found = 1
    else print
}
END { exit found ? 0 : 3 }
"#;

/// Returns the command that removes the key. The file with the other keys takes the place of the old one at once, so that an interruption
/// leaves the old keys or the new ones. If the file is a symbolic link, the link stays, and the file behind it is replaced.
pub fn removal() -> Result<String, String> {
    let key = own_key()?;
    let mut words = key.split_ascii_whitespace();
    let (Some(kind), Some(blob)) = (words.next(), words.next()) else {
        return Err(format!("the public key {key} has no type"));
    };
    let (kind, blob, without_key) = (quoted(kind), quoted(blob), quoted(WITHOUT_KEY));
    Ok(format!(
        "f=.ssh/authorized_keys; \
         if [ ! -e $f ]; then echo ssh key does not exist; exit; fi; \
         f=$(readlink -f $f) && t=$(mktemp \"$f.XXXXXX\") || exit; \
         cp -p \"$f\" \"$t\" && LC_ALL=C awk -v type={kind} -v blob={blob} {without_key} <\"$f\" >\"$t\"; \
         case $? in \
         0) mv \"$t\" \"$f\" && echo ssh key dropped ;; \
         3) rm -f \"$t\"; echo ssh key does not exist ;; \
         *) rm -f \"$t\"; exit 1 ;; \
         esac"
    ))
}

/// Returns the public key of the user who runs this program.
fn own_key() -> Result<String, String> {
    let home = std::env::var_os("HOME").ok_or("HOME is not set, so that there is no folder with keys")?;
    public_key(&Path::new(&home).join(".ssh"))
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

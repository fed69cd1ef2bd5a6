//! The secret part of the address of the page.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;

const RANDOM_BYTES: usize = 16;
const LENGTH_MIN: usize = 16;
const LENGTH_MAX: usize = 128;

pub struct Token(String);

impl Token {
    pub fn random() -> Result<Self, String> {
        let mut bytes = [0; RANDOM_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(|error| format!("could not read /dev/urandom: {error}"))?;
        let mut token = String::new();
        for byte in bytes {
            let _ = write!(token, "{byte:02x}");
        }
        Ok(Self(token))
    }

    /// Reads the token from the first line of a file, so that the address is the same after each start.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("could not read {name}: {error}"))?;
        let token = text.lines().next().unwrap_or_default().trim();
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        match (LENGTH_MIN..=LENGTH_MAX).contains(&token.len()) && token.bytes().all(is_valid) {
            true => Ok(Self(token.to_owned())),
            false => Err(format!(
                "the first line of {name} is not a token: {LENGTH_MIN} to {LENGTH_MAX} ASCII letters, digits, - or _\n\
                 HINT:  Create one with: openssl rand -hex 16"
            )),
        }
    }

    /// The path that all secret paths begin with.
    pub fn path(&self) -> String {
        format!("/{}", self.0)
    }

    /// Returns what follows the token in a path; None if the path does not begin with it. The time does not depend on how
    /// much of the token is right.
    pub fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        let (given, rest) = path.strip_prefix('/')?.split_at_checked(self.0.len())?;
        let difference = given.bytes().zip(self.0.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        (difference == 0 && rest.starts_with('/')).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_with_the_whole_token() {
        let token = Token("0123456789abcdef".to_owned());
        assert_eq!(token.strip("/0123456789abcdef/json/top"), Some("/json/top"));
        assert_eq!(token.strip("/0123456789abcdef/"), Some("/"));
        for wrong in [
            "",
            "/",
            "/0123456789abcdef",
            "/0123456789abcdeF/",
            "/0123456789abcde/",
            "/0123456789abcdefg/",
            "/é23456789abcdéf/",
        ] {
            assert_eq!(token.strip(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn random_tokens_differ_and_files_are_checked() {
        let token = || Token::random().unwrap().0;
        assert_eq!((token().len(), token() == token()), (32, false));
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Token::read(file.path()).map(|token| token.0)
        };
        assert_eq!(read("abcdefgh_-012345\nsecond line"), Ok("abcdefgh_-012345".to_owned()));
        for wrong in ["", "short", "abcdefgh/0123456789", "abcdefgh 0123456789"] {
            assert!(read(wrong).unwrap_err().contains("is not a token"), "{wrong}");
        }
    }
}

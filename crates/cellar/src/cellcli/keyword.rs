//! Keywords and names that may be abbreviated.

const ABBREVIATION_MIN: usize = 3;

/// Returns the name that a word names or abbreviates, out of `names`. An error says which names it could mean.
pub fn resolve<'n>(word: &str, names: impl Iterator<Item = &'n str> + Clone) -> Result<&'n str, Vec<&'n str>> {
    let upper = word.to_ascii_uppercase();
    if let Some(name) = names.clone().find(|name| *name == upper) {
        return Ok(name);
    }
    let starts: Vec<&str> = names.filter(|name| name.starts_with(&upper)).collect();
    match starts[..] {
        [name] if word.len() >= ABBREVIATION_MIN => Ok(name),
        _ => Err(starts),
    }
}

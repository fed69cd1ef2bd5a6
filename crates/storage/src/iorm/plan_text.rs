//! The text of a database plan, as CellCLI writes it: `((name=sales, share=8), (name=other, share=2, limit=50))`.

use super::plan::{Directive, LEVEL_MAX, Plan, Portion};
use super::{Iorm, Objective};
use crate::error::{Error, ErrorKind, Result};

const SHARE_MAX: u32 = 32;
const DIRECTIVES_MAX: usize = 1024;
const ATTRIBUTES: &str = "name, share, level, allocation, limit, reservation, flashcache, flashcachelimit, flashlog";

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// Parses a plan; an empty text is a plan without databases. The error says what is wrong and what to write.
pub fn parse(text: &str) -> Result<Vec<Directive>> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let malformed = || {
        refused(format!(
            "dbplan \"{text}\" is no list of directives; write, for example, ((name=a, share=8), (name=b, share=2))"
        ))
    };
    let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(malformed)?;
    let mut directives: Vec<Directive> = Vec::new();
    // One directive may stand without the outer parentheses.
    let mut rest = if inner.trim_start().starts_with('(') { inner.trim() } else { text };
    while !rest.is_empty() {
        let end = rest.find(')').ok_or_else(malformed)?;
        let attributes = rest[..end].strip_prefix('(').ok_or_else(malformed)?;
        directives.push(directive(attributes)?);
        rest = rest[end + 1..].trim_start();
        match rest.strip_prefix(',') {
            Some(more) if !more.trim().is_empty() => rest = more.trim_start(),
            None if rest.is_empty() => {}
            _ => return Err(malformed()),
        }
    }
    check(&directives)?;
    Ok(directives)
}

fn directive(text: &str) -> Result<Directive> {
    let (mut name, mut share, mut level, mut allocation, mut limit, mut reservation) =
        (None, None, None, None, None, None);
    let (mut flash_cache, mut flash_limit, mut has_flash_log) = (None, None, false);
    for part in text.split(',').map(str::trim) {
        let Some((attribute, value)) = part.split_once('=').map(|(attribute, value)| (attribute.trim(), value.trim()))
        else {
            return Err(refused(format!(
                "dbplan: \"{part}\" is no assignment; write attribute=value with one of {ATTRIBUTES}"
            )));
        };
        let number = |from: u32, to: u32| {
            let parsed = value.trim_end_matches('%').parse::<u32>().ok().filter(|number| (from..=to).contains(number));
            parsed.ok_or_else(|| refused(format!("dbplan: {attribute}={value}; write a number from {from} to {to}")))
        };
        let percent = |from| number(from, 100).map(|percent| percent as u8);
        match attribute.to_ascii_lowercase().as_str() {
            "name" => name = Some(value.trim_matches(['"', '\'']).to_owned()),
            "share" => share = Some(number(1, SHARE_MAX)?),
            "level" => level = Some(number(1, LEVEL_MAX.into())? as u8),
            "allocation" => allocation = Some(percent(0)?),
            "limit" => limit = Some(percent(1)?),
            "reservation" => reservation = Some(percent(1)?),
            "flashcache" => flash_cache = Some(is_on(attribute, value)?),
            "flashcachelimit" => flash_limit = Some(size(attribute, value)?),
            "flashlog" => match is_on(attribute, value)? {
                true => has_flash_log = true,
                false => {
                    return Err(refused(
                        "dbplan: flashlog=off: the databases of a cluster share its WAL; remove flash_log_size from \
                         cell.toml to switch the flash log off"
                            .into(),
                    ));
                }
            },
            "flashcachemin" | "flashcachesize" => {
                return Err(refused(format!(
                    "dbplan: {attribute}: a cell does not reserve flash for a database; limit the other databases with \
                     flashcachelimit, or set CELL_FLASH_CACHE KEEP for tables"
                )));
            }
            _ => {
                return Err(refused(format!(
                    "dbplan: \"{attribute}\" is not an attribute of a database; write one of {ATTRIBUTES}"
                )));
            }
        }
    }
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Err(refused(format!("dbplan: the directive ({text}) names no database; write name=…")));
    };
    let has_flash = has_flash_log || flash_cache.is_some() || flash_limit.is_some();
    if flash_cache == Some(false) && flash_limit.replace(0).is_some() {
        return Err(refused(format!("dbplan: {name} has flashcache=off and flashcachelimit; write one of them")));
    }
    let portion = match (share, level, allocation) {
        (Some(share), None, None) => Portion::Share(share),
        (None, level, Some(percent)) => Portion::Allocation { level: level.unwrap_or(1), percent },
        (None, None, None) if limit.is_some() || reservation.is_some() || has_flash => Portion::Share(1),
        (Some(_), ..) => {
            return Err(refused(format!("dbplan: {name} has a share and an allocation; write one of them")));
        }
        (None, ..) => {
            return Err(refused(format!(
                "dbplan: {name} has neither share, allocation, limit, reservation, flashcache, flashcachelimit nor flashlog; write one of \
                 them"
            )));
        }
    };
    Ok(Directive { name, portion, limit, reservation, flash_limit })
}

fn is_on(attribute: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(refused(format!("dbplan: {attribute}={value}; write on or off"))),
    }
}

/// Reads bytes: a number with an optional suffix K, M, G or T.
fn size(attribute: &str, value: &str) -> Result<u64> {
    let invalid = || refused(format!("dbplan: {attribute}={value}; write a size, for example 500M or 10G"));
    let upper = value.to_ascii_uppercase();
    let digits = upper.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &upper[digits.len()..] {
        "" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(invalid()),
    };
    let number = digits.trim().parse::<u64>().ok().filter(|number| (1..=u64::MAX >> shift).contains(number));
    number.map(|number| number << shift).ok_or_else(invalid)
}

/// Returns the shortest text that [`size`] reads as this many bytes.
fn size_text(bytes: u64) -> String {
    let suffixes = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let suffix = suffixes.into_iter().find(|(shift, _)| bytes.is_multiple_of(1 << shift));
    suffix.map_or_else(|| bytes.to_string(), |(shift, suffix)| format!("{}{suffix}", bytes >> shift))
}

/// Checks what concerns several directives.
fn check(directives: &[Directive]) -> Result<()> {
    if directives.len() > DIRECTIVES_MAX {
        return Err(refused(format!("dbplan has {} directives; write at most {DIRECTIVES_MAX}", directives.len())));
    }
    let is_twice =
        |(at, directive): (usize, &Directive)| directives[..at].iter().any(|before| before.name == directive.name);
    if let Some(twice) = directives.iter().enumerate().find(|found| is_twice(*found)).map(|(_, twice)| &twice.name) {
        return Err(refused(format!("dbplan names {twice} twice; write one directive for each database")));
    }
    let has = |is: fn(&Portion) -> bool| directives.iter().any(|directive| is(&directive.portion));
    let plain = |directive: &Directive| directive.portion == Portion::Share(1);
    if has(|portion| matches!(portion, Portion::Allocation { .. }))
        && let Some(share) = directives.iter().find(|found| matches!(found.portion, Portion::Share(_)) && !plain(found))
    {
        return Err(refused(format!(
            "dbplan: {} has a share and another database an allocation; a plan has either shares or allocations",
            share.name
        )));
    }
    for level in 1..=LEVEL_MAX {
        let of_level = directives.iter().filter_map(|directive| match directive.portion {
            Portion::Allocation { level: own, percent } if own == level => Some(u32::from(percent)),
            _ => None,
        });
        let sum: u32 = of_level.sum();
        if sum > 100 {
            return Err(refused(format!(
                "dbplan: the allocations of level {level} add up to {sum} %; a level has 100 %"
            )));
        }
    }
    let reserved: u32 = directives.iter().filter_map(|directive| directive.reservation).map(u32::from).sum();
    if reserved > 100 {
        return Err(refused(format!("dbplan: the reservations add up to {reserved} %; a device has 100 %")));
    }
    if let Some(found) =
        directives.iter().find(|found| found.reservation.zip(found.limit).is_some_and(|(own, limit)| own > limit))
    {
        return Err(refused(format!("dbplan: the reservation of {} exceeds its limit; raise the limit", found.name)));
    }
    Ok(())
}

/// Returns the text that [`parse`] reads.
pub fn text(directives: &[Directive]) -> String {
    let one = |directive: &Directive| {
        let mut text = format!("(name={}", directive.name);
        match directive.portion {
            Portion::Share(share) => text += &format!(",share={share}"),
            Portion::Allocation { level, percent } => text += &format!(",level={level},allocation={percent}"),
        }
        let mut add = |name: &str, value: Option<u8>| {
            if let Some(value) = value {
                text += &format!(",{name}={value}");
            }
        };
        add("limit", directive.limit);
        add("reservation", directive.reservation);
        match directive.flash_limit {
            Some(0) => text += ",flashcache=off",
            Some(bytes) => text += &format!(",flashcachelimit={}", size_text(bytes)),
            None => {}
        }
        text + ")"
    };
    match directives {
        [] => String::new(),
        directives => format!("({})", directives.iter().map(one).collect::<Vec<_>>().join(",")),
    }
}

impl Plan {
    /// Returns the plan as the disks keep it.
    pub(super) fn to_note(&self, number: u64) -> Vec<u8> {
        format!("number={number}\nobjective={}\ndbplan={}\n", self.objective, text(&self.databases)).into_bytes()
    }

    /// Reads a plan that a disk kept, with its number.
    pub(super) fn from_note(note: &[u8]) -> Result<(u64, Self)> {
        let text = std::str::from_utf8(note).map_err(|_| refused("the kept plan is no text".into()))?;
        let line = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.ok_or_else(|| refused(format!("the kept plan has no line {name}")))
        };
        let number = line("number")?.parse().map_err(|_| refused("the kept plan has no valid number".into()))?;
        let objective = Objective::parse(line("objective")?).map_err(refused)?;
        Ok((number, Self { objective, databases: parse(line("dbplan")?)? }))
    }
}

impl Iorm {
    /// Changes the objective or the database plan, or both, and keeps the plan on the disks. None leaves a part as it is. An
    /// invalid part changes nothing.
    pub fn alter(&self, objective: Option<&str>, dbplan: Option<&str>) -> Result<()> {
        let mut plan = self.plan();
        if let Some(objective) = objective {
            plan.objective = Objective::parse(objective).map_err(refused)?;
        }
        if let Some(dbplan) = dbplan {
            plan.databases = parse(dbplan)?;
        }
        self.keep(plan)
    }

    /// Returns the database plan as text; empty without one.
    pub fn dbplan(&self) -> String {
        text(&self.plan().databases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reads_back() {
        for plan in [
            "",
            "((name=sales,share=8),(name=other,share=2,limit=50))",
            "((name=a,share=8,flashcachelimit=1500M),(name=b,share=1,flashcache=off),(name=c,share=1,flashcachelimit=1001))",
            "((name=a,level=1,allocation=80,reservation=10),(name=b,level=2,allocation=100))",
        ] {
            assert_eq!(text(&parse(plan).unwrap()), plan);
            let kept = Plan { objective: Objective::Static(40), databases: parse(plan).unwrap() };
            assert_eq!(Plan::from_note(&kept.to_note(7)).unwrap(), (7, kept));
        }
        let spaced = parse(" ( ( NAME = 'a b' , Allocation=10% ) , (name=c,limit=5) ) ").unwrap();
        assert_eq!(text(&spaced), "((name=a b,level=1,allocation=10),(name=c,share=1,limit=5))");
        let flash = parse("((name=a,flashcache=ON,flashlog=on,flashcachelimit=1 gb),(name=b,flashcache=Off))").unwrap();
        assert_eq!(text(&flash), "((name=a,share=1,flashcachelimit=1G),(name=b,share=1,flashcache=off))");
        assert_eq!(text(&parse("(name=a,flashcache=on)").unwrap()), "((name=a,share=1))");
        assert_eq!(text(&parse("(name=a,flashlog=on)").unwrap()), "((name=a,share=1))");
        assert_eq!(parse("(name=a,share=2)").unwrap().len(), 1);
    }

    #[test]
    fn an_invalid_plan_is_refused_with_the_reason() {
        for (plan, reason) in [
            ("name=a", "no list of directives"),
            ("((name=a,share=1)", "no list of directives"),
            ("((name=a,share=1) (name=b,share=1))", "no list of directives"),
            ("((name=a,colour=3))", "\"colour\" is not an attribute of a database; write one of name, share"),
            ("((name=a,share=0))", "share=0; write a number from 1 to 32"),
            ("((name=a,limit=101))", "limit=101; write a number from 1 to 100"),
            ("((name=a,allocation=60),(name=b,allocation=50))", "allocations of level 1 add up to 110 %"),
            ("((name=a,share=1,reservation=60),(name=b,share=1,reservation=50))", "reservations add up to 110 %"),
            ("((name=a,share=2),(name=b,allocation=50))", "either shares or allocations"),
            ("((name=a,share=2,level=1))", "a share and an allocation"),
            ("((name=a,level=2))", "neither share, allocation, limit, reservation, flashcache, flashcachelimit nor"),
            ("((share=2))", "names no database"),
            ("((name=a,share=2),(name=a,share=3))", "names a twice"),
            ("((name=a,limit=5,reservation=6))", "exceeds its limit"),
            ("((name=a,flashcache=maybe))", "flashcache=maybe; write on or off"),
            ("((name=a,flashcachelimit=0))", "flashcachelimit=0; write a size"),
            ("((name=a,flashcachelimit=1X))", "flashcachelimit=1X; write a size"),
            ("((name=a,flashcache=off,flashcachelimit=1G))", "a has flashcache=off and flashcachelimit"),
            ("((name=a,flashcachelimit=1G,flashcache=off))", "a has flashcache=off and flashcachelimit"),
            ("((name=a,level=2,flashcache=on))", "neither share"),
            ("((name=a,flashlog=off))", "remove flash_log_size"),
            ("((name=a,flashcachemin=1G))", "flashcachemin: a cell does not reserve flash"),
            ("((name=a,share))", "\"share\" is no assignment"),
        ] {
            let message = parse(plan).unwrap_err().to_string();
            assert!(message.contains(reason), "{plan}: {message}");
        }
        for damaged in [
            "",
            "number=x\nobjective=auto\ndbplan=\n",
            "number=1\nobjective=auto\n",
            "number=1\nobjective=x\ndbplan=\n",
        ] {
            Plan::from_note(damaged.as_bytes()).unwrap_err();
        }
        Plan::from_note(&[0xff, 0xfe]).unwrap_err();
    }
}

//! Parses the supported regular expressions.

/// Groups may be nested this deeply.
const DEPTH_MAX: usize = 16;

/// A set of characters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Characters {
    /// Bit `n` is ASCII character `n`.
    pub ascii: u128,
    /// Whether the set contains all characters outside ASCII. Otherwise it contains none.
    pub others: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Character(Characters),
    Sequence(Vec<Node>),
    Alternatives(Vec<Node>),
    Repeat { node: Box<Node>, optional: bool, many: bool },
}

/// A part of an expression. Parts with odd numbers are capturing groups.
pub struct Part {
    pub node: Node,
    /// Whether the part contains a capturing group, other than being one.
    pub has_nested_groups: bool,
}

pub struct Pattern {
    /// If the expression has alternatives, the only part.
    pub parts: Vec<Part>,
    /// Whether the expression starts with `^`.
    pub at_start: bool,
    /// Whether the expression ends with `$`.
    pub at_end: bool,
}

struct Parser<'a> {
    rest: &'a [u8],
    depth: usize,
}

/// An item of a branch, and whether it is, or contains, a capturing group.
struct Item {
    node: Node,
    is_group: bool,
    has_groups: bool,
}

/// None: the expression is invalid or not supported.
pub fn parse(pattern: &[u8]) -> Option<Pattern> {
    if !pattern.is_ascii() || pattern.is_empty() {
        return None;
    }
    let (at_start, pattern) = pattern.strip_prefix(b"^").map_or((false, pattern), |rest| (true, rest));
    let is_escaped = |rest: &[u8]| rest.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1;
    let (at_end, pattern) = match pattern.strip_suffix(b"$") {
        Some(rest) if !is_escaped(rest) => (true, rest),
        _ => (false, pattern),
    };
    if pattern.is_empty() && at_start && at_end {
        return Some(Pattern { parts: vec![Part::outside(Vec::new())], at_start, at_end });
    }
    let mut parser = Parser { rest: pattern, depth: 0 };
    let mut branches = parser.branches()?;
    if !parser.rest.is_empty() {
        return None;
    }
    if branches.len() > 1 {
        if at_start || at_end {
            // The constraint belongs to one branch only.
            return None;
        }
        let nodes = branches.into_iter().map(sequence).collect();
        let part = Part { node: Node::Alternatives(nodes), has_nested_groups: true };
        return Some(Pattern { parts: vec![part], at_start, at_end });
    }
    let mut parts = Vec::new();
    let mut items = Vec::new();
    for item in branches.pop()? {
        if item.is_group {
            parts.push(Part::outside(std::mem::take(&mut items)));
            parts.push(Part { node: item.node, has_nested_groups: item.has_groups });
        } else {
            items.push(item);
        }
    }
    parts.push(Part::outside(items));
    Some(Pattern { parts, at_start, at_end })
}

impl Part {
    fn outside(items: Vec<Item>) -> Self {
        let has_nested_groups = items.iter().any(|item| item.has_groups);
        Self { node: sequence(items), has_nested_groups }
    }
}

fn sequence(items: Vec<Item>) -> Node {
    Node::Sequence(items.into_iter().map(|item| item.node).collect())
}

impl Parser<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn next_if(&mut self, byte: u8) -> bool {
        let is_next = self.rest.first() == Some(&byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    /// Parses alternatives up to `)` or the end. None of them is empty.
    fn branches(&mut self) -> Option<Vec<Vec<Item>>> {
        let mut branches = vec![self.branch()?];
        while self.next_if(b'|') {
            branches.push(self.branch()?);
        }
        Some(branches)
    }

    fn branch(&mut self) -> Option<Vec<Item>> {
        let mut items = Vec::new();
        while self.rest.first().is_some_and(|byte| !matches!(byte, b'|' | b')')) {
            let item = self.atom()?;
            items.push(self.quantified(item)?);
        }
        (!items.is_empty()).then_some(items)
    }

    fn quantified(&mut self, item: Item) -> Option<Item> {
        let (optional, many) = match self.rest.first() {
            Some(b'*') => (true, true),
            Some(b'+') => (false, true),
            Some(b'?') => (true, false),
            _ => return Some(item),
        };
        self.next();
        if matches!(self.rest.first(), Some(b'*' | b'+' | b'?')) {
            return None;
        }
        let has_groups = item.has_groups || item.is_group;
        Some(Item { node: Node::Repeat { node: item.node.into(), optional, many }, is_group: false, has_groups })
    }

    fn atom(&mut self) -> Option<Item> {
        let characters = match self.next()? {
            b'.' => Characters { ascii: u128::MAX, others: true },
            b'[' => self.bracket()?,
            b'(' => return self.group(),
            b'\\' => Characters::of(self.next().filter(u8::is_ascii_punctuation)?),
            b'*' | b'+' | b'?' | b'{' | b'}' | b']' | b'^' | b'$' => return None,
            byte => Characters::of(byte),
        };
        Some(Item { node: Node::Character(characters), is_group: false, has_groups: false })
    }

    /// Parses a group after its `(`.
    fn group(&mut self) -> Option<Item> {
        let is_group = !self.next_if(b'?');
        if !is_group && !self.next_if(b':') || self.depth == DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        let branches = self.branches()?;
        self.depth -= 1;
        if !self.next_if(b')') {
            return None;
        }
        let has_groups = branches.iter().flatten().any(|item| item.has_groups || item.is_group);
        let node = Node::Alternatives(branches.into_iter().map(sequence).collect());
        Some(Item { node, is_group, has_groups })
    }

    /// Parses a bracket expression after its `[`.
    fn bracket(&mut self) -> Option<Characters> {
        let is_negated = self.next_if(b'^');
        let mut ascii = 0u128;
        let mut is_first = true;
        loop {
            match self.next()? {
                b']' if !is_first => break,
                b']' | b'[' | b'\\' => return None,
                // A hyphen stands for itself at the start and at the end.
                b'-' if is_first || self.rest.first() == Some(&b']') => ascii |= 1 << b'-',
                b'-' => return None,
                first if self.rest.first() == Some(&b'-') && self.rest.get(1) != Some(&b']') => {
                    self.next();
                    let last = self.next()?;
                    let alike = [u8::is_ascii_digit, u8::is_ascii_lowercase, u8::is_ascii_uppercase];
                    if first > last || !alike.iter().any(|is| is(&first) && is(&last)) {
                        return None;
                    }
                    (first..=last).for_each(|byte| ascii |= 1 << byte);
                }
                byte => ascii |= 1 << byte,
            }
            is_first = false;
        }
        Some(if is_negated { Characters { ascii: !ascii, others: true } } else { Characters { ascii, others: false } })
    }
}

impl Characters {
    fn of(byte: u8) -> Self {
        Self { ascii: 1 << byte, others: false }
    }
}

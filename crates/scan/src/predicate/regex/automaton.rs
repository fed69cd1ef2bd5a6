//! Deterministic automata over the bytes of a string.

use super::Encoding;
use super::parse::{Characters, Node};
use std::collections::{HashMap, HashSet};

/// States of a nondeterministic automaton.
const STEPS_MAX: usize = 1000;
/// States of a deterministic automaton.
const STATES_MAX: usize = 128;
/// Transitions that are followed to compile one expression. Deterministic automata can take exponentially many; PostgreSQL's planner
/// waits for the answer.
const WORK_MAX: usize = 1_000_000;
/// The state that no string leaves.
const DEAD: u8 = 0;

const _: () = assert!(STATES_MAX <= 1 << u8::BITS);

/// Transitions by byte.
type Row = [u8; 256];

/// The work that is left to compile an expression.
pub struct Work(usize);

impl Work {
    pub fn new() -> Self {
        Self(WORK_MAX)
    }

    /// None: the expression takes too much work.
    fn spend(&mut self, transitions: usize) -> Option<()> {
        self.0 = self.0.checked_sub(transitions)?;
        Some(())
    }
}

pub struct Automaton {
    rows: Vec<Row>,
    accepting: Vec<bool>,
    /// Whether every string leads from the accepting state back to itself.
    final_states: Vec<bool>,
    start: u8,
}

impl Automaton {
    /// The automaton of the concatenation of `nodes`, after any string if `anywhere`. None: the automaton is too large.
    pub fn compile(nodes: &[Node], anywhere: bool, encoding: Encoding, work: &mut Work) -> Option<Self> {
        let mut steps = Steps { steps: vec![Step::default()], encoding };
        if anywhere {
            steps.add_bytes(0, [u128::MAX; 2], 0);
        }
        let mut last = 0;
        for node in nodes {
            last = steps.add(node, last)?;
        }
        steps.determinize(last, work)
    }

    /// Calls `visit` with the length of each prefix of `text` that the automaton accepts, ascending.
    #[inline]
    pub fn visit_ends(&self, text: &[u8], mut visit: impl FnMut(usize)) {
        let mut state = self.start;
        if self.accepting[state as usize] {
            visit(0);
        }
        for (index, byte) in text.iter().enumerate() {
            state = self.rows[state as usize][*byte as usize];
            if state == DEAD {
                return;
            }
            if self.accepting[state as usize] {
                visit(index + 1);
            }
        }
    }

    /// Whether the automaton accepts the whole text.
    #[inline]
    pub fn accepts(&self, text: &[u8]) -> bool {
        let mut state = self.start;
        for byte in text {
            if state == DEAD || self.final_states[state as usize] {
                break;
            }
            state = self.rows[state as usize][*byte as usize];
        }
        self.accepting[state as usize]
    }

    /// Whether the automaton accepts some prefix of the text.
    pub fn accepts_start(&self, text: &[u8]) -> bool {
        let mut state = self.start;
        for byte in text {
            if state == DEAD || self.accepting[state as usize] {
                break;
            }
            state = self.rows[state as usize][*byte as usize];
        }
        self.accepting[state as usize]
    }
}

/// A state of the nondeterministic automaton.
#[derive(Default)]
struct Step {
    /// States that are reached without a byte.
    free: Vec<usize>,
    /// Bytes, as two sets of 128, and the state that they lead to.
    bytes: Vec<([u128; 2], usize)>,
}

struct Steps {
    steps: Vec<Step>,
    encoding: Encoding,
}

/// Bytes that start a character outside ASCII, and bytes that continue one, in the upper half of the bytes.
const LEADING: u128 = !CONTINUING;
const CONTINUING: u128 = (1 << 64) - 1;

/// Whether the set contains the byte.
fn contains(bytes: &[u128; 2], byte: usize) -> bool {
    bytes[byte / 128] >> (byte % 128) & 1 == 1
}

impl Steps {
    fn new_step(&mut self) -> Option<usize> {
        self.steps.push(Step::default());
        (self.steps.len() <= STEPS_MAX).then(|| self.steps.len() - 1)
    }

    fn add_bytes(&mut self, from: usize, bytes: [u128; 2], to: usize) {
        self.steps[from].bytes.push((bytes, to));
    }

    /// Adds the states of a node after state `from`. Returns the last state.
    fn add(&mut self, node: &Node, from: usize) -> Option<usize> {
        match node {
            Node::Character(characters) => self.add_character(*characters, from),
            Node::Sequence(nodes) => nodes.iter().try_fold(from, |last, node| self.add(node, last)),
            Node::Alternatives(nodes) => {
                let end = self.new_step()?;
                for node in nodes {
                    let start = self.new_step()?;
                    self.steps[from].free.push(start);
                    let last = self.add(node, start)?;
                    self.steps[last].free.push(end);
                }
                Some(end)
            }
            Node::Repeat { node, optional, many } => {
                let start = self.new_step()?;
                self.steps[from].free.push(start);
                let last = match (&**node, many) {
                    // The bytes of further characters need not be told apart: strings are valid, and matches end where
                    // characters end.
                    (Node::Character(characters), true) if characters.others => {
                        let first = if *optional { start } else { self.add_character(*characters, start)? };
                        let last = self.new_step()?;
                        self.steps[first].free.push(last);
                        self.add_bytes(last, [characters.ascii, u128::MAX], last);
                        return Some(last);
                    }
                    (node, _) => self.add(node, start)?,
                };
                let end = self.new_step()?;
                self.steps[last].free.push(end);
                if *optional {
                    self.steps[start].free.push(end);
                }
                if *many {
                    self.steps[last].free.push(start);
                }
                Some(end)
            }
        }
    }

    fn add_character(&mut self, characters: Characters, from: usize) -> Option<usize> {
        let end = self.new_step()?;
        self.add_bytes(from, [characters.ascii, 0], end);
        match self.encoding {
            Encoding::SingleByte if characters.others => self.add_bytes(from, [0, u128::MAX], end),
            Encoding::Utf8 if characters.others => {
                let middle = self.new_step()?;
                self.add_bytes(from, [0, LEADING], middle);
                self.add_bytes(middle, [0, CONTINUING], middle);
                self.steps[middle].free.push(end);
            }
            _ => {}
        }
        Some(end)
    }

    /// Returns the states that are reached from `states` without a byte, with `states`, sorted.
    fn close(&self, states: &[usize], work: &mut Work) -> Option<Vec<usize>> {
        let mut is_member = [false; STEPS_MAX];
        let mut members = Vec::new();
        let mut add = |members: &mut Vec<usize>, state: usize| {
            if !std::mem::replace(&mut is_member[state], true) {
                members.push(state);
            }
        };
        states.iter().for_each(|state| add(&mut members, *state));
        let mut next = 0;
        while let Some(state) = members.get(next) {
            let free = &self.steps[*state].free;
            work.spend(1 + free.len())?;
            free.iter().for_each(|state| add(&mut members, *state));
            next += 1;
        }
        members.sort_unstable();
        Some(members)
    }

    /// Returns a class for each byte: bytes of a class are in the same sets of all states.
    fn byte_classes(&self) -> [u8; 256] {
        let sets: HashSet<[u128; 2]> =
            self.steps.iter().flat_map(|step| &step.bytes).map(|(bytes, _)| *bytes).collect();
        let mut classes = [0; 256];
        for bytes in sets {
            let mut known: HashMap<(u8, bool), u8> = HashMap::new();
            for (byte, class) in classes.iter_mut().enumerate() {
                let next = known.len() as u8;
                *class = *known.entry((*class, contains(&bytes, byte))).or_insert(next);
            }
        }
        classes
    }

    fn determinize(&self, last: usize, work: &mut Work) -> Option<Automaton> {
        let classes = self.byte_classes();
        let first = self.close(&[0], work)?;
        let mut known: HashMap<Vec<usize>, u8> = HashMap::from([(Vec::new(), DEAD), (first.clone(), 1)]);
        let mut sets = vec![Vec::new(), first];
        let mut rows: Vec<Row> = Vec::new();
        while rows.len() < sets.len() {
            let mut row = [DEAD; 256];
            let mut of_class = [None; 256];
            for (byte, to) in row.iter_mut().enumerate() {
                let class = classes[byte] as usize;
                if let Some(state) = of_class[class] {
                    *to = state;
                    continue;
                }
                let mut reached: Vec<usize> = Vec::new();
                for state in &sets[rows.len()] {
                    let transitions = &self.steps[*state].bytes;
                    work.spend(1 + transitions.len())?;
                    reached
                        .extend(transitions.iter().filter(|(bytes, _)| contains(bytes, byte)).map(|(_, next)| *next));
                }
                let reached = self.close(&reached, work)?;
                *to = match known.get(&reached) {
                    Some(state) => *state,
                    None if sets.len() == STATES_MAX => return None,
                    None => {
                        known.insert(reached.clone(), sets.len() as u8);
                        sets.push(reached);
                        sets.len() as u8 - 1
                    }
                };
                of_class[class] = Some(*to);
            }
            rows.push(row);
        }
        let accepting: Vec<bool> = sets.iter().map(|set| set.contains(&last)).collect();
        let stays = |state: usize| rows[state].iter().all(|to| *to as usize == state);
        let final_states = (0..rows.len()).map(|state| accepting[state] && stays(state)).collect();
        Some(Automaton { rows, accepting, final_states, start: 1 })
    }
}

//! Queues of waiting requests, and the order in which databases, consumer groups and kinds of I/O get device time.
//!
//! Start-time fair queueing on three levels: a node has a tag, the virtual time at which its next request starts; the node with
//! the smallest tag is next, and its tag grows by the cost divided by its weight. A node that was idle starts at the present
//! virtual time of its level, so it cannot save device time. Limits and reservations of databases are tags in real time, as in
//! dmClock.

use super::plan::{Portion, Terms, weights};
use super::{DeviceSeconds, Nanoseconds, SECOND};
use crate::request::{DatabaseId, GroupId, IoKind};
use std::collections::VecDeque;

/// A request as the scheduler sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    pub id: u64,
    pub database: DatabaseId,
    pub group: GroupId,
    pub kind: IoKind,
    pub cost: DeviceSeconds,
}

/// A database may make up for this much time, in seconds, during which it got less than its reservation.
const RESERVATION_LAG_MAX: f64 = 0.1;

/// Which kinds may start now, by [`IoKind`].
pub type Allowed = [bool; IoKind::ALL.len()];

#[derive(Debug, Default)]
pub struct Queues {
    /// By number.
    databases: Vec<Database>,
    /// Those with waiting requests.
    active: Vec<DatabaseId>,
    virtual_time: f64,
    waiting: usize,
    waiting_of_kind: [usize; IoKind::ALL.len()],
}

#[derive(Debug)]
struct Database {
    terms: Terms,
    weight: f64,
    tag: f64,
    /// When the limit lets the next request start, and when the reservation is due: seconds.
    limit_tag: f64,
    reservation_tag: f64,
    groups: Vec<Group>,
    virtual_time: f64,
    waiting: [usize; IoKind::ALL.len()],
}

#[derive(Debug)]
struct Group {
    id: GroupId,
    tag: f64,
    kinds: [Kind; IoKind::ALL.len()],
    virtual_time: f64,
}

#[derive(Debug, Default)]
struct Kind {
    tag: f64,
    waiting: VecDeque<Request>,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            terms: Terms::EQUAL,
            weight: 1.0,
            tag: 0.0,
            limit_tag: 0.0,
            reservation_tag: 0.0,
            groups: Vec::new(),
            virtual_time: 0.0,
            waiting: [0; IoKind::ALL.len()],
        }
    }
}

impl Database {
    fn group(&mut self, id: GroupId) -> usize {
        if let Some(found) = self.groups.iter().position(|group| group.id == id) {
            return found;
        }
        let kinds = std::array::from_fn(|_| Kind::default());
        self.groups.push(Group { id, tag: 0.0, kinds, virtual_time: 0.0 });
        self.groups.len() - 1
    }

    fn is_idle(&self) -> bool {
        self.waiting.iter().all(|waiting| *waiting == 0)
    }

    fn has(&self, allowed: &Allowed) -> bool {
        self.waiting.iter().zip(allowed).any(|(waiting, allowed)| *waiting > 0 && *allowed)
    }
}

impl Group {
    fn is_idle(&self) -> bool {
        self.kinds.iter().all(|kind| kind.waiting.is_empty())
    }

    /// Returns the kind with the smallest tag among those that wait and may start.
    fn next(&self, allowed: &Allowed) -> Option<usize> {
        let may_start = |kind: &usize| allowed[*kind] && !self.kinds[*kind].waiting.is_empty();
        let tag = |kind: &usize| self.kinds[*kind].tag;
        (0..IoKind::ALL.len()).filter(may_start).min_by(|one, other| tag(one).total_cmp(&tag(other)))
    }
}

impl Queues {
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    pub fn waiting_of(&self, kind: IoKind) -> usize {
        self.waiting_of_kind[kind as usize]
    }

    /// Sets what the plan says about a database.
    pub fn set_terms(&mut self, database: DatabaseId, terms: Terms) {
        self.database(database).terms = terms;
        self.update_weights();
    }

    fn database(&mut self, id: DatabaseId) -> &mut Database {
        let at = id.0 as usize;
        if at >= self.databases.len() {
            self.databases.resize_with(at + 1, Database::default);
        }
        &mut self.databases[at]
    }

    /// The part of a database depends on which others are active, if the plan has levels.
    fn update_weights(&mut self) {
        let portions: Vec<Portion> = self.active.iter().map(|id| self.databases[id.0 as usize].terms.portion).collect();
        for (id, weight) in self.active.iter().zip(weights(&portions)) {
            self.databases[id.0 as usize].weight = weight;
        }
    }

    pub fn push(&mut self, now: Nanoseconds, request: Request) {
        let (seconds, virtual_time) = (now as f64 / SECOND, self.virtual_time);
        let (id, kind) = (request.database, request.kind as usize);
        let database = self.database(id);
        let was_idle = database.is_idle();
        if was_idle {
            database.tag = database.tag.max(virtual_time);
            database.limit_tag = database.limit_tag.max(seconds);
            database.reservation_tag = database.reservation_tag.max(seconds);
        }
        let virtual_time = database.virtual_time;
        let at = database.group(request.group);
        let group = &mut database.groups[at];
        if group.is_idle() {
            group.tag = group.tag.max(virtual_time);
        }
        let queue = &mut group.kinds[kind];
        if queue.waiting.is_empty() {
            queue.tag = queue.tag.max(group.virtual_time);
        }
        queue.waiting.push_back(request);
        database.waiting[kind] += 1;
        self.waiting += 1;
        self.waiting_of_kind[kind] += 1;
        if was_idle {
            self.active.push(id);
            self.update_weights();
        }
    }

    /// Takes the request that starts next, if one may start.
    pub fn pop(&mut self, now: Nanoseconds, allowed: &Allowed) -> Option<Request> {
        let seconds = now as f64 / SECOND;
        let candidates = || {
            let active = self.active.iter().map(|id| (*id, &self.databases[id.0 as usize]));
            active.filter(|(_, database)| database.limit_tag <= seconds && database.has(allowed))
        };
        let reserved = candidates()
            .filter(|(_, database)| database.terms.reservation.is_some() && database.reservation_tag <= seconds)
            .min_by(|(_, one), (_, other)| one.reservation_tag.total_cmp(&other.reservation_tag));
        let is_reserved = reserved.is_some();
        let (id, _) = reserved.or_else(|| candidates().min_by(|(_, one), (_, other)| one.tag.total_cmp(&other.tag)))?;
        let database = &self.databases[id.0 as usize];
        let groups = database.groups.iter().enumerate().filter_map(|(at, group)| Some((at, group.next(allowed)?)));
        let tag = |at: usize| database.groups[at].tag;
        let (group, kind) = groups.min_by(|(one, _), (other, _)| tag(*one).total_cmp(&tag(*other)))?;
        let request = self.take(id, group, kind, 0)?;
        if is_reserved {
            let database = self.database(id);
            let share = database.terms.reservation.unwrap_or(1.0);
            let earliest = seconds - RESERVATION_LAG_MAX;
            database.reservation_tag = database.reservation_tag.max(earliest) + request.cost / share;
        }
        Some(request)
    }

    /// Takes any request, whatever the plan says.
    pub fn pop_any(&mut self) -> Option<Request> {
        let id = *self.active.first()?;
        let mut groups = self.databases[id.0 as usize].groups.iter().enumerate();
        let (group, kind) = groups.find_map(|(at, group)| Some((at, group.next(&[true; IoKind::ALL.len()])?)))?;
        self.take(id, group, kind, 0)
    }

    /// Takes a request out of the order.
    pub fn take_id(&mut self, id: u64) -> Option<Request> {
        let find = |group: &Group| {
            let kinds = group.kinds.iter().enumerate();
            kinds
                .filter_map(|(kind, queue)| Some((kind, queue.waiting.iter().position(|found| found.id == id)?)))
                .next()
        };
        let (database, group, kind, at) = self.active.iter().find_map(|database| {
            let groups = self.databases[database.0 as usize].groups.iter().enumerate();
            groups.filter_map(|(group, found)| find(found).map(|(kind, at)| (*database, group, kind, at))).next()
        })?;
        self.take(database, group, kind, at)
    }

    /// Takes a request and charges it.
    fn take(&mut self, id: DatabaseId, group: usize, kind: usize, at: usize) -> Option<Request> {
        let database = &mut self.databases[id.0 as usize];
        let (weight, own) = (database.weight, &mut database.groups[group]);
        let queue = &mut own.kinds[kind];
        let request = queue.waiting.remove(at)?;
        own.virtual_time = own.virtual_time.max(queue.tag);
        queue.tag += request.cost / request.kind.weight();
        database.virtual_time = database.virtual_time.max(own.tag);
        own.tag += request.cost;
        self.virtual_time = self.virtual_time.max(database.tag);
        database.tag += request.cost / weight;
        if let Some(limit) = database.terms.limit {
            database.limit_tag += request.cost / limit;
        }
        database.waiting[kind] -= 1;
        self.waiting -= 1;
        self.waiting_of_kind[kind] -= 1;
        if database.is_idle() {
            self.active.retain(|active| *active != id);
            self.update_weights();
        }
        Some(request)
    }

    /// Gives device time back that a request did not need.
    pub fn refund(&mut self, request: &Request, unused: DeviceSeconds) {
        let Some(database) = self.databases.get_mut(request.database.0 as usize) else { return };
        database.tag -= unused / database.weight;
        if let Some(limit) = database.terms.limit {
            database.limit_tag -= unused / limit;
        }
        let at = database.group(request.group);
        let group = &mut database.groups[at];
        group.tag -= unused;
        group.kinds[request.kind as usize].tag -= unused / request.kind.weight();
    }

    /// Returns whether the limit of a database holds back its waiting requests.
    pub fn is_held_by_limit(&self, now: Nanoseconds, database: DatabaseId) -> bool {
        self.databases.get(database.0 as usize).is_some_and(|database| database.limit_tag > now as f64 / SECOND)
    }

    /// Returns when a limit lets a waiting request start that it holds back now.
    pub fn next_limit(&self, now: Nanoseconds) -> Option<Nanoseconds> {
        let seconds = now as f64 / SECOND;
        let tags = self.active.iter().map(|id| self.databases[id.0 as usize].limit_tag).filter(|tag| *tag > seconds);
        tags.min_by(f64::total_cmp).map(|tag| (tag * SECOND).ceil() as Nanoseconds)
    }
}

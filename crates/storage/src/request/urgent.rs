//! Requests for which other requests wait: I/O resource management starts them at once, whatever their class, and charges them.
//!
//! A thread that waits in the queue of a device may hold a lock. If requests that are not held back may need the lock, the thread
//! that holds the lock either marks itself ([`Expedited`]), or leaves an [`Urgency`] where threads that wait for the lock find it.

use parking_lot::{Mutex, MutexGuard};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Thread, ThreadId};

thread_local! {
    /// The number of [`Expedited`] of this thread.
    static EXPEDITED: Cell<u32> = const { Cell::new(0) };
    static URGENCY: RefCell<Option<Arc<Urgency>>> = const { RefCell::new(None) };
}

/// The requests of this thread start at once while the value lives.
#[derive(Debug)]
pub struct Expedited(PhantomData<MutexGuard<'static, ()>>);

impl Expedited {
    pub fn begin() -> Self {
        EXPEDITED.set(EXPEDITED.get() + 1);
        Self(PhantomData)
    }
}

impl Drop for Expedited {
    fn drop(&mut self) {
        EXPEDITED.set(EXPEDITED.get() - 1);
    }
}

/// Whether others wait for requests of some threads.
#[derive(Debug, Default)]
pub struct Urgency {
    is_raised: AtomicBool,
    /// The threads that wait in queues.
    waiting: Mutex<Vec<Thread>>,
}

impl Urgency {
    /// Lets the requests start at once, those that wait and those that follow.
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::SeqCst);
        self.waiting.lock().iter().for_each(Thread::unpark);
    }

    pub fn lower(&self) {
        self.is_raised.store(false, Ordering::SeqCst);
    }
}

/// Restores the previous urgency, also after a panic.
struct Restore(Option<Arc<Urgency>>);

impl Drop for Restore {
    fn drop(&mut self) {
        URGENCY.set(self.0.take());
    }
}

/// Runs `work`, whose requests start at once when the urgency is raised.
pub fn with_urgency<T>(urgency: &Arc<Urgency>, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(URGENCY.replace(Some(urgency.clone())));
    work()
}

/// Returns whether the requests of this thread are to start at once.
pub(crate) fn is_urgent() -> bool {
    EXPEDITED.get() > 0
        || URGENCY.with_borrow(|urgency| urgency.as_ref().is_some_and(|one| one.is_raised.load(Ordering::SeqCst)))
}

/// Returns `work` for another thread, where its requests are as urgent as the requests of this thread.
pub(super) fn carried<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let (is_expedited, urgency) = (EXPEDITED.get() > 0, URGENCY.with_borrow(Clone::clone));
    move || {
        let _expedited = is_expedited.then(Expedited::begin);
        let _restore = Restore(URGENCY.replace(urgency));
        work()
    }
}

/// This thread waits in a queue while the value lives, and is unparked when its urgency is raised.
pub(crate) struct Waiting(Option<(Arc<Urgency>, ThreadId)>);

impl Waiting {
    pub fn begin() -> Self {
        let (urgency, thread) = (URGENCY.with_borrow(Clone::clone), std::thread::current());
        Self(urgency.map(|urgency| {
            let id = thread.id();
            urgency.waiting.lock().push(thread);
            (urgency, id)
        }))
    }

    pub fn is_urgent(&self) -> bool {
        self.0.as_ref().is_some_and(|(urgency, _)| urgency.is_raised.load(Ordering::SeqCst))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((urgency, id)) = &self.0 {
            urgency.waiting.lock().retain(|thread| thread.id() != *id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_applies_within_its_scope_and_in_threads_that_take_it_over() {
        let urgency = Arc::new(Urgency::default());
        with_urgency(&urgency, || {
            assert!(!is_urgent());
            let carried = carried(is_urgent);
            urgency.raise();
            assert!(is_urgent() && std::thread::scope(|scope| scope.spawn(carried).join().unwrap()));
            urgency.lower();
            assert!(!is_urgent());
        });
        urgency.raise();
        assert!(!is_urgent(), "outside the scope");
        let outer = Expedited::begin();
        drop(Expedited::begin());
        let carried = carried(is_urgent);
        assert!(is_urgent() && std::thread::scope(|scope| scope.spawn(carried).join().unwrap()));
        drop(outer);
        assert!(!is_urgent());
    }
}

//! The context of log lines: which session, and which relation, the writing thread works for.
//!
//! The context is a property of the thread, so code far below a session needs no extra arguments. Helper threads copy
//! the context of the thread that starts them. The logger prints the context in front of each message.

use std::cell::RefCell;

thread_local! {
    static CONTEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Sets the calling thread's context, for example `session 3, process 4711`. An empty context is not printed.
pub fn set(context: String) {
    CONTEXT.set(context);
}

/// Returns the calling thread's context.
pub fn current() -> String {
    CONTEXT.with_borrow(String::clone)
}

//! The mailbox's doorbell in every order of steps that the memory model allows.
//!
//! Values are bits of a number, and the bell is a flag that stays up, as the eventfd does; loom finds who waits for one that
//! nobody rings.

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

#[path = "../../src/mailbox/doorbell.rs"]
mod doorbell;

use doorbell::Doorbell;

/// What `doorbell` takes for `std::sync::atomic`.
mod atomic {
    pub(crate) use loom::sync::atomic::{Ordering, fence};

    pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            AtomicBool(loom::sync::atomic::AtomicBool::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            self.0.load(order)
        }

        pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
            self.0.swap(value, order)
        }

        /// Loom lets a plain store come between another thread's swap and what that swap has read, which no machine does.
        pub(crate) fn store(&self, value: bool, order: Ordering) {
            self.0.swap(value, order);
        }
    }
}

struct Shared {
    values: AtomicUsize,
    senders: AtomicUsize,
    doorbell: Doorbell,
    bell: Mutex<bool>,
    rings: Condvar,
}

impl Shared {
    fn wake(&self) {
        if self.doorbell.is_to_ring() {
            *self.bell.lock().unwrap() = true;
            self.rings.notify_one();
        }
    }

    /// As `Mailbox::send`, and then as the end of a `Mailbox`.
    fn send_and_leave(&self, value: usize) {
        self.values.fetch_or(value, Ordering::Release);
        self.wake();
        if self.senders.fetch_sub(1, Ordering::Release) == 1 {
            self.wake();
        }
    }

    /// As `Receiver::recv_timeout` does it, until all senders are gone.
    fn receive_all(&self) -> usize {
        let mut received = 0;
        loop {
            let values = self.values.swap(0, Ordering::Acquire);
            if values != 0 {
                received |= values;
                continue;
            }
            if self.senders.load(Ordering::Acquire) == 0 {
                return received | self.values.swap(0, Ordering::Acquire);
            }
            let has_nothing = || self.values.load(Ordering::Relaxed) == 0 && self.senders.load(Ordering::Relaxed) > 0;
            if self.doorbell.fall_asleep(has_nothing) {
                let mut bell = self.bell.lock().unwrap();
                while !*bell {
                    bell = self.rings.wait(bell).unwrap();
                }
                *bell = false;
                drop(bell);
                self.doorbell.wake_up();
            }
        }
    }
}

#[test]
fn no_wake_up_is_lost_in_any_order_of_steps() {
    for senders in [1, 2] {
        let mut model = loom::model::Builder::new();
        // With three changes of thread against their will it takes seconds, and finds no more.
        model.preemption_bound = Some(2);
        model.check(move || {
            let shared = Arc::new(Shared {
                values: AtomicUsize::new(0),
                senders: AtomicUsize::new(senders),
                doorbell: Doorbell::new(),
                bell: Mutex::new(false),
                rings: Condvar::new(),
            });
            for sender in 0..senders {
                let shared = shared.clone();
                thread::spawn(move || shared.send_and_leave(1 << sender));
            }
            assert_eq!(shared.receive_all(), (1 << senders) - 1);
        });
    }
}

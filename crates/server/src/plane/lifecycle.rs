//! The life of all products together: what is due, the drain, the end.

use std::sync::Arc;
use std::time::Instant;

use super::Plane;

/// The control plane of one product, as far as the server's life is concerned.
pub trait ProductControl: Send + Sync {
    /// Does what is due. Called every 100 ms or so.
    fn handle_timeout(&self, now: Instant);

    /// Whether anybody is sent anything, for whom a drain waits.
    fn has_receivers(&self) -> bool;

    /// Ends all sessions.
    fn close_all(&self);
}

/// All products and the workers below them.
pub struct Lifecycle {
    plane: Arc<Plane>,
    products: Vec<Arc<dyn ProductControl>>,
}

impl Lifecycle {
    /// Those that the server has.
    pub fn new(plane: Arc<Plane>, products: Vec<Arc<dyn ProductControl>>) -> Self {
        Lifecycle { plane, products }
    }

    /// Does what is due. To be called every 100 ms or so.
    pub fn handle_timeout(&self, now: Instant) {
        self.plane.handle_timeout(now);
        for product in &self.products {
            product.handle_timeout(now);
        }
    }

    /// Refuses newcomers from now on.
    pub fn start_drain(&self) {
        self.plane.start_drain();
    }

    /// Whether anybody is sent anything.
    pub fn has_receivers(&self) -> bool {
        self.products.iter().any(|product| product.has_receivers())
    }

    /// Ends all sessions.
    pub fn close_all(&self) {
        for product in &self.products {
            product.close_all();
        }
    }
}

//! What an input brings with it on its way through a room: the time, who gives names, where outputs go.

use crate::config::{Config, Now};
use crate::directory::Directory;
use crate::output::Outbox;
use crate::sid::Sids;

pub(crate) struct Turn<'a> {
    pub(crate) now: Now,
    pub(crate) config: &'a Config,
    pub(crate) sids: &'a mut Sids,
    pub(crate) directory: &'a mut Directory,
    pub(crate) out: &'a mut Outbox,
}

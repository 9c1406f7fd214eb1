//! One member of a table in this process: what it has mapped, and what it was told.

use std::sync::{Arc, Mutex};

use echo::ids::MemberId;
use echo::spec::TableSpec;
use echo::wire::message::Attachment;

use crate::connection::Connection;
use crate::inbox::Inbox;
use crate::table::Table;
use crate::{Error, Result};

/// A writer or a reader. What it has mapped is unmapped, and then it is detached, when it is dropped.
pub(crate) struct Member {
    table: Option<Table>,
    pub(crate) connection: Arc<Connection>,
    pub(crate) id: MemberId,
    pub(crate) inbox: Arc<Inbox>,
    /// Held by the thread that page-locks.
    pub(crate) pinning: Mutex<()>,
}

impl Member {
    pub(crate) fn new(
        connection: Arc<Connection>,
        table: Table,
        attachment: &Attachment,
        inbox: Arc<Inbox>,
    ) -> Self {
        let pinning = Mutex::default();
        Self { table: Some(table), connection, id: attachment.member, inbox, pinning }
    }

    /// Whether this process was forked from the one that attached, in which the member is of no use.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.connection.is_elsewhere()
    }

    /// What it has mapped.
    #[inline]
    pub(crate) fn table(&self) -> &Table {
        self.table.as_ref().expect("mapped until it is dropped")
    }

    pub(crate) fn spec(&self) -> &TableSpec {
        &self.table().spec
    }

    /// What was told that makes waiting pointless, for one to whom nothing is granted.
    pub(crate) fn check_told(&self) -> Result<()> {
        let told = self.inbox.state();
        if let Some((reason, _)) = told.ended {
            return Err(Error::Closed { table: self.spec().name.clone(), reason });
        }
        match &told.gone {
            Some(reason) => Err(Error::Gone { reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.is_elsewhere() {
            return;
        }
        // First unmapped, then said.
        self.table = None;
        self.connection.detach(self.id);
    }
}

//! What tests can do to the accesses of a [`Delivery`] to the database.

use hermes_core::BoxFuture;
use hermes_core::store::StoreError;

use super::Delivery;
use crate::db::connection::DbError;
use crate::db::layout::SchemaLayout;

/// One access to the database, by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryAccess {
    Read(&'static str),
    Write(&'static str),
}

/// Called around every access, so that a test can refuse it, hold it up or count it.
pub trait DeliveryHook: Send + Sync {
    /// With an error the access does not happen.
    fn before(&self, access: DeliveryAccess) -> BoxFuture<'_, Result<(), StoreError>>;
    /// What was written is committed.
    fn after(&self, access: DeliveryAccess) -> BoxFuture<'_, ()>;
}

impl Delivery {
    /// The same, with a hook around every access. For tests.
    #[must_use]
    pub fn with_hook(mut self, hook: std::sync::Arc<dyn DeliveryHook>) -> Self {
        self.hook = Some(hook);
        self
    }

    pub(super) async fn read<T, F>(&self, what: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Connection, &SchemaLayout) -> Result<T, DbError> + Send + 'static,
    {
        let access = DeliveryAccess::Read(what);
        self.hooked(access, self.store.read(what, work)).await
    }

    /// A write that happens only while this process is the owner.
    pub(super) async fn write<T, F>(&self, what: &'static str, mut work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&rusqlite::Connection, &SchemaLayout) -> Result<T, DbError> + Send + 'static,
    {
        let instance = self.owner.instance.clone();
        let write = self.store.write(what, move |conn, layout| {
            super::owner::check(conn, &instance)?;
            work(conn, layout)
        });
        self.hooked(DeliveryAccess::Write(what), write).await
    }

    async fn hooked<T>(
        &self,
        access: DeliveryAccess,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(hook) = &self.hook else {
            return work.await;
        };
        hook.before(access).await?;
        let done = work.await;
        hook.after(access).await;
        done
    }
}

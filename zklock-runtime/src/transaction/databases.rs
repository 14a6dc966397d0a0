use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::Arc,
};

use sqlx::Pool;

use super::{Database, Fence};

/// What a `Locks` knows of databases: the pools that a bare `transactional` uses, and the state of the fence.
#[derive(Clone, Default)]
pub(crate) struct Databases {
    /// One for each type of database.
    pools: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    fence: Arc<Fence>,
}

impl Databases {
    /// Takes the place of an earlier pool of the same type of database.
    pub(crate) fn add<DB: Database>(&mut self, pool: Pool<DB>) {
        self.pools.insert(TypeId::of::<DB>(), Arc::new(pool));
    }

    /// Whether the fence table is created where it is missing; it is, by default.
    pub(crate) fn migrate(&mut self, migrate: bool) {
        self.fence = Arc::new(Fence::new(migrate));
    }

    pub(crate) fn pool<DB: Database>(&self) -> Option<Pool<DB>> {
        self.pools.get(&TypeId::of::<DB>())?.downcast_ref::<Pool<DB>>().cloned()
    }

    pub(crate) fn fence(&self) -> &Arc<Fence> {
        &self.fence
    }
}

impl fmt::Debug for Databases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Databases").field("pools", &self.pools.len()).field("fence", &self.fence).finish()
    }
}

/// Tells pools apart. All clones of a pool have one id, for as long as one of them lives.
pub(crate) fn pool_id<DB: Database>(pool: &Pool<DB>) -> usize {
    Arc::as_ptr(&pool.connect_options()).addr()
}

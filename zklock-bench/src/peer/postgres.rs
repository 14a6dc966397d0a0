use zklock::sqlx::{PgPool, Postgres, pool::PoolConnection, postgres::PgPoolOptions, query};

use super::locker::Locker;

/// `pg_advisory_lock`: a connection for each that holds or waits.
#[derive(Clone)]
pub(super) struct PostgresAdvisory(PgPool);

pub(super) struct Held {
    connection: PoolConnection<Postgres>,
    path: String,
}

impl PostgresAdvisory {
    pub(super) async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(Self(PgPoolOptions::new().max_connections(64).connect(url).await?))
    }
}

impl Locker for PostgresAdvisory {
    type Held = Held;

    async fn acquire(&self, path: &str) -> anyhow::Result<Held> {
        let mut connection = self.0.acquire().await?;
        query("SELECT pg_advisory_lock(hashtextextended($1, 0))")
            .bind(path)
            .execute(&mut *connection)
            .await?;
        Ok(Held { connection, path: path.into() })
    }

    async fn release(&self, mut held: Held) -> anyhow::Result<()> {
        let unlock = query("SELECT pg_advisory_unlock(hashtextextended($1, 0))");
        unlock.bind(&held.path).execute(&mut *held.connection).await?;
        Ok(())
    }
}

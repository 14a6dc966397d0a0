//! Rules about statements, seen by a real client and real databases.

use std::time::Duration;

use sqlx::{Connection, Executor, MySqlConnection, PgConnection};
use tokio::time::timeout;
use zklock_testkit::{Error, MariaDb, Postgres, Proxy};

const ENOUGH: Duration = Duration::from_secs(30);
const A_WHILE: Duration = Duration::from_millis(200);

/// The same situations on both databases.
macro_rules! situations {
    ($name:ident, $server:ty, $connection:ty, $insert:literal) => {
        mod $name {
            use super::*;

            #[tokio::test]
            async fn a_swallowed_commit_is_committed() -> Result<(), Error> {
                let (server, url, proxy, mut connection) = setup().await?;
                let lost = proxy.swallow_reply("COMMIT", 1);
                let mut transaction = connection.begin().await.expect("a transaction");
                sqlx::query($insert).bind(1).execute(&mut *transaction).await.expect("a row");
                assert!(!lost.has_fired());
                assert!(transaction.commit().await.is_err());
                lost.fired().await?;
                assert_eq!(server.sql(&url, "SELECT id FROM orders").await?, "1");
                Ok(())
            }

            #[tokio::test]
            async fn a_dropped_commit_is_not_committed() -> Result<(), Error> {
                let (server, url, proxy, mut connection) = setup().await?;
                let lost = proxy.drop_request("commit", 1);
                let mut transaction = connection.begin().await.expect("a transaction");
                sqlx::query($insert).bind(1).execute(&mut *transaction).await.expect("a row");
                assert!(transaction.commit().await.is_err());
                lost.fired().await?;
                assert_eq!(server.sql(&url, "SELECT id FROM orders").await?, "");
                Ok(())
            }

            #[tokio::test]
            async fn a_prepared_statement_is_known_when_executed() -> Result<(), Error> {
                let (server, url, proxy, mut connection) = setup().await?;
                sqlx::query($insert).bind(1).execute(&mut connection).await.expect("prepared and run");
                let lost = proxy.swallow_reply("INTO orders", 2);
                sqlx::query($insert).bind(2).execute(&mut connection).await.expect("the first from here");
                assert!(sqlx::query($insert).bind(3).execute(&mut connection).await.is_err());
                lost.fired().await?;
                assert_eq!(server.sql(&url, "SELECT id FROM orders ORDER BY id").await?, "1\n2\n3");
                Ok(())
            }

            #[tokio::test]
            async fn a_held_answer_comes_when_released() -> Result<(), Error> {
                let (server, url, proxy, mut connection) = setup().await?;
                let held = proxy.hold_reply("INTO orders", 1);
                let insert = connection.execute("INSERT INTO orders VALUES (7)");
                tokio::pin!(insert);
                assert!(timeout(A_WHILE, &mut insert).await.is_err());
                held.fired().await?;
                assert_eq!(server.sql(&url, "SELECT id FROM orders").await?, "7");
                held.release();
                timeout(ENOUGH, insert).await.expect("in time").expect("the answer");
                Ok(())
            }

            #[tokio::test]
            async fn a_held_statement_is_not_run_yet() -> Result<(), Error> {
                let (server, url, proxy, mut connection) = setup().await?;
                let held = proxy.hold_request("INTO orders", 1);
                let insert = connection.execute("INSERT INTO orders VALUES (7)");
                tokio::pin!(insert);
                assert!(timeout(A_WHILE, &mut insert).await.is_err());
                held.fired().await?;
                assert_eq!(server.sql(&url, "SELECT id FROM orders").await?, "");
                held.release();
                timeout(ENOUGH, insert).await.expect("in time").expect("the answer");
                assert_eq!(server.sql(&url, "SELECT id FROM orders").await?, "7");
                Ok(())
            }

            /// Answers are told apart even where they are long.
            #[tokio::test]
            async fn the_right_answer_is_swallowed_after_a_long_one() -> Result<(), Error> {
                let (server, url, proxy, mut connection) = setup().await?;
                for id in 0..700 {
                    sqlx::query($insert).bind(id).execute(&mut connection).await.expect("a row");
                }
                let lost = proxy.swallow_reply("DELETE", 1);
                let rows = connection.fetch_all("SELECT id FROM orders").await.expect("all rows");
                assert_eq!(rows.len(), 700);
                assert!(connection.execute("DELETE FROM orders").await.is_err());
                lost.fired().await?;
                assert_eq!(server.sql(&url, "SELECT count(*) FROM orders").await?, "0");
                Ok(())
            }

            async fn setup() -> Result<(&'static $server, String, Proxy, $connection), Error> {
                let server = <$server>::shared().await?;
                let url = server.create_database("proxy").await?;
                server.sql(&url, "CREATE TABLE orders (id int)").await?;
                let proxy = Proxy::start(&url).await?;
                let connection = <$connection>::connect(&proxy.url(&url)).await.expect("a connection");
                Ok((server, url, proxy, connection))
            }
        }
    };
}

situations!(postgres, Postgres, PgConnection, "INSERT INTO orders VALUES ($1)");
situations!(mariadb, MariaDb, MySqlConnection, "INSERT INTO orders VALUES (?)");

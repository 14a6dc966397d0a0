//! On real servers, each case on every database. Holds are made by hand: the lock server has no part in it.

mod bench;
mod lab;

mod cancelled;
mod ended;
mod fenced;
mod joined;
mod lost_answers;

/// Makes a test of each case for each database that has a server.
macro_rules! on_each_server {
    ($($case:ident),* $(,)?) => {
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test] async fn $case() { super::$case::<sqlx::Postgres>().await })*
        }
        #[cfg(feature = "mysql")]
        mod mariadb {
            $(#[tokio::test] async fn $case() { super::$case::<sqlx::MySql>().await })*
        }
    };
}
use on_each_server;

/// Makes a test of each case for each database.
macro_rules! on_each_database {
    ($($case:ident),* $(,)?) => {
        $crate::transaction::tests::on_each_server!($($case),*);
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test] async fn $case() { super::$case::<sqlx::Sqlite>().await })*
        }
    };
}
use on_each_database;

use std::fmt;

use axum::{
    Json,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use serde_json::json;
use zklock::sqlx;

/// Why there is no receipt. `From<zklock::Error>` is all that the annotation asks of it.
#[derive(Debug)]
pub(crate) enum Failure {
    Lock(zklock::Error),
    Database(sqlx::Error),
    Declined,
    NoSuchOrder(i64),
}

impl From<zklock::Error> for Failure {
    fn from(error: zklock::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl Failure {
    /// What HTTP says, and one word for programs.
    fn kind(&self) -> (StatusCode, &'static str) {
        use zklock::Error;
        match self {
            Self::Lock(Error::Busy { .. }) => (StatusCode::LOCKED, "busy"),
            Self::Lock(Error::Overrun { .. }) => (StatusCode::GATEWAY_TIMEOUT, "overrun"),
            Self::Lock(Error::Lost { .. }) => (StatusCode::SERVICE_UNAVAILABLE, "lost"),
            Self::Lock(Error::Closed) => (StatusCode::SERVICE_UNAVAILABLE, "closed"),
            Self::Lock(Error::WrongKind { .. }) => (StatusCode::CONFLICT, "wrong_kind"),
            Self::Lock(Error::InvalidPath { .. }) => (StatusCode::BAD_REQUEST, "invalid_path"),
            Self::Lock(error) if error.is_retryable() => (StatusCode::SERVICE_UNAVAILABLE, "try_again"),
            Self::Lock(_) => (StatusCode::INTERNAL_SERVER_ERROR, "lock"),
            Self::Database(_) => (StatusCode::INTERNAL_SERVER_ERROR, "database"),
            Self::Declined => (StatusCode::PAYMENT_REQUIRED, "declined"),
            Self::NoSuchOrder(_) => (StatusCode::NOT_FOUND, "no_such_order"),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, error) = self.kind();
        let mut response =
            (status, Json(json!({ "error": error, "message": self.to_string() }))).into_response();
        if matches!(status, StatusCode::LOCKED | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(RETRY_AFTER, 1.into());
        }
        response
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Database(error) => error.fmt(f),
            Self::Declined => f.write_str("the card was declined"),
            Self::NoSuchOrder(id) => write!(f, "there is no order {id}; there are 7 and 42"),
        }
    }
}

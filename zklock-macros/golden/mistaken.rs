impl Service {
    async fn pay(id: u64) -> Result<(), AppError> {
        let tx: &mut PgConnection = ::zklock::__private::missing();
        charge(id, tx).await
    }
    ::core::compile_error! {
        "unknown option `pth`; did you mean `path`?"
    }
    ::core::compile_error! {
        "`path` is missing: `#[zk_lock(path = \"/orders/{id}\")]`"
    }
}

impl Service {
    async fn pay(&self, id: u64) -> Result<impl Display, AppError> {
        let path = ::zklock::__private::path(
            const {
                &[
                    &[::zklock::__private::Part::Text("orders")],
                    &[::zklock::__private::Part::Value("id")],
                ]
            },
            &[&id],
        );
        let locks: &::zklock::__private::Locks = &(self.locks);
        let out = match ::zklock::__private::enter(
                const {
                    &::zklock::__private::Spec {
                        function: ::zklock::__private::core::concat!(
                            ::zklock::__private::core::module_path!(), "::", "pay"
                        ),
                        fair: false,
                        timeout: ::zklock::__private::Limit::Default,
                        wait: ::zklock::__private::Limit::Some(
                            ::zklock::__private::core::time::Duration::new(0u64, 0u32),
                        ),
                    }
                },
                ::zklock::__private::core::option::Option::Some(locks),
                path,
            )
            .await
        {
            ::zklock::__private::core::result::Result::Ok(call) => {
                let guard = &call;
                match ::zklock::__private::begin::<
                    Transaction<'_, Postgres>,
                    _,
                >(
                        &call,
                        const {
                            &::zklock::__private::TxSpec {
                                isolation: ::zklock::__private::core::option::Option::Some(
                                    ::zklock::__private::Isolation::Serializable,
                                ),
                                unfenced: true,
                                requires_new: false,
                            }
                        },
                        &(self.db),
                    )
                    .await
                {
                    ::zklock::__private::core::result::Result::Ok(mut tx) => {
                        let out = match ::zklock::__private::open::<
                            Transaction<'_, Postgres>,
                        >(&mut tx)
                            .await
                        {
                            ::zklock::__private::core::result::Result::Ok(mut slot) => {
                                let lent = &mut slot;
                                let out = ::zklock::__private::run(
                                        &call,
                                        async move {
                                            #[allow(unreachable_code, clippy::diverging_sub_expression)]
                                            if let ::zklock::__private::core::option::Option::Some(
                                                ret,
                                            ) = ::zklock::__private::core::option::Option::None::<
                                                Result<_, AppError>,
                                            > {
                                                return ret;
                                            }
                                            let tx: &mut Transaction<'_, Postgres> = ::zklock::__private::param::<
                                                Transaction<'_, Postgres>,
                                            >(lent);
                                            let guard: &Guard = ::zklock::__private::guard(guard);
                                            tx.execute("..").await?;
                                            Ok(guard.fencing_token())
                                        },
                                    )
                                    .await;
                                ::zklock::__private::close::<
                                    Transaction<'_, Postgres>,
                                    _,
                                >(
                                        &call,
                                        slot,
                                        out,
                                        |out| ::zklock::__private::Commits::commits(out),
                                    )
                                    .await
                            }
                            ::zklock::__private::core::result::Result::Err(error) => {
                                ::zklock::__private::core::result::Result::Err(error)
                            }
                        };
                        ::zklock::__private::finish(call, tx, out).await
                    }
                    ::zklock::__private::core::result::Result::Err(error) => {
                        ::zklock::__private::abandon(call, error).await
                    }
                }
            }
            ::zklock::__private::core::result::Result::Err(error) => {
                ::zklock::__private::core::result::Result::Err(error)
            }
        };
        match out {
            ::zklock::__private::core::result::Result::Ok(out) => out,
            ::zklock::__private::core::result::Result::Err(error) => {
                return ::zklock::__private::FromLockError::from_lock_error(error);
            }
        }
    }
}

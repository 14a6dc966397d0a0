impl Service {
    fn pay<'life0, 'async_trait>(
        &'life0 self,
        id: u64,
    ) -> ::core::pin::Pin<
        Box<
            dyn ::core::future::Future<
                Output = Result<(), AppError>,
            > + ::core::marker::Send + 'async_trait,
        >,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let path = ::zklock::__private::path(
                const {
                    &[
                        &[::zklock::__private::Part::Text("orders")],
                        &[::zklock::__private::Part::Value("id")],
                    ]
                },
                &[&id],
            );
            let out = match ::zklock::__private::enter(
                    const {
                        &::zklock::__private::Spec {
                            function: ::zklock::__private::core::concat!(
                                ::zklock::__private::core::module_path!(), "::", "pay"
                            ),
                            fair: true,
                            timeout: ::zklock::__private::Limit::Default,
                            wait: ::zklock::__private::Limit::Default,
                        }
                    },
                    ::zklock::__private::core::option::Option::None,
                    path,
                )
                .await
            {
                ::zklock::__private::core::result::Result::Ok(call) => {
                    match ::zklock::__private::begin::<
                        PgConnection,
                        _,
                    >(
                            &call,
                            const {
                                &::zklock::__private::TxSpec {
                                    isolation: ::zklock::__private::core::option::Option::None,
                                    unfenced: false,
                                    requires_new: false,
                                }
                            },
                            ::zklock::__private::Installed,
                        )
                        .await
                    {
                        ::zklock::__private::core::result::Result::Ok(mut tx) => {
                            let out = match ::zklock::__private::open::<
                                PgConnection,
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
                                                    Result<(), AppError>,
                                                > {
                                                    return ret;
                                                }
                                                let tx: &mut PgConnection = ::zklock::__private::param::<
                                                    PgConnection,
                                                >(lent);
                                                let __self = self;
                                                let id = id;
                                                let __ret: Result<(), AppError> = {
                                                    __self.charge(id, tx).await
                                                };
                                                __ret
                                            },
                                        )
                                        .await;
                                    ::zklock::__private::close::<
                                        PgConnection,
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
        })
    }
}

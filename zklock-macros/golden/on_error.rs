impl Service {
    async fn pay(path: LockPath, outer: &mut PgConnection) {
        let path = ::zklock::__private::ready_path(path);
        let out = match ::zklock::__private::enter(
                const {
                    &::zklock::__private::Spec {
                        function: ::zklock::__private::core::concat!(
                            ::zklock::__private::core::module_path!(), "::", "pay"
                        ),
                        fair: true,
                        timeout: ::zklock::__private::Limit::None,
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
                        &mut *outer,
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
                                            ) = ::zklock::__private::core::option::Option::None::<()> {
                                                return ret;
                                            }
                                            let tx: &mut PgConnection = ::zklock::__private::param::<
                                                PgConnection,
                                            >(lent);
                                            tx.execute("..").await;
                                        },
                                    )
                                    .await;
                                ::zklock::__private::close::<
                                    PgConnection,
                                    _,
                                >(&call, slot, out, |out| done(out))
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
                return Self::failed(error);
            }
        }
    }
}

impl Service {
    /// Documented.
    pub(crate) async fn pay(&self, id: u64, order: &Order) -> Result<Receipt, AppError> {
        #![allow(dead_code)]
        let path = ::zklock::__private::path(
            const {
                &[
                    &[::zklock::__private::Part::Text("orders")],
                    &[::zklock::__private::Part::Value("id")],
                    &[
                        ::zklock::__private::Part::Value("order.region"),
                        ::zklock::__private::Part::Text("-x"),
                    ],
                ]
            },
            &[&id, &order.region],
        );
        let out = match ::zklock::__private::enter(
                const {
                    &::zklock::__private::Spec {
                        function: ::zklock::__private::core::concat!(
                            ::zklock::__private::core::module_path!(), "::", "pay"
                        ),
                        fair: true,
                        timeout: ::zklock::__private::Limit::Some(
                            ::zklock::__private::core::time::Duration::new(
                                60u64,
                                500000000u32,
                            ),
                        ),
                        wait: ::zklock::__private::Limit::Default,
                    }
                },
                ::zklock::__private::core::option::Option::None,
                path,
            )
            .await
        {
            ::zklock::__private::core::result::Result::Ok(call) => {
                let out = ::zklock::__private::run(
                        &call,
                        async move {
                            #[allow(unreachable_code, clippy::diverging_sub_expression)]
                            if let ::zklock::__private::core::option::Option::Some(
                                ret,
                            ) = ::zklock::__private::core::option::Option::None::<
                                Result<Receipt, AppError>,
                            > {
                                return ret;
                            }
                            charge(id).await?;
                            Ok(Receipt)
                        },
                    )
                    .await;
                ::zklock::__private::leave(call, out).await
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

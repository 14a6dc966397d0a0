//! What an annotation expands to, to be read. After a change on purpose, run the tests with `UPDATE_GOLDEN=1`, and
//! look at the difference.
use std::{env, fs, path::Path};

use proc_macro2::TokenStream;
use quote::quote;

use crate::expand;

#[test]
fn plain() {
    golden(
        "plain",
        &quote!(path = "/orders/{id}/{order.region}-x", timeout = "1m 500ms"),
        &quote! {
            /// Documented.
            pub(crate) async fn pay(&self, id: u64, order: &Order) -> Result<Receipt, AppError> {
                #![allow(dead_code)]
                charge(id).await?;
                Ok(Receipt)
            }
        },
    );
}

#[test]
fn transactional() {
    golden(
        "transactional",
        &quote!(
            path = "/orders/{id}",
            fair = false,
            wait = "0s",
            locks = self.locks,
            transactional(pool = self.db, isolation = "serializable", unfenced)
        ),
        &quote! {
            async fn pay<'c>(
                &self,
                id: u64,
                #[tx] tx: &mut Transaction<'c, Postgres>,
                #[guard] guard: &Guard,
            ) -> Result<impl Display, AppError> {
                tx.execute("..").await?;
                Ok(guard.fencing_token())
            }
        },
    );
}

#[test]
fn on_error() {
    golden(
        "on_error",
        &quote!(
            path = path,
            timeout = "none",
            on_error = Self::failed,
            transactional(pool = outer, commit_if = done)
        ),
        &quote! {
            async fn pay(path: LockPath, outer: &mut PgConnection, #[tx] tx: &mut PgConnection) {
                tx.execute("..").await;
            }
        },
    );
}

/// As `#[async_trait]` gives it.
#[test]
fn boxed() {
    golden(
        "boxed",
        &quote!(path = "/orders/{id}", transactional),
        &quote! {
            fn pay<'life0, 'life1, 'async_trait>(
                &'life0 self,
                id: u64,
                #[tx] tx: &'life1 mut PgConnection,
            ) -> ::core::pin::Pin<Box<
                dyn ::core::future::Future<Output = Result<(), AppError> > + ::core::marker::Send + 'async_trait,
            > >
            where
                'life0: 'async_trait,
                'life1: 'async_trait,
                Self: 'async_trait,
            {
                Box::pin(async move {
                    let __self = self;
                    let id = id;
                    let __ret: Result<(), AppError> = { __self.charge(id, tx).await };
                    __ret
                })
            }
        },
    );
}

#[test]
fn mistaken() {
    golden(
        "mistaken",
        &quote!(pth = "/orders/{id}", transactional),
        &quote! {
            async fn pay(id: u64, #[tx] tx: &mut PgConnection) -> Result<(), AppError> {
                charge(id, tx).await
            }
        },
    );
}

fn golden(name: &str, args: &TokenStream, item: &TokenStream) {
    let expanded = expand(args.clone(), item.clone());
    // In an impl, since some have a receiver.
    let file = syn::parse2(quote!(impl Service { #expanded })).or_else(|_| syn::parse2(expanded)).unwrap();
    let expanded = prettyplease::unparse(&file);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name).with_extension("rs");
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, expanded).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert_eq!(expanded, expected, "see {}, and run with UPDATE_GOLDEN=1 if it is to change", path.display());
}

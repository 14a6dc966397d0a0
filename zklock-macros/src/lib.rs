//! The attribute of zklock.
mod args;
mod boxed;
mod duration;
mod errors;
mod expand;
mod function;
#[cfg(test)]
mod golden;
mod injected;
mod plan;
mod template;

use proc_macro2::TokenStream;

use crate::{args::Args, errors::Errors, function::Function, injected::Injected, plan::Plan};

/// Runs an async function under a lock, and in a transaction if asked to.
#[proc_macro_attribute]
pub fn zk_lock(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(args.into(), item.into()).into()
}

/// The attribute as tests can call it.
fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(args, &mut errors);
    let mut function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            errors.push(not_a_function(&item).unwrap_or(error));
            return errors.beside(item);
        }
    };
    let tokens = function.body.as_ref().map(|body| body.tokens.clone()).unwrap_or_default();
    let injected = Injected::take(&mut function.sig, &tokens, &mut errors);
    let krate = args.krate.clone();
    match (Plan::new(args, &function, &injected, &mut errors), &function.body) {
        (Some(plan), Some(body)) => expand::expand(&plan, &function, body),
        _ => errors.beside(expand::untouched(krate.as_ref(), &function, &injected)),
    }
}

/// What to say about an item that is no function at all.
fn not_a_function(item: &TokenStream) -> Option<syn::Error> {
    let is_function = item.clone().into_iter().any(|token| token.to_string() == "fn");
    let message = "`#[zk_lock]` goes on an `async fn`: in an `impl` or a `trait`, on the method itself";
    (!is_function).then(|| syn::Error::new_spanned(item, message))
}

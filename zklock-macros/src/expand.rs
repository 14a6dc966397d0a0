use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    Token, Type, TypeInfer,
    ext::IdentExt,
    spanned::Spanned,
    token::Brace,
    visit_mut::{self, VisitMut},
};

use crate::{
    args::Limit,
    boxed::Boxed,
    function::{Body, Function},
    injected::{Injected, Param},
    plan::{Path, Plan, Shape, Source, Transaction},
    template::{Part, Template},
};

/// The function with its body under the lock.
pub(crate) fn expand(plan: &Plan<'_>, function: &Function, body: &Body) -> TokenStream {
    let expansion =
        Expansion { plan, name: function.sig.ident.unraw().to_string(), rt: runtime(plan.krate.as_ref()) };
    let body = match &plan.shape {
        Shape::Async { .. } => expansion.locked(body.brace, &body.tokens),
        Shape::Boxed(boxed) => {
            let Boxed { before, pin, inner, .. } = &**boxed;
            let (attrs, stmts) = (&inner.attrs, &inner.block.stmts);
            let locked = expansion.locked(inner.block.brace_token, &quote!(#(#stmts)*));
            quote!(#(#before)* #pin(#(#attrs)* async move { #locked }))
        }
    };
    function.with_body(&body)
}

/// The function as it was written, for when something is wrong: its callers and its body still fit, so that nothing is
/// reported but the mistake.
pub(crate) fn untouched(krate: Option<&syn::Path>, function: &Function, injected: &Injected) -> TokenStream {
    let rt = runtime(krate);
    let binds = injected.params().map(|param| bind(param, &quote!(#rt::missing())));
    let tokens = function.body.as_ref().map(|body| &body.tokens);
    function.with_body(&quote!(#(#binds)* #tokens))
}

struct Expansion<'a> {
    plan: &'a Plan<'a>,
    /// The name of the function.
    name: String,
    /// Path of the runtime's hidden module.
    rt: TokenStream,
}

impl Expansion<'_> {
    /// From the path to the end of the lock, around `body`.
    ///
    /// The body is awaited in place: each function that it went through would store it once more. And what must
    /// outlive it is declared outside of it: on every way out the body's own variables go first, then the arguments
    /// that it used, then the transaction, then the lock.
    fn locked(&self, brace: Brace, body: &TokenStream) -> TokenStream {
        let Self { plan, rt, .. } = self;
        let [path, locks, call, guard, error, out] =
            ["path", "locks", "call", "guard", "error", "out"].map(local);
        let core = quote!(#rt::core);
        let (ok, err) = (quote!(#core::result::Result::Ok), quote!(#core::result::Result::Err));
        let key = self.path();
        let spec = self.spec();
        let (bind_locks, given_locks) = match &plan.locks {
            // By coercion, so that a `Locks`, a `&Locks` and an `Arc<Locks>` will do.
            Some(given) => {
                (quote!(let #locks: &#rt::Locks = &(#given);), quote!(#core::option::Option::Some(#locks)))
            }
            None => (TokenStream::new(), quote!(#core::option::Option::None)),
        };
        let lend_guard = plan.guard.map(|_| quote!(let #guard = &#call;));
        let bind_guard =
            plan.guard.map(|param| bind(param, &respan(&quote!(#rt::guard(#guard)), param.ty.span())));
        let held = match &plan.transaction {
            None => {
                let body = self.body(brace, &quote!(#bind_guard), body);
                quote! {
                    let #out = #rt::run(&#call, #body).await;
                    #rt::leave(#call, #out).await
                }
            }
            Some(transaction) => self.transaction(transaction, brace, &quote!(#bind_guard), body),
        };
        let fail = self.fail(&error);
        quote! {
            let #path = #key;
            #bind_locks
            let #out = match #rt::enter(#spec, #given_locks, #path).await {
                #ok(#call) => {
                    #lend_guard
                    #held
                }
                #err(#error) => #err(#error),
            };
            match #out {
                #ok(#out) => #out,
                #err(#error) => return #fail,
            }
        }
    }

    /// From BEGIN to the end of the lock.
    fn transaction(
        &self,
        transaction: &Transaction<'_>,
        brace: Brace,
        binds: &TokenStream,
        body: &TokenStream,
    ) -> TokenStream {
        let rt = &self.rt;
        let [call, tx, slot, lent, error, out] = ["call", "tx", "slot", "lent", "error", "out"].map(local);
        let core = quote!(#rt::core);
        let (ok, err) = (quote!(#core::result::Result::Ok), quote!(#core::result::Result::Err));
        let Transaction { param, connection, source, isolation, unfenced, requires_new, commit_if } =
            transaction;
        let isolation = if let Some(isolation) = isolation {
            let level = Ident::new(isolation.level, Span::call_site());
            quote!(#core::option::Option::Some(#rt::Isolation::#level))
        } else {
            quote!(#core::option::Option::None)
        };
        let spec = quote! {
            const { &#rt::TxSpec { isolation: #isolation, unfenced: #unfenced, requires_new: #requires_new } }
        };
        // On the expression, where "is no pool" belongs.
        let (source, pool) = match source {
            Source::Installed => (quote!(#rt::Installed), None),
            Source::Reference(source) => (quote!(#source), Some(source.span())),
            Source::Join(source) => (respan(&quote!(&mut *#source), source.span()), Some(source.span())),
            Source::Pool(source) => (respan(&quote!(&(#source)), source.span()), Some(source.span())),
        };
        // Closures, so that one that does not fit is reported once.
        let commits = {
            let place = commit_if.as_ref().map_or_else(|| self.plan.shape.output().1, Spanned::span);
            let out = Ident::new("out", Span::mixed_site().located_at(place));
            let commits =
                commit_if.as_ref().map_or_else(|| quote!(#rt::Commits::commits), |path| quote!(#path));
            respan(&quote!(|#out| #commits(#out)), place)
        };
        // All on the type: where it is none for a connection, the messages are there, and there is one.
        let on_type = |tokens: TokenStream| respan(&tokens, connection.span());
        let begin = quote!(#rt::begin::<#connection, _>(&#call, #spec, #source).await);
        let begin = match pool {
            Some(place) => respan(&begin, place),
            None => on_type(begin),
        };
        let open = on_type(quote!(#rt::open::<#connection>(&mut #tx).await));
        let close = on_type(quote!(#rt::close::<#connection, _>(&#call, #slot, #out, #commits).await));
        let bind_tx = bind(param, &on_type(quote!(#rt::param::<#connection>(#lent))));
        let body = self.body(brace, &quote!(#bind_tx #binds), body);
        quote! {
            match #begin {
                #ok(mut #tx) => {
                    let #out = match #open {
                        #ok(mut #slot) => {
                            let #lent = &mut #slot;
                            let #out = #rt::run(&#call, #body).await;
                            #close
                        }
                        #err(#error) => #err(#error),
                    };
                    #rt::finish(#call, #tx, #out).await
                }
                #err(#error) => #rt::abandon(#call, #error).await,
            }
        }
    }

    /// The user's body as an async block, on the user's own braces: in a block inside of ours the compiler would find
    /// `unused_braces`.
    fn body(&self, brace: Brace, binds: &TokenStream, body: &TokenStream) -> TokenStream {
        let pin_type = self.pin_type();
        let mut block = quote!(async move);
        brace.surround(&mut block, |tokens| tokens.extend(quote!(#pin_type #binds #body)));
        block
    }

    /// Says what the body returns before any of it is looked at, so that `?`, `into()` and type errors are as in the
    /// plain function.
    fn pin_type(&self) -> TokenStream {
        let (output, span) = self.plan.shape.output();
        if let Type::Never(_) = output {
            return TokenStream::new();
        }
        let mut output = output.clone();
        InferImplTrait.visit_type_mut(&mut output);
        let ret = Ident::new("ret", Span::mixed_site().located_at(span));
        let rt = &self.rt;
        let core = self.at_output(&quote!(#rt::core));
        quote_spanned! {span=>
            #[allow(unreachable_code, clippy::diverging_sub_expression)]
            if let #core::option::Option::Some(#ret) = #core::option::Option::None::<#output> {
                return #ret;
            }
        }
    }

    fn path(&self) -> TokenStream {
        let rt = &self.rt;
        let Template { span, segments } = match &self.plan.path {
            Path::Template(template) => template,
            Path::Ready(path) => return quote!(#rt::ready_path(#path)),
        };
        let segments_tokens = segments.iter().map(|segment| {
            let parts = segment.iter().map(|part| match part {
                Part::Text(text) => quote!(#rt::Part::Text(#text)),
                Part::Value { name, .. } => quote!(#rt::Part::Value(#name)),
            });
            quote!(&[#(#parts),*])
        });
        let values = segments.iter().flatten().filter_map(|part| match part {
            Part::Text(_) => None,
            // On the literal, where "doesn't implement `Display`" belongs.
            Part::Value { value, .. } => Some(quote_spanned!(*span=> &#value)),
        });
        quote!(#rt::path(const { &[#(#segments_tokens),*] }, &[#(#values),*]))
    }

    /// What the annotation says, in a constant: no item, so that no name gets into the user's scope.
    fn spec(&self) -> TokenStream {
        let Self { plan, name, rt } = self;
        let (fair, timeout, wait) = (plan.fair, self.limit(plan.timeout), self.limit(plan.wait));
        quote! {
            const { &#rt::Spec {
                function: #rt::core::concat!(#rt::core::module_path!(), "::", #name),
                fair: #fair,
                timeout: #timeout,
                wait: #wait,
            } }
        }
    }

    fn limit(&self, limit: Limit) -> TokenStream {
        let rt = &self.rt;
        match limit {
            Limit::Default => quote!(#rt::Limit::Default),
            Limit::None => quote!(#rt::Limit::None),
            Limit::Some(duration) => {
                let (secs, nanos) = (duration.as_secs(), duration.subsec_nanos());
                quote!(#rt::Limit::Some(#rt::core::time::Duration::new(#secs, #nanos)))
            }
        }
    }

    /// The return value for a lock error. The one place that asks for `FromLockError`: where it is missing, there is
    /// one message.
    fn fail(&self, error: &Ident) -> TokenStream {
        let rt = &self.rt;
        if let Some(on_error) = &self.plan.on_error {
            return quote_spanned!(on_error.span()=> #on_error(#error));
        }
        let convert = self.at_output(&quote!(#rt::FromLockError::from_lock_error));
        quote_spanned!(self.plan.shape.output().1=> #convert(#error))
    }

    /// Moves every token to the return type, where errors about it belong. One that stayed behind would draw the
    /// message to the whole attribute.
    fn at_output(&self, tokens: &TokenStream) -> TokenStream {
        respan(tokens, self.plan.shape.output().1)
    }
}

fn runtime(krate: Option<&syn::Path>) -> TokenStream {
    krate.map_or_else(|| quote!(::zklock::__private), |krate| quote!(#krate::__private))
}

/// A name that the user's code does not see.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// Gives an injected parameter its value, which is to fit its type.
fn bind(param: &Param, value: &TokenStream) -> TokenStream {
    let Param { attrs, pat, ty, .. } = param;
    quote!(#(#attrs)* let #pat: #ty = #value;)
}

fn respan(tokens: &TokenStream, place: Span) -> TokenStream {
    tokens
        .clone()
        .into_iter()
        .map(|mut token| {
            token.set_span(token.span().located_at(place));
            token
        })
        .collect()
}

/// `impl Trait` cannot be said of a variable.
struct InferImplTrait;

impl VisitMut for InferImplTrait {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if let Type::ImplTrait(opaque) = ty {
            let underscore_token = Token![_](opaque.impl_token.span);
            *ty = Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token });
        } else {
            visit_mut::visit_type_mut(self, ty);
        }
    }
}

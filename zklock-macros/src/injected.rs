use std::collections::HashSet;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{
    Attribute, FnArg, GenericParam, Lifetime, Pat, PatType, Signature, Type, TypeReference, WherePredicate,
    punctuated::Punctuated,
    visit_mut::{self, VisitMut},
};

use crate::errors::Errors;

/// The parameters that callers do not see: the wrapper supplies them.
#[derive(Default)]
pub(crate) struct Injected {
    pub(crate) tx: Option<Param>,
    pub(crate) guard: Option<Param>,
    /// One too many, which is reported.
    others: Vec<Param>,
}

pub(crate) struct Param {
    /// Its attributes without ours.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) pat: Pat,
    /// Its type, with every named lifetime elided: there is no caller to name it.
    pub(crate) ty: Type,
    /// Where the `#[tx]` or `#[guard]` is.
    pub(crate) mark: Attribute,
}

impl Injected {
    /// Takes them out of the signature, with the lifetimes that only they used.
    pub(crate) fn take(sig: &mut Signature, body: &TokenStream, errors: &mut Errors) -> Self {
        let mut this = Self::default();
        let mut lifetimes = Vec::new();
        let inputs = std::mem::take(&mut sig.inputs);
        for mut input in inputs.into_pairs() {
            let Some(mark) = take_mark(input.value_mut(), errors) else {
                sig.inputs.extend([input]);
                continue;
            };
            match input.into_value() {
                FnArg::Typed(param) => this.keep(mark, param, &mut lifetimes, errors),
                receiver @ FnArg::Receiver(_) => {
                    errors.at(&mark, "`self` comes from the caller: mark another parameter");
                    sig.inputs.push(receiver);
                }
            }
        }
        forget(&lifetimes, sig, body);
        this
    }

    /// All of them.
    pub(crate) fn params(&self) -> impl Iterator<Item = &Param> {
        self.tx.iter().chain(&self.guard).chain(&self.others)
    }

    fn keep(&mut self, mark: Attribute, param: PatType, lifetimes: &mut Vec<Ident>, errors: &mut Errors) {
        let PatType { attrs, pat, mut ty, .. } = param;
        Elide(lifetimes).visit_type_mut(&mut ty);
        if let Some(cfg) = attrs.iter().find(|attr| attr.path().is_ident("cfg")) {
            errors.at(
                cfg,
                "an injected parameter cannot be there only sometimes: put the `#[cfg]` on the function",
            );
        }
        let is_tx = mark.path().is_ident("tx");
        let slot = if is_tx { &mut self.tx } else { &mut self.guard };
        if slot.is_some() {
            let kind =
                if is_tx { "`#[tx]`: there is one transaction" } else { "`#[guard]`: there is one lock" };
            errors.at(&mark, format!("more than one parameter is marked {kind}"));
        }
        match (&mut *ty, is_tx) {
            (Type::Reference(reference), true) if is_mutable(reference) => {
                if let Type::ImplTrait(_) | Type::Infer(_) = &*reference.elem {
                    errors.at(
                        &reference.elem,
                        "name the type of the connection, such as `PgConnection`: the database is chosen by it",
                    );
                    // Nothing more is to be said about it.
                    *reference.elem = syn::parse_quote!(());
                }
            }
            (ty, true) => errors.at(
                ty,
                "the transaction is lent: write `&mut PgConnection`, or `&mut` and another connection type",
            ),
            (Type::Reference(reference), false) if !is_mutable(reference) => {}
            (ty, false) => errors.at(ty, "the guard is lent: write `&Guard`"),
        }
        let param = Param { attrs, pat: *pat, ty: *ty, mark };
        if slot.is_none() {
            *slot = Some(param);
        } else {
            self.others.push(param);
        }
    }
}

impl Param {
    /// The names that it binds.
    pub(crate) fn binds(&self, name: &Ident) -> bool {
        matches!(&self.pat, Pat::Ident(pat) if pat.ident == *name)
    }
}

/// Whether it is `&mut`.
pub(crate) fn is_mutable(reference: &TypeReference) -> bool {
    reference.mutability.is_some()
}

/// Removes `#[tx]` or `#[guard]` from a parameter.
fn take_mark(input: &mut FnArg, errors: &mut Errors) -> Option<Attribute> {
    let attrs = match input {
        FnArg::Receiver(receiver) => &mut receiver.attrs,
        FnArg::Typed(param) => &mut param.attrs,
    };
    let marks: Vec<Attribute> =
        attrs.extract_if(.., |attr| attr.path().is_ident("tx") || attr.path().is_ident("guard")).collect();
    for mark in &marks {
        if mark.meta.require_path_only().is_err() {
            let name = mark.path().get_ident().map(ToString::to_string).unwrap_or_default();
            errors.at(mark, format!("`#[{name}]` takes no arguments; options go into `#[zk_lock(..)]`"));
        }
    }
    if let [_, second, ..] = &*marks {
        errors.at(second, "a parameter is marked once, `#[tx]` or `#[guard]`");
    }
    marks.into_iter().next()
}

/// Replaces named lifetimes by `'_` and notes their names.
struct Elide<'a>(&'a mut Vec<Ident>);

impl VisitMut for Elide<'_> {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        let anonymous = Ident::new("_", lifetime.ident.span());
        let name = std::mem::replace(&mut lifetime.ident, anonymous);
        if name != "_" && name != "static" {
            self.0.push(name);
        }
    }

    // `&'a mut T` needs no `'_`.
    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        if let Some(lifetime) = reference.lifetime.take() {
            self.0.push(lifetime.ident);
        }
        visit_mut::visit_type_reference_mut(self, reference);
    }
}

/// Takes out of the generics those of `lifetimes` that nothing else uses, and their bounds: `#[async_trait]` gives each
/// reference one, and a caller could not say what they are.
fn forget(lifetimes: &[Ident], sig: &mut Signature, body: &TokenStream) {
    let mut used = Used::default();
    used.in_tokens(body.clone());
    let Signature { inputs, output, generics, .. } = sig;
    inputs.iter_mut().for_each(|input| used.visit_fn_arg_mut(input));
    used.visit_return_type_mut(output);
    for param in &mut generics.params {
        if !matches!(param, GenericParam::Lifetime(_)) {
            used.visit_generic_param_mut(param);
        }
    }
    for predicate in generics.where_clause.iter_mut().flat_map(|clause| &mut clause.predicates) {
        if !matches!(predicate, WherePredicate::Lifetime(_)) {
            used.visit_where_predicate_mut(predicate);
        }
    }

    let gone = |lifetime: &Lifetime| {
        lifetimes.contains(&lifetime.ident) && !used.0.contains(&lifetime.ident.to_string())
    };
    retain(&mut generics.params, |param| match param {
        GenericParam::Lifetime(param) => {
            retain(&mut param.bounds, |bound| !gone(bound));
            !gone(&param.lifetime)
        }
        _ => true,
    });
    if let Some(clause) = &mut generics.where_clause {
        retain(&mut clause.predicates, |predicate| match predicate {
            WherePredicate::Lifetime(predicate) => {
                retain(&mut predicate.bounds, |bound| !gone(bound));
                !gone(&predicate.lifetime)
            }
            _ => true,
        });
    }
}

fn retain<T, P: Default>(list: &mut Punctuated<T, P>, mut keep: impl FnMut(&mut T) -> bool) {
    *list = std::mem::take(list)
        .into_pairs()
        .filter_map(|mut pair| keep(pair.value_mut()).then_some(pair))
        .collect();
}

/// The lifetimes that occur somewhere. A visitor that changes nothing, since the other kind is one more feature of syn.
#[derive(Default)]
struct Used(HashSet<String>);

impl Used {
    fn in_tokens(&mut self, tokens: TokenStream) {
        let mut quoted = false;
        for token in tokens {
            let quote = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '\'');
            match token {
                TokenTree::Ident(name) if quoted => {
                    self.0.insert(name.to_string());
                }
                TokenTree::Group(group) => self.in_tokens(group.stream()),
                _ => {}
            }
            quoted = quote;
        }
    }
}

impl VisitMut for Used {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        self.0.insert(lifetime.ident.to_string());
    }
}

use proc_macro2::{Ident, Span};
use syn::{Expr, ExprPath, FnArg, Pat, ReturnType, Signature, Type, parse_quote_spanned, spanned::Spanned};

use crate::{
    args::{Args, Isolation, Limit, PathArg, Transactional},
    boxed::Boxed,
    errors::Errors,
    function::Function,
    injected::{Injected, Param, is_mutable},
    template::Template,
};

/// All that the expansion needs. Nothing in it can be wrong any more, as far as a macro can see.
pub(crate) struct Plan<'a> {
    pub(crate) krate: Option<syn::Path>,
    pub(crate) path: Path,
    pub(crate) fair: bool,
    pub(crate) timeout: Limit,
    pub(crate) wait: Limit,
    pub(crate) locks: Option<Expr>,
    pub(crate) on_error: Option<ExprPath>,
    pub(crate) guard: Option<&'a Param>,
    pub(crate) transaction: Option<Transaction<'a>>,
    pub(crate) shape: Shape,
}

pub(crate) enum Path {
    Template(Template),
    Ready(Expr),
}

pub(crate) struct Transaction<'a> {
    pub(crate) param: &'a Param,
    /// What `param` is a `&mut` of.
    pub(crate) connection: Type,
    pub(crate) source: Source,
    pub(crate) isolation: Option<Isolation>,
    pub(crate) unfenced: bool,
    pub(crate) requires_new: bool,
    pub(crate) commit_if: Option<ExprPath>,
}

/// Where the connection comes from.
pub(crate) enum Source {
    /// The pool of the `Locks`.
    Installed,
    /// A reference as it stands.
    Reference(Expr),
    /// A parameter that is a `&mut`: a transaction to join.
    Join(Expr),
    /// Anything else, to be borrowed.
    Pool(Expr),
}

pub(crate) enum Shape {
    Async { output: Box<Type> },
    Boxed(Box<Boxed>),
}

impl<'a> Plan<'a> {
    /// `None` if anything is wrong, all of which is then in `errors`.
    pub(crate) fn new(
        args: Args,
        function: &Function,
        injected: &'a Injected,
        errors: &mut Errors,
    ) -> Option<Self> {
        let Args { path, path_seen, fair, timeout, wait, transactional, locks, on_error, krate } = args;
        let path = match path {
            Some(PathArg::Text(text)) => {
                Some(Path::Template(Template::parse(&text, &function.sig, injected, errors)))
            }
            Some(PathArg::Ready(path)) => Some(Path::Ready(path)),
            None => {
                if !path_seen {
                    errors.on(Span::call_site(), "`path` is missing: `#[zk_lock(path = \"/orders/{id}\")]`");
                }
                None
            }
        };
        let shape = shape(function, on_error.is_some(), errors);
        if let Some(transactional) = transactional.as_ref()
            && !cfg!(any(test, feature = "transactional"))
        {
            errors.on(
                transactional.span,
                "`transactional` needs a database: turn on the feature `postgres`, `mysql` or `sqlite` of zklock",
            );
        }
        let transaction = match (transactional, &injected.tx) {
            (Some(transactional), Some(param)) => transaction(transactional, param, &function.sig, errors),
            (Some(transactional), None) => {
                errors.on(
                    transactional.span,
                    "the transaction needs a parameter to go to: add `#[tx] tx: &mut PgConnection`, or the connection \
                     type of your database; callers do not pass it",
                );
                None
            }
            (None, Some(param)) => {
                errors.at(&param.mark, "`#[tx]` needs a transaction: write `#[zk_lock(.., transactional)]`");
                None
            }
            (None, None) => None,
        };
        let plan = Self {
            krate,
            path: path?,
            fair: fair.unwrap_or(true),
            timeout,
            wait,
            locks,
            on_error,
            guard: injected.guard.as_ref(),
            transaction,
            shape: shape?,
        };
        errors.is_empty().then_some(plan)
    }
}

fn shape(function: &Function, has_on_error: bool, errors: &mut Errors) -> Option<Shape> {
    let sig = &function.sig;
    if let Some(constness) = &sig.constness {
        errors.at(constness, "a `const fn` cannot wait for a lock: remove the `const`");
        return None;
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, "an `extern` function cannot be `async`, so it cannot wait for a lock");
        return None;
    }
    let Some(body) = &function.body else {
        errors.at(&sig.ident, "there is no body to lock: put `#[zk_lock]` on the method in the `impl`");
        return None;
    };
    if sig.asyncness.is_none() {
        let boxed = Boxed::recognize(&sig.output, &body.tokens).map(|boxed| Shape::Boxed(Box::new(boxed)));
        if boxed.is_none() {
            errors.at(
                sig.fn_token,
                "waiting for a lock takes an `async fn`; if it is one, then another attribute above `#[zk_lock]`, such as \
                 `#[tokio::test]` or `#[tokio::main]`, has made it a plain `fn`: put `#[zk_lock]` above that one",
            );
        }
        return boxed;
    }
    match &sig.output {
        ReturnType::Type(_, output) => Some(Shape::Async { output: output.clone() }),
        ReturnType::Default if has_on_error => {
            let output = parse_quote_spanned!(sig.ident.span()=> ());
            Some(Shape::Async { output: Box::new(output) })
        }
        ReturnType::Default => {
            errors.at(
                &sig.ident,
                "the lock may not be granted, and a function that returns nothing cannot say so: return a `Result`, or \
                 name a function that takes the error, `on_error = path`",
            );
            None
        }
    }
}

fn transaction<'a>(
    args: Transactional,
    param: &'a Param,
    sig: &Signature,
    errors: &mut Errors,
) -> Option<Transaction<'a>> {
    let Transactional { span: _, pool, isolation, unfenced, requires_new, commit_if } = args;
    let source = match pool {
        None => Source::Installed,
        Some(pool @ Expr::Reference(_)) => Source::Reference(pool),
        Some(pool) => match name(&pool) {
            Some(name) if param.binds(name) => {
                errors.at(
                    &pool,
                    "this is the parameter that the transaction goes to; to join a transaction, take it as one more \
                     parameter and name that",
                );
                Source::Pool(pool)
            }
            Some(name) if is_mutable_parameter(sig, name) => Source::Join(pool),
            _ => Source::Pool(pool),
        },
    };
    let joins = match &source {
        Source::Join(_) => true,
        Source::Reference(Expr::Reference(reference)) => reference.mutability.is_some(),
        _ => false,
    };
    if joins && let Some(requires_new) = &requires_new {
        errors.at(
            requires_new,
            "`pool = ..` joins the transaction that it is given, and `requires_new` asks for another: give a pool",
        );
    }
    if joins && let Some(isolation) = &isolation {
        errors.on(isolation.span, "a transaction that is joined has its isolation level already");
    }
    let connection = match &param.ty {
        Type::Reference(reference) => (*reference.elem).clone(),
        // Reported where it was taken out.
        _ => return None,
    };
    Some(Transaction {
        param,
        connection,
        source,
        isolation,
        unfenced,
        requires_new: requires_new.is_some(),
        commit_if,
    })
}

/// The identifier that an expression is.
fn name(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Path(path) if path.qself.is_none() => path.path.get_ident(),
        Expr::Group(group) => name(&group.expr),
        _ => None,
    }
}

/// Whether a parameter of that name is declared as `&mut`.
fn is_mutable_parameter(sig: &Signature, name: &Ident) -> bool {
    sig.inputs.iter().any(|input| {
        let FnArg::Typed(param) = input else { return false };
        let Pat::Ident(pat) = &*param.pat else { return false };
        pat.ident == *name && matches!(&*param.ty, Type::Reference(reference) if is_mutable(reference))
    })
}

impl Shape {
    /// Where errors about the return type belong.
    pub(crate) fn output(&self) -> (&Type, Span) {
        let output = match self {
            Self::Async { output } => output,
            Self::Boxed(boxed) => &boxed.output,
        };
        (output, output.span())
    }
}

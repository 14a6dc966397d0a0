use proc_macro2::TokenStream;
use syn::{
    Block, Expr, ExprAsync, GenericArgument, PathArguments, ReturnType, Stmt, Type, TypeParamBound,
    parse::Parser,
};

/// What `#[async_trait]` makes of an `async fn`:
/// `fn f(..) -> Pin<Box<dyn Future<Output = R> + ..>> { Box::pin(async move { .. }) }`.
pub(crate) struct Boxed {
    /// The `R`.
    pub(crate) output: Type,
    pub(crate) before: Vec<Stmt>,
    /// The `Box::pin`.
    pub(crate) pin: Expr,
    pub(crate) inner: ExprAsync,
}

impl Boxed {
    /// The one place where a body is read: all others leave it alone.
    pub(crate) fn recognize(output: &ReturnType, body: &TokenStream) -> Option<Self> {
        let ReturnType::Type(_, output) = output else { return None };
        let output = future_output(output)?.clone();
        let mut before = Block::parse_within.parse2(body.clone()).ok()?;
        let Some(Stmt::Expr(Expr::Call(mut call), None)) = before.pop() else { return None };
        let Expr::Path(pin) = &*call.func else { return None };
        if pin.path.segments.last()?.ident != "pin" || call.args.len() != 1 {
            return None;
        }
        let Expr::Async(inner) = call.args.pop()? else { return None };
        Some(Self { output, before, pin: *call.func, inner })
    }
}

/// The `R` of `Pin<Box<dyn Future<Output = R> + ..>>`.
fn future_output(output: &Type) -> Option<&Type> {
    let Type::TraitObject(object) = argument(argument(output, "Pin")?, "Box")? else { return None };
    object.bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else { return None };
        let last = bound.path.segments.last()?;
        let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
        if last.ident != "Future" {
            return None;
        }
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(&assoc.ty),
            _ => None,
        })
    })
}

/// The first type argument of `name<..>`.
fn argument<'a>(of: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = of else { return None };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(first) if last.ident == name => Some(first),
        _ => None,
    }
}

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::{
    Expr, ExprLit, ExprPath, Lit, LitBool, LitStr, Token,
    ext::IdentExt,
    parenthesized,
    parse::{ParseStream, Parser},
    token::Paren,
};

use crate::{
    duration,
    errors::{Errors, suggestion},
};

const OPTIONS: [&str; 8] = ["path", "fair", "timeout", "wait", "transactional", "locks", "on_error", "crate"];
const TRANSACTIONAL: [&str; 5] = ["pool", "isolation", "unfenced", "requires_new", "commit_if"];

/// What stands between the parentheses of `#[zk_lock(..)]`.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) path: Option<PathArg>,
    /// `path` was there, if only in a form that is already reported.
    pub(crate) path_seen: bool,
    pub(crate) fair: Option<bool>,
    pub(crate) timeout: Limit,
    pub(crate) wait: Limit,
    pub(crate) transactional: Option<Transactional>,
    pub(crate) locks: Option<Expr>,
    pub(crate) on_error: Option<ExprPath>,
    pub(crate) krate: Option<syn::Path>,
}

pub(crate) enum PathArg {
    /// A template.
    Text(LitStr),
    /// Anything else: an expression that gives a path.
    Ready(Expr),
}

#[derive(Clone, Copy, Default)]
pub(crate) enum Limit {
    #[default]
    Default,
    None,
    Some(Duration),
}

pub(crate) struct Transactional {
    /// The word itself.
    pub(crate) span: Span,
    pub(crate) pool: Option<Expr>,
    pub(crate) isolation: Option<Isolation>,
    pub(crate) unfenced: bool,
    pub(crate) requires_new: Option<Ident>,
    pub(crate) commit_if: Option<ExprPath>,
}

pub(crate) struct Isolation {
    /// The variant of `__private::Isolation`.
    pub(crate) level: &'static str,
    pub(crate) span: Span,
}

impl Args {
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let parser = |input: ParseStream<'_>| {
            entries(input, errors, |key, input, errors| args.option(key, input, errors))
        };
        if let Err(error) = parser.parse2(tokens) {
            errors.push(error);
        }
        args
    }

    fn option(&mut self, key: &Key, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let Key::Word(key) = key else {
            if !input.peek(LitStr) {
                return Err(input.error(format!("expected one of `{}`", OPTIONS.join("`, `"))));
            }
            self.path_seen = true;
            return Err(input.error("give the path its name: `path = \"/orders/{id}\"`"));
        };
        match key.to_string().as_str() {
            "path" => {
                self.path_seen = true;
                self.path = Some(path(key, input)?);
            }
            "fair" => self.fair = Some(flag(key, input)?),
            "timeout" => self.timeout = timeout(key, input)?,
            "wait" => self.wait = limit(key, input)?,
            "transactional" => self.transactional.insert(Transactional::new(key)).parse(input, errors)?,
            "locks" => self.locks = Some(value(key, input, "the `Locks` to use, such as `self.locks`")?),
            "on_error" => self.on_error = Some(function(key, input)?),
            "crate" => {
                const WHAT: &str = "`crate` takes the path of zklock, such as `crate = my_crate::zklock`";
                let span = equals(key, input, WHAT)?;
                let path = input.call(syn::Path::parse_mod_style);
                self.krate = Some(path.map_err(|_| syn::Error::new(span, WHAT))?);
            }
            later @ ("read" | "write" | "permits" | "ttl") => {
                let message =
                    format!("`{later}` is not supported by this version: it locks for one holder at a time");
                return Err(syn::Error::new(key.span(), message));
            }
            unknown @ ("pool" | "isolation" | "unfenced" | "requires_new" | "commit_if") => {
                let message = format!(
                    "`{unknown}` belongs inside: `transactional({unknown}{})`",
                    match unknown {
                        "unfenced" | "requires_new" => "",
                        _ => " = ..",
                    }
                );
                return Err(syn::Error::new(key.span(), message));
            }
            unknown => {
                let message = format!("unknown option `{unknown}`{}", suggestion(unknown, &OPTIONS));
                return Err(syn::Error::new(key.span(), message));
            }
        }
        Ok(())
    }
}

impl Transactional {
    fn new(key: &Ident) -> Self {
        Self {
            span: key.span(),
            pool: None,
            isolation: None,
            unfenced: false,
            requires_new: None,
            commit_if: None,
        }
    }

    fn parse(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        if input.peek(Paren) {
            let content;
            parenthesized!(content in input);
            entries(&content, errors, |key, input, _| self.option(key, input))?;
        } else if input.peek(Token![=]) {
            return Err(input.error("write `transactional`, or `transactional(..)` with options"));
        }
        Ok(())
    }

    fn option(&mut self, key: &Key, input: ParseStream<'_>) -> syn::Result<()> {
        let Key::Word(key) = key else {
            return Err(input.error(format!("expected one of `{}`", TRANSACTIONAL.join("`, `"))));
        };
        match key.to_string().as_str() {
            "pool" => self.pool = Some(value(key, input, "the pool to begin on, such as `self.db`")?),
            "isolation" => self.isolation = Some(Isolation::parse(key, input)?),
            "unfenced" => self.unfenced = flag(key, input)?,
            "requires_new" => self.requires_new = flag(key, input)?.then(|| key.clone()),
            "commit_if" => self.commit_if = Some(function(key, input)?),
            unknown => {
                let message = format!(
                    "unknown option `{unknown}` of `transactional`{}",
                    suggestion(unknown, &TRANSACTIONAL)
                );
                return Err(syn::Error::new(key.span(), message));
            }
        }
        Ok(())
    }
}

impl Isolation {
    const LEVELS: [(&str, &str); 4] = [
        ("read uncommitted", "ReadUncommitted"),
        ("read committed", "ReadCommitted"),
        ("repeatable read", "RepeatableRead"),
        ("serializable", "Serializable"),
    ];

    fn parse(key: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        let names = Self::LEVELS.map(|(name, _)| name);
        let expr: Expr = value(key, input, &format!("one of `\"{}\"`", names.join("\"`, `\"")))?;
        let Some(text) = string(&expr) else {
            let message = format!("`isolation` takes one of `\"{}\"`", names.join("\"`, `\""));
            return Err(syn::Error::new_spanned(expr, message));
        };
        let given = text.value().to_lowercase().replace(['_', '-'], " ");
        if let Some((_, level)) = Self::LEVELS.iter().find(|(name, _)| *name == given) {
            return Ok(Self { level, span: text.span() });
        }
        let message = format!("unknown isolation level `{}`{}", text.value(), suggestion(&given, &names));
        Err(syn::Error::new(text.span(), message))
    }
}

/// What an entry begins with.
enum Key {
    Word(Ident),
    /// Not a name; nothing of it is read.
    Other,
}

/// Reads entries between commas. A bad one does not hide the others: reading goes on behind the next comma.
fn entries(
    input: ParseStream<'_>,
    errors: &mut Errors,
    mut entry: impl FnMut(&Key, ParseStream<'_>, &mut Errors) -> syn::Result<()>,
) -> syn::Result<()> {
    let mut seen: Vec<Ident> = Vec::new();
    while !input.is_empty() {
        let key =
            if input.peek(Ident::peek_any) { Key::Word(input.call(Ident::parse_any)?) } else { Key::Other };
        if let Key::Word(key) = &key {
            if seen.contains(key) {
                errors.at(key, format!("`{key}` is given more than once"));
            }
            seen.push(key.clone());
        }
        let mut result = entry(&key, input, errors);
        if result.is_ok() && !input.is_empty() && !input.peek(Token![,]) {
            result = Err(input.error("expected a `,`"));
        }
        if let Err(error) = result {
            errors.push(error);
            while !input.is_empty() && !input.peek(Token![,]) {
                input.parse::<TokenTree>()?;
            }
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

fn path(key: &Ident, input: ParseStream<'_>) -> syn::Result<PathArg> {
    const WHAT: &str =
        "`path` takes a string such as `\"/orders/{id}\"`, or an expression that gives a `LockPath`";
    let span = equals(key, input, WHAT)?;
    let expr: Expr = input.parse().map_err(|_| syn::Error::new(span, WHAT))?;
    if let Some(text) = string(&expr) {
        return Ok(PathArg::Text(text.clone()));
    }
    match expr {
        Expr::Lit(_) => Err(syn::Error::new(span, WHAT)),
        Expr::Array(_) => Err(syn::Error::new_spanned(
            expr,
            "a list of paths is not supported by this version: give one path",
        )),
        _ => Ok(PathArg::Ready(expr)),
    }
}

/// The string literal that `expr` is. One that came through a macro's `$path:literal` or `:expr` is in a group.
fn string(expr: &Expr) -> Option<&LitStr> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text),
        Expr::Group(group) => string(&group.expr),
        _ => None,
    }
}

/// `key` or `key = true`.
fn flag(key: &Ident, input: ParseStream<'_>) -> syn::Result<bool> {
    if !input.peek(Token![=]) {
        return Ok(true);
    }
    input.parse::<Token![=]>()?;
    input.parse().map(|value: LitBool| value.value).map_err(|error| {
        syn::Error::new(error.span(), format!("write `{key}`, `{key} = true` or `{key} = false`"))
    })
}

fn timeout(key: &Ident, input: ParseStream<'_>) -> syn::Result<Limit> {
    let whole = input.cursor();
    let limit = limit(key, input)?;
    if let Limit::Some(Duration::ZERO) = limit {
        let value = whole.token_tree().and_then(|(_equals, value)| value.token_tree());
        return Err(syn::Error::new(
            value.map_or(key.span(), |(value, _)| value.span()),
            "a `timeout` of zero would stop every body before it begins; write `\"none\"` for no limit",
        ));
    }
    Ok(limit)
}

fn limit(key: &Ident, input: ParseStream<'_>) -> syn::Result<Limit> {
    let what = format!("`{key}` takes a duration such as `\"5s\"`, or `\"none\"`");
    let span = equals(key, input, &what)?;
    let text = match input.parse::<Lit>() {
        Ok(Lit::Str(text)) if text.value() == "none" => return Ok(Limit::None),
        Ok(Lit::Str(text)) => text.value(),
        // `5s` is one token to the compiler: an integer with a suffix.
        Ok(Lit::Int(int)) if !int.suffix().is_empty() => format!("{}{}", int.base10_digits(), int.suffix()),
        Ok(Lit::Int(int)) => {
            let message = format!("`{key}` needs a unit, such as `\"{int}s\"` or `\"{int}ms\"`");
            return Err(syn::Error::new(span, message));
        }
        _ => return Err(syn::Error::new(span, what)),
    };
    duration::parse(&text).map(Limit::Some).map_err(|message| syn::Error::new(span, message))
}

fn function(key: &Ident, input: ParseStream<'_>) -> syn::Result<ExprPath> {
    match value(key, input, "the path of a function")? {
        Expr::Path(path) => Ok(path),
        Expr::Group(group) => match *group.expr {
            Expr::Path(path) => Ok(path),
            other => Err(syn::Error::new_spanned(other, format!("`{key}` takes the path of a function"))),
        },
        other => Err(syn::Error::new_spanned(other, format!("`{key}` takes the path of a function"))),
    }
}

fn value(key: &Ident, input: ParseStream<'_>, what: &str) -> syn::Result<Expr> {
    let what = format!("`{key}` takes {what}");
    let span = equals(key, input, &what)?;
    input.parse().map_err(|_| syn::Error::new(span, what))
}

/// Reads the `=` behind `key`, and gives the place where an error about its value belongs.
fn equals(key: &Ident, input: ParseStream<'_>, what: &str) -> syn::Result<Span> {
    let place = |input: ParseStream<'_>| {
        if input.is_empty() || input.peek(Token![,]) { key.span() } else { input.span() }
    };
    input.parse::<Token![=]>().map_err(|_| syn::Error::new(place(input), what))?;
    Ok(place(input))
}

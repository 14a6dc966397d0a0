use proc_macro2::{Ident, Span};
use syn::{Expr, FnArg, LitStr, Pat, Signature, parse::Parse};

use crate::{
    errors::{Errors, suggestion},
    injected::Injected,
};

/// A path with placeholders, such as `/orders/{order.id}`.
pub(crate) struct Template {
    /// The literal's place.
    pub(crate) span: Span,
    pub(crate) segments: Vec<Vec<Part>>,
}

pub(crate) enum Part {
    Text(String),
    Value {
        /// What stands between the braces.
        name: String,
        value: Expr,
    },
}

impl Template {
    pub(crate) fn parse(source: &LitStr, sig: &Signature, injected: &Injected, errors: &mut Errors) -> Self {
        let (text, span) = (source.value(), source.span());
        let mut reader = Reader { span, names: names(sig), injected, errors };
        let this = Self { span, segments: reader.segments(&text) };
        this.check(&text, errors);
        this
    }

    /// The rules for paths, as far as they can be broken without knowing the values. `LockPath` knows the rest.
    fn check(&self, text: &str, errors: &mut Errors) {
        let mut wrong = |message: &str| errors.on(self.span, message);
        if !text.starts_with('/') {
            wrong(&format!("a lock path is absolute: \"/{text}\""));
        }
        if let [.., last] = &*self.segments
            && last.is_empty()
        {
            if self.segments.len() == 1 {
                wrong("a lock path has a name behind its `/`: the root cannot be locked");
            } else {
                wrong("a lock path does not end with `/`");
            }
        }
        let inner = self.segments.split_last().map_or(&[][..], |(_, inner)| inner);
        if inner.iter().any(Vec::is_empty) {
            wrong("a lock path has no empty segment: one `/` is missing its name");
        }
        for segment in &self.segments {
            check_segment(segment, &mut wrong);
        }
        if let Some([Part::Text(first)]) = self.segments.first().map(Vec::as_slice)
            && first == "zookeeper"
        {
            wrong("`/zookeeper` belongs to the server itself; choose another first segment");
        }
    }
}

fn check_segment(segment: &[Part], wrong: &mut impl FnMut(&str)) {
    if let [Part::Text(text)] = segment
        && (text == "." || text == "..")
    {
        wrong(&format!("a lock path is not relative: it has no segment `{text}`"));
    }
    if let [Part::Text(text), ..] = segment
        && text.starts_with("_c_")
    {
        wrong("a segment that begins with `_c_` looks like a contender for a lock; choose another name");
    }
    for pair in segment.windows(2) {
        if let [Part::Value { name: left, .. }, Part::Value { name: right, .. }] = pair {
            wrong(&format!(
                "nothing stands between `{{{left}}}` and `{{{right}}}`, so different values would give one path; \
                 write `{{{left}}}-{{{right}}}`"
            ));
        }
    }
    for part in segment {
        let Part::Text(text) = part else { continue };
        if let Some(reserved) = text.chars().find(|c| matches!(c, '%' | '~')) {
            wrong(&format!("`{reserved}` is reserved: it marks what was escaped or shortened in a value"));
        }
        if let Some(control) = text.chars().find(|&c| is_refused(c)) {
            wrong(&format!("ZooKeeper does not take the character {control:?} in a path"));
        }
        for look in ["-lock-", "__READ__", "__WRIT__"] {
            if text.contains(look) {
                wrong(&format!("`{look}` looks like a contender for a lock; choose another name"));
            }
        }
    }
}

/// ZooKeeper's rule, which looks at UTF-16 units: so everything past U+FFFF is out too. The same stands in the
/// runtime's `path.rs`.
fn is_refused(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

struct Reader<'a> {
    span: Span,
    names: Vec<Ident>,
    injected: &'a Injected,
    errors: &'a mut Errors,
}

impl Reader<'_> {
    fn segments(&mut self, text: &str) -> Vec<Vec<Part>> {
        let mut segments = vec![Vec::new()];
        let mut literal = String::new();
        // A `take` of the literal in front of whatever is no more of it.
        let flush = |literal: &mut String, segments: &mut Vec<Vec<Part>>| {
            if let (false, Some(segment)) = (literal.is_empty(), segments.last_mut()) {
                segment.push(Part::Text(std::mem::take(literal)));
            }
        };
        let mut rest = text.strip_prefix('/').unwrap_or(text);
        while let Some(c) = rest.chars().next() {
            let doubled = rest.starts_with("{{") || rest.starts_with("}}");
            rest = &rest[if doubled { 2 } else { c.len_utf8() }..];
            match c {
                '/' => {
                    flush(&mut literal, &mut segments);
                    segments.push(Vec::new());
                }
                '}' if !doubled => self.wrong("unmatched `}`; write `}}` for the character itself"),
                '{' if !doubled => {
                    let Some((name, after)) = rest.split_once('}') else {
                        self.wrong("unmatched `{`; write `{{` for the character itself");
                        literal.push('{');
                        break;
                    };
                    rest = after;
                    flush(&mut literal, &mut segments);
                    match (self.value(name), segments.last_mut()) {
                        (Some(value), Some(segment)) => {
                            segment.push(Part::Value { name: name.to_owned(), value });
                        }
                        // Reported; something must stand in its place, so that no more is said about the segment.
                        _ => literal.push('?'),
                    }
                }
                c => literal.push(c),
            }
        }
        flush(&mut literal, &mut segments);
        segments
    }

    fn value(&mut self, name: &str) -> Option<Expr> {
        // The literal's place and our hygiene: with that of the user's literal, the compiler would propose to replace
        // the whole literal by the field that it thinks was meant.
        let here = LitStr::new(name, Span::call_site().located_at(self.span));
        let Ok(mut value) = here.parse_with(Expr::parse) else {
            self.wrong(&format!(
                "`{{{name}}}` is not the name of an argument; write `{{{{` for the brace itself"
            ));
            return None;
        };
        let Some(root) = root(&mut value) else {
            self.wrong(&format!(
                "`{{{name}}}` may only be an argument, a field of one or a method without arguments"
            ));
            return None;
        };
        if self.injected.params().any(|param| param.binds(root)) {
            self.wrong(&format!(
                "`{root}` is there only once the lock is held, so the path cannot be made of it"
            ));
            return None;
        }
        if let Some(known) = self.names.iter().find(|known| *known == root) {
            // The hygiene of the parameter: the two may come from different macros.
            root.set_span(self.span.resolved_at(known.span()));
            return Some(value);
        }
        let known: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let suggestion = match &*known {
            [] => "; the function has no arguments".to_owned(),
            known => suggestion(&root.to_string(), known),
        };
        self.wrong(&format!("no argument `{root}` for `{{{name}}}`{suggestion}"));
        None
    }

    fn wrong(&mut self, message: &str) {
        self.errors.on(self.span, message);
    }
}

/// The `order` of `order.id` or `order.id()`.
fn root(value: &mut Expr) -> Option<&mut Ident> {
    match value {
        Expr::Path(path) if path.qself.is_none() && path.path.get_ident().is_some() => {
            path.path.segments.first_mut().map(|first| &mut first.ident)
        }
        Expr::Field(field) => root(&mut field.base),
        Expr::MethodCall(call) if call.args.is_empty() => root(&mut call.receiver),
        _ => None,
    }
}

/// What the parameters bind.
fn names(sig: &Signature) -> Vec<Ident> {
    let mut names = Vec::new();
    for input in &sig.inputs {
        match input {
            FnArg::Receiver(receiver) => names.push(Ident::new("self", receiver.self_token.span)),
            FnArg::Typed(param) => bindings(&param.pat, &mut names),
        }
    }
    names
}

fn bindings(pat: &Pat, names: &mut Vec<Ident>) {
    match pat {
        Pat::Ident(pat) => {
            names.push(pat.ident.clone());
            if let Some((_, inner)) = &pat.subpat {
                bindings(inner, names);
            }
        }
        Pat::Tuple(pat) => pat.elems.iter().for_each(|pat| bindings(pat, names)),
        Pat::TupleStruct(pat) => pat.elems.iter().for_each(|pat| bindings(pat, names)),
        Pat::Struct(pat) => pat.fields.iter().for_each(|field| bindings(&field.pat, names)),
        Pat::Slice(pat) => pat.elems.iter().for_each(|pat| bindings(pat, names)),
        Pat::Reference(pat) => bindings(&pat.pat, names),
        Pat::Paren(pat) => bindings(&pat.pat, names),
        Pat::Type(pat) => bindings(&pat.pat, names),
        _ => {}
    }
}

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Attribute, Signature, Token, Visibility, braced,
    parse::{Parse, ParseStream},
    token::Brace,
};

/// A function whose body stays raw tokens: what is in the middle of being typed still gets here, and every token
/// keeps its place for the compiler and the editor.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) defaultness: Option<Token![default]>,
    pub(crate) sig: Signature,
    /// `None` for a method that a trait only declares.
    pub(crate) body: Option<Body>,
}

pub(crate) struct Body {
    pub(crate) brace: Brace,
    /// `#![..]` at its start, which belongs to the whole function.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) tokens: TokenStream,
}

impl Function {
    /// The function with `body` in place of its own.
    pub(crate) fn with_body(&self, body: &TokenStream) -> TokenStream {
        let Self { attrs, vis, defaultness, sig, body: old } = self;
        let mut item = quote!(#(#attrs)* #vis #defaultness #sig);
        match old {
            Some(old) => {
                let attrs = &old.attrs;
                old.brace.surround(&mut item, |tokens| tokens.extend(quote!(#(#attrs)* #body)));
            }
            None => <Token![;]>::default().to_tokens(&mut item),
        }
        item
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        Ok(Self {
            attrs: input.call(Attribute::parse_outer)?,
            vis: input.parse()?,
            defaultness: if input.peek(Token![default]) { Some(input.parse()?) } else { None },
            sig: input.parse()?,
            body: if input.peek(Token![;]) {
                input.parse::<Token![;]>()?;
                None
            } else {
                Some(input.parse()?)
            },
        })
    }
}

impl Parse for Body {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let content;
        let brace = braced!(content in input);
        Ok(Self { brace, attrs: content.call(Attribute::parse_inner)?, tokens: content.parse()? })
    }
}

//! What the attribute refuses, and in which words. A case holds one kind of mistake, since an error of the expansion
//! hides what the compiler would find later.

#[test]
fn refused() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}

//! What the types do not allow: each program must not compile, for the reason in its `.stderr`.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

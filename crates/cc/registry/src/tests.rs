use super::*;

const GOOD: &str = r#"
[foo]
title = "t"
source = "s"
coupled = true
needs_ecn = false
[[foo.param]]
name = "gain"
unit = "1"
default = 0.5
min = 0.0
max = 2.0
q = 16
cite = "c"
doc = "d"
[[foo.param]]
name = "law"
choices = ["a", "b"]
default = "b"
cite = "c"
doc = "d"
"#;

fn problem(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    Registry::parse(&GOOD.replace(from, to)).expect_err("broken").to_string()
}

#[test]
fn entry_is_parsed() {
    let registry = Registry::parse(GOOD).expect("well-formed");
    let foo = &registry.algorithms[0];
    assert_eq!((foo.name.as_str(), foo.kernel_name.as_str()), ("foo", "mp_foo"));
    assert_eq!((foo.params[0].scale, foo.params[0].raw(0.5)), (65536.0, 32768));
    assert_eq!((foo.params[1].default, foo.params[1].max), (1.0, 1.0));
}

#[test]
fn header_defines_every_index_and_choice() {
    let header = Registry::parse(GOOD).expect("well-formed").c_header();
    for line in ["#define CC_P_FOO_GAIN 0\n", "#define CC_P_FOO_LAW 1\n", "#define CC_P_FOO_LAW_B 1u\n"] {
        assert!(header.contains(line), "{header}");
    }
}

#[test]
fn invalid_entries_are_refused_by_name() {
    assert!(problem("[foo]", "[Foo]").contains("Foo"));
    assert!(
        problem("title = \"t\"", "kernel = \"mp_much_too_long_a_name\"\ntitle = \"t\"")
            .contains("longer than 15")
    );
    assert!(problem("default = 0.5", "default = 3.0").contains("gain: needs 0 <= min"));
    assert!(problem("default = 0.5", "default = \"half\"").contains("not a number"));
    assert!(problem("q = 16", "q = 16\nscale = 2.0").contains("not both"));
    assert!(problem("q = 16", "q = 41").contains("at most 40"));
    assert!(problem("unit = \"1\"", "").contains("needs a unit"));
    assert!(problem("max = 2.0", "").contains("min and max"));
    assert!(problem("default = \"b\"", "default = \"c\"").contains("not among"));
    assert!(problem("default = \"b\"", "default = \"b\"\nmin = 0.0").contains("a choice has no"));
    assert!(problem("name = \"law\"", "name = \"gain\"").contains("appears twice"));
    assert!(problem("coupled = true", "coupled = true\ncolor = 1").contains("color"));
}

#[test]
fn missing_registry_error_names_the_file() {
    let error = Registry::load(Path::new("/nonexistent/registry.toml")).expect_err("missing");
    assert!(error.to_string().contains("/nonexistent/registry.toml"), "{error}");
}

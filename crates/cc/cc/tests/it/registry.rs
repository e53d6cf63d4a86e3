//! The registry as users meet it: names, ranges, errors.

use vmcc_cc::{Algorithm, ParamError, Params};

fn algorithm(name: &str) -> Algorithm {
    Algorithm::by_name(name).expect("in the registry")
}

#[test]
fn every_entry_is_complete_and_selectable() {
    for alg in Algorithm::all() {
        let info = alg.info();
        assert_eq!(Algorithm::by_name(info.name), Ok(alg));
        assert_eq!(Algorithm::by_name(info.kernel_name), Ok(alg));
        assert!(info.kernel_name.len() <= 15, "{}", info.kernel_name);
        assert!(!info.title.is_empty() && !info.source.is_empty(), "{alg}");
        for p in info.params {
            assert!(!p.cite.is_empty() && !p.doc.is_empty() && !p.unit.is_empty(), "{alg}: {}", p.name);
        }
    }
}

#[test]
fn unknown_name_error_suggests_the_nearest() {
    let error = Algorithm::by_name("vmc").expect_err("no such algorithm");
    assert_eq!(error.nearest[0], "vmcc");
    assert!(error.to_string().contains("`vmc`"), "{error}");
    let error = Algorithm::by_name("zzz").expect_err("no such algorithm");
    assert!(error.to_string().contains("known: reno"), "{error}");
}

#[test]
fn set_values_are_read_back_and_differ_from_defaults() {
    let mut params = Params::defaults(algorithm("vmcc"));
    assert_eq!(params.changed().count(), 0);
    params.set("g", 0.1).expect("in range");
    let changed: Vec<_> = params.changed().map(|(info, value)| (info.name, value)).collect();
    assert_eq!(changed, [("g", 0.1)], "not the nearest fraction that the C code reads");
    for alg in Algorithm::all() {
        let defaults = Params::defaults(alg);
        assert_eq!(Params::from_raw(alg, *defaults.raw()), defaults);
        assert_eq!(defaults.values().count(), alg.info().params.len());
    }
}

#[test]
fn defaults_and_bounds_of_every_parameter_are_accepted() {
    for alg in Algorithm::all() {
        for p in alg.info().params {
            let mut params = Params::defaults(alg);
            let default = params.get(p.name).expect("it has it");
            assert!((default - p.default).abs() <= 0.5 / p.scale, "{alg}: {}", p.name);
            for value in [p.min, p.max, p.default] {
                params.set(p.name, value).unwrap_or_else(|e| panic!("{e}"));
                assert!((params.get(p.name).expect("it has it") - value).abs() <= 0.5 / p.scale);
            }
            params.set(p.name, p.default_text().as_str()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(params, Params::defaults(alg));
        }
    }
}

#[test]
fn out_of_range_values_are_refused_without_effect() {
    for alg in Algorithm::all() {
        for p in alg.info().params {
            let mut params = Params::defaults(alg);
            for value in [p.min - 1.0, p.max + 1.0, f64::NAN, f64::INFINITY, -f64::INFINITY] {
                let error = params.set(p.name, value).expect_err("out of range");
                assert!(matches!(error, ParamError::OutOfRange { .. }), "{error}");
                assert!(error.to_string().contains(&p.range_text()), "{error}");
            }
            assert!(matches!(params.set(p.name, "much"), Err(ParamError::NotAValue { .. })));
            assert_eq!(params, Params::defaults(alg));
        }
    }
}

#[test]
fn raw_values_match_the_c_encoding() {
    let mut params = Params::defaults(algorithm("vmcc"));
    assert_eq!(&params.raw()[..9], &[0, 1 << 16, 1 << 30, 2, 3, 100, 10, 10_000, 0]);
    params.set("increase", "balia").expect("a choice");
    params.set("phi", "0.14").expect("a number");
    params.set("g", 1.0 / 32.0).expect("in range");
    assert_eq!((params.raw()[0], params.raw()[5], params.raw()[1]), (2, 140, 1 << 15));
}

#[test]
fn parameter_errors_name_object_cause_and_remedy() {
    let mut params = Params::defaults(algorithm("dctcp"));
    let text = |e: ParamError| e.to_string();
    let error = text(params.set("floor", 0.0).expect_err("below 1"));
    assert_eq!(error, "dctcp: floor = 0 is out of range; allowed: 1 .. 16 packets");
    let error = text(params.set("flor", 1.0).expect_err("misspelled"));
    assert_eq!(error, "dctcp has no parameter `flor`; did you mean floor?");
    let error = text(Params::defaults(algorithm("reno")).set("g", 1.0).expect_err("reno has none"));
    assert_eq!(error, "reno has no parameter `g`; it has none");
    let error = text(Params::defaults(algorithm("vmcc")).set("increase", "cubic").expect_err("not a choice"));
    assert_eq!(error, "vmcc: increase = `cubic` is not a value; allowed: lia, olia, balia");
    assert!(
        text(Params::defaults(algorithm("vmcc")).set("increase", 0.5).expect_err("a fraction"))
            .contains("0.5")
    );
}

#[test]
fn parameters_of_the_other_detector_are_named() {
    let mut params = Params::defaults(algorithm("vmcc"));
    params.set("g", 0.25).expect("in range");
    assert_eq!(params.unheeded(), None, "every detector heeds g");
    params.set("theta", 5.0).expect("in range");
    params.set("phi", 0.14).expect("in range");
    let why = params.unheeded().expect("they are of the detector that counts");
    assert!(why.contains("theta, phi") && why.contains("detector = \"counts\""), "{why}");
    params.set("detector", "counts").expect("a choice");
    assert_eq!(params.unheeded(), None);
    params.set("interval", 100.0).expect("in range");
    let why = params.unheeded().expect("it is of two others");
    assert!(why.contains("no effect of interval") && why.contains("detector = \"statistics\""), "{why}");
    for detector in ["events", "statistics"] {
        params.set("detector", detector).expect("a choice");
        let why = params.unheeded().expect("theta and phi are of counts");
        assert!(why.contains("theta, phi") && !why.contains("interval"), "{why}");
    }
    assert_eq!(Params::defaults(algorithm("lia")).unheeded(), None);
}

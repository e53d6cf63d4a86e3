//! Algorithms of the user's own: `vmcc algorithm`, and `--algorithm` on the simulator.

use crate::common::{folder, json, names, output, refused, root, vmcc};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const DESCRIPTION: &str =
    "/* vmcc\n * title = \"Own\"\n * source = \"a test\"\n * coupled = true\n * needs_ecn = false\n */\n";

/// An algorithm like Reno, with this body of `on_grow`.
fn with_growth(name: &str, body: &str) -> String {
    let hook = |hook: &str, body: &str| format!("CC_HOOK({name}, {hook})\n{{\n{body}\n}}\n");
    let hooks = [
        hook("init", "cc_path_clear(self);"),
        hook("on_ack", ""),
        hook("on_congestion", "cc_reno_reduce(ev, self, out);"),
        hook("on_grow", body),
        hook("on_state", ""),
    ];
    format!("{DESCRIPTION}#include \"coupling.h\"\n{}", hooks.concat())
}

/// The registry's LIA under another name, as a user would copy it.
pub(super) fn copy_of_lia(name: &str) -> String {
    let text = fs::read_to_string(root().join("algorithms/src/lia.c")).unwrap();
    let text = text.replace("(lia,", &format!("({name},"));
    format!("{DESCRIPTION}{text}")
}

/// Writes `text` as an algorithm and returns the message of the check that refuses it.
fn refusal(name: &str, text: &str) -> String {
    let dir = folder();
    let file = format!("{name}.c");
    fs::write(dir.path().join(&file), text).unwrap();
    refused(dir.path(), &["algorithm", "check", &file], 2)
}

#[test]
fn copy_of_lia_gives_the_bytes_of_lia() {
    let dir = folder();
    // A name as long as the other: the column with it is all that may differ.
    fs::write(dir.path().join("lla.c"), copy_of_lia("lla")).unwrap();
    let variant = |cc: &str| {
        let two = fs::read_to_string(dir.path().join("two.toml")).unwrap();
        let sweep = format!("[[sweep.variant]]\nname = \"the same\"\ncc = \"{cc}\"\n");
        let two = two.split("[sweep]").next().unwrap().to_owned() + &sweep;
        fs::write(dir.path().join("one.toml"), two).unwrap();
        let arguments = ["run", "one.toml", "--engine", "sim", "--algorithm", "lla.c", "--out", cc];
        let (code, document) = json(dir.path(), &arguments);
        assert_eq!(code, 0, "{document}");
        document
    };
    let (lia, own) = (variant("lia"), variant("lla"));
    assert_eq!(serde_json::to_string(&lia["cases"]).unwrap(), serde_json::to_string(&own["cases"]).unwrap());
    for file in ["flows.parquet", "series.parquet"] {
        let read = |out: &str| fs::read(dir.path().join(out).join(file)).unwrap();
        let mut own = read("lla");
        let names: Vec<usize> = (0..own.len()).filter(|at| own[*at..].starts_with(b"lla")).collect();
        names.iter().for_each(|at| own[*at + 1] = b'i');
        assert!(read("lia") == own, "{file} differs");
    }
    // Reno's are other bytes: the comparison can fail.
    let reno = variant("reno");
    assert_ne!(lia["cases"], reno["cases"]);
    // The results can be made again from what they keep.
    assert_eq!(fs::read_to_string(dir.path().join("lla/lla.c")).unwrap(), copy_of_lia("lla"));
    let command = own["environment"]["command"].as_str().unwrap();
    assert!(command.contains("--algorithm lla.c"), "{command}");
}

#[test]
fn own_algorithm_is_swept_and_has_parameters() {
    let dir = folder();
    let (code, made) = json(dir.path(), &["algorithm", "new", "mine", "sub"]);
    assert_eq!((code, made["files"].as_array().unwrap().len()), (0, 3));
    assert_eq!(names(&dir.path().join("sub")), ["mine.c", "mine.csv", "mine.toml"]);
    let (code, checked) = json(dir.path(), &["algorithm", "check", "sub/mine.c"]);
    assert_eq!((code, checked["algorithm"]["kernel_name"].as_str()), (0, Some("mp_mine")), "{checked}");
    assert!(checked["steps"].as_u64().unwrap() > 10_000 && checked["warnings"] == "", "{checked}");
    assert_eq!(checked["vectors"], 8);
    let (code, run) = json(
        dir.path(),
        &["run", "sub/mine.toml", "--engine", "sim", "--algorithm", "sub/mine.c", "--out", "out"],
    );
    assert_eq!(code, 0, "{run}");
    let sweep = ["run", "two.toml", "--engine", "sim", "--algorithm", "sub/mine.c", "--set", "cc=lia,mine"];
    let (code, swept) =
        json(dir.path(), &[&sweep[..], &["--set", "params.mine.gain=0.1,1", "--out", "x"]].concat());
    assert_eq!((code, swept["cases"].as_array().unwrap().len()), (0, 4));
    let goodput = |case: usize| swept["cases"][case]["runs"][0]["metrics"]["goodput_bps"].as_f64().unwrap();
    assert_ne!(goodput(2), goodput(3), "the parameter has an effect");
    let wrong = refused(dir.path(), &[&sweep[..], &["--set", "params.mine.gain=2"]].concat(), 2);
    assert!(wrong.contains("0 .. 1"), "{wrong}");
    let again = refused(dir.path(), &["algorithm", "new", "mine", "sub"], 2);
    assert!(again.contains("mine.c: it exists"), "{again}");
}

#[test]
fn scenario_check_knows_own_algorithms() {
    let dir = folder();
    fs::write(dir.path().join("mylia.c"), copy_of_lia("mylia")).unwrap();
    let text = fs::read_to_string(dir.path().join("two.toml")).unwrap().replace("\"reno\"", "\"mylia\"");
    fs::write(dir.path().join("own.toml"), text).unwrap();
    let unknown = refused(dir.path(), &["scenario", "check", "own.toml"], 2);
    assert!(unknown.contains("no congestion-control algorithm `mylia`"), "{unknown}");
    let (code, _) = json(dir.path(), &["scenario", "check", "own.toml", "--algorithm", "mylia.c"]);
    assert_eq!(code, 0);
}

/// Every algorithm of the registry, as a user would copy it: with its parameters and its detector.
#[test]
fn copies_of_the_registry_pass_the_check() {
    let dir = folder();
    let registry = fs::read_to_string(root().join("algorithms/registry.toml")).unwrap();
    let mut checked = 0;
    for entry in registry.split("\n[").skip(1).filter(|entry| !entry.starts_with('[')) {
        let name = entry.split(']').next().unwrap();
        let own = format!("o_{name}");
        // An entry ends where the next begins; its parameters begin with another bracket.
        let from = registry.find(&format!("\n[{name}]\n")).unwrap() + name.len() + 4;
        let rest = &registry[from..];
        let end = rest.match_indices("\n[").map(|(at, _)| at).find(|at| !rest[*at..].starts_with("\n[["));
        let description = &rest[..end.unwrap_or(rest.len())];
        let description = description.replace(&format!("[[{name}.param]]"), "[[param]]");
        let text = fs::read_to_string(root().join(format!("algorithms/src/{name}.c"))).unwrap();
        let text = ["CC_HOOK(", "CC_ALGORITHM(", "CC_DETECT_HOOK("]
            .iter()
            .fold(text, |text, begin| text.replace(&format!("{begin}{name}"), &format!("{begin}{own}")));
        let file = format!("{own}.c");
        fs::write(dir.path().join(&file), format!("/* vmcc\n{description}\n*/\n{text}")).unwrap();
        let (code, document) = json(dir.path(), &["algorithm", "check", &file]);
        assert_eq!((code, &document["warnings"]), (0, &"".into()), "{name}: {document}");
        checked += 1;
    }
    assert_eq!(checked, vmcc_cc::Algorithm::all().len());
}

#[test]
fn headers_beside_the_file_are_found() {
    let dir = folder();
    let place = dir.path().join("a folder");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("growth.h"), "#define GROW(ev, self, out) cc_reno_grow(ev, self, out)\n").unwrap();
    let text = with_growth("mine", "GROW(ev, self, out);")
        .replace("\"coupling.h\"", "\"coupling.h\"\n#include \"growth.h\"");
    fs::write(place.join("mine.c"), text).unwrap();
    // One that is called like one of vmcc's hides it from none.
    for name in ["host.h", "shared.h", "coupling.h"] {
        fs::write(place.join(name), "#error not this one\n").unwrap();
    }
    assert_eq!(json(dir.path(), &["algorithm", "check", "a folder/mine.c"]).0, 0);
    // The results can be made again from what they keep.
    let run = ["run", "two.toml", "--engine", "sim", "--set", "cc=lia,mine", "--runs", "1"];
    let with = |file: &str, out: &str| {
        let (code, document) = json(dir.path(), &[&run[..], &["--algorithm", file, "--out", out]].concat());
        assert_eq!(code, 0, "{document}");
        document["cases"].clone()
    };
    let first = with("a folder/mine.c", "first");
    assert!(!dir.path().join("first/host.h").exists());
    assert_eq!(with("first/mine.c", "second"), first);
    fs::remove_file(dir.path().join("first/growth.h")).unwrap();
    assert!(refused(dir.path(), &["algorithm", "check", "first/mine.c"], 2).contains("growth.h"));
}

/// The dynamic linker writes them, once.
#[test]
fn constant_address_tables_are_not_refused_as_variables() {
    let dir = folder();
    let tables = "#ifndef __bpf__\nstatic const uint32_t a = 1, b = 2;\nstatic const uint32_t *const tables[] = {&a, &b};\n\
                  volatile uint32_t found = *tables[ev->cwnd_pkt & 1];\n(void)found;\n#endif\ncc_reno_grow(ev, self, out);";
    fs::write(dir.path().join("mine.c"), with_growth("mine", tables)).unwrap();
    let (code, checked) = json(dir.path(), &["algorithm", "check", "mine.c"]);
    assert_eq!(code, 0, "{checked}");
}

#[test]
fn invalid_algorithm_files_are_refused_by_cause() {
    let growth = |body: &str| refusal("mine", &with_growth("mine", body));
    let error = growth("int x = y;");
    assert!(
        error.contains("mine.c:") && error.contains("'y' undeclared") || error.contains("identifier 'y'"),
        "{error}"
    );
    let line = with_growth("mine", "int x = y;").lines().position(|line| line.contains("= y")).unwrap() + 1;
    assert!(error.contains(&format!("mine.c:{line}:")), "line {line}: {error}");

    let error = refusal("mine", &with_growth("mine", "").replace("on_ack", "on_acks"));
    assert!(error.contains("does not define mine_on_ack;"), "{error}");
    let error = refusal("mine", &copy_of_lia("lia2"));
    assert!(error.contains("mine_init, ") && error.contains("CC_HOOK(mine, HOOK)"), "{error}");

    let error = growth("extern int rand(void); cc_set_cwnd(out, rand());");
    assert!(error.contains("uses rand"), "{error}");
    let error = growth("static uint32_t calls; cc_set_cwnd(out, ev->cwnd_pkt + (calls++ & 1));");
    assert!(error.contains("calls") && error.contains("shared by all connections"), "{error}");
    // Neither assembler code nor another section hides one.
    let in_assembler = "__asm__(\".data\\n.Lcalls: .quad 0\\n.text\");\n";
    let error = refusal("mine", &(with_growth("mine", "") + in_assembler));
    assert!(error.contains("section .data") && error.contains("shared by all connections"), "{error}");
    let in_note = "static __attribute__((section(\".note.x,\\\"aw\\\",@note#\"))) uint64_t calls = 1;";
    let error = growth(&format!("{in_note} if (calls++ > 9) cc_set_cwnd(out, 1);"));
    assert!(error.contains("calls") && error.contains("shared by all connections"), "{error}");
    let error = growth("cc_set_cwnd(out, (uint32_t)(ev->cwnd_pkt * 1.5));");
    assert!(
        error.contains("floating point") || error.contains("SSE") || error.contains("general-regs"),
        "{error}"
    );

    let error = refusal("lia", &copy_of_lia("lia"));
    assert!(error.contains("lia is the name of another algorithm"), "{error}");
    let error = refusal("mp_lia", &copy_of_lia("mp_lia"));
    assert!(error.contains("mp_lia is the name of another"), "{error}");
    let error = refusal("mine", "int x;\n");
    assert!(error.contains("no description"), "{error}");
    let error = refusal("mine", &with_growth("mine", "").replace("coupled", "coupledd"));
    assert!(error.contains("line 4") && error.contains("coupledd"), "{error}");
    let error =
        refusal("mine", &(with_growth("mine", "") + "_Static_assert(CC_INTERFACE_VERSION == 3, \"old\");\n"));
    assert!(error.contains("old"), "{error}");
}

#[test]
fn names_and_paths_are_refused_before_anything_is_compiled() {
    let dir = folder();
    let check = |file: &str, code| refused(dir.path(), &["algorithm", "check", file], code);
    assert!(check("two.toml", 2).contains("NAME.c"));
    assert!(check("none.c", 2).contains("none.c"));
    fs::create_dir(dir.path().join("dir.c")).unwrap();
    assert!(check("dir.c", 2).contains("directory"));
    assert!(check("/dev/zero", 2).contains("no regular file"));
    fs::write(dir.path().join("long.c"), " ".repeat((1 << 20) + 1)).unwrap();
    assert!(check("long.c", 2).contains("longer than"));
    fs::write(dir.path().join("latin.c"), b"/* \xe4 */").unwrap();
    assert!(check("latin.c", 2).contains("UTF-8"));
    let above = format!("{}/x", dir.path().display());
    for name in ["no-name", "../x", "sub/x", &above, "cc", "cc_mine", "", "a_name_too_long"] {
        let error = refused(dir.path(), &["algorithm", "new", name, "new"], 2);
        assert!(error.contains(&format!("`{name}` is no NAME")), "{error}");
    }
    assert!(!dir.path().join("new").exists());
    assert!(refused(dir.path(), &["algorithm", "new", "lia"], 2).contains("another algorithm"));
    fs::write(dir.path().join("mylia.c"), copy_of_lia("mylia")).unwrap();
    let twice = ["run", "two.toml", "--engine", "sim", "--algorithm", "mylia.c", "--algorithm", "./mylia.c"];
    assert!(refused(dir.path(), &twice, 2).contains("another algorithm"));
}

/// Each is found in a process of its own, and named with the hook.
#[test]
fn crashes_and_broken_rules_are_named() {
    let growth = |body: &str| refusal("mine", &with_growth("mine", body));
    for body in [
        "cc_set_cwnd(out, ev->cwnd_pkt / ev->acked_pkt);",
        "cc_set_cwnd(out, group->path[0].cwnd_pkt);",
        "self->priv[ev->cwnd_pkt] = 1;",
        "cc_set_cwnd(out, 1u << ev->cwnd_pkt);",
    ] {
        let error = growth(body);
        // Compilers trap at most indices out of range; another may be in memory that is not there.
        let crash = error.contains("leaves undefined") || error.contains("not its own");
        assert!(crash && error.contains("mine_on_grow"), "{body}: {error}");
    }
    let error = growth("*(volatile uint32_t *)(uintptr_t)(4096 + ev->snd_una % 4096 * 8) = 1;");
    assert!(error.contains("not its own") && error.contains("mine_on_grow"), "{error}");
    let error = growth("while (*(volatile uint32_t *)&out->set == 0)\n;");
    assert!(error.contains("does not end") && error.contains("mine_on_grow"), "{error}");
    let error = growth("cc_set_cwnd(out, 0);");
    assert!(error.contains("at least one packet") && error.contains("cwnd"), "{error}");
    let error = growth("cc_set_cwnd(out, 1u << 21);");
    assert!(error.contains("2^20"), "{error}");
    let error = growth("out->set |= 1u << 20;");
    assert!(error.contains("decisions are known ones"), "{error}");
}

/// A hook that makes system calls can end its process, which is no fault of the host.
#[cfg(target_arch = "x86_64")]
#[test]
fn hooks_that_exit_the_process_are_named() {
    let exit = "#ifndef __bpf__\nunsigned long call = 231;\n__asm__ volatile(\"syscall\" : \"+a\"(call) : \"D\"(0) : \"rcx\", \"r11\", \
                \"memory\");\n#endif";
    let error = refusal("mine", &with_growth("mine", exit));
    assert!(error.contains("it ends its process") && error.contains("mine_on_grow"), "{error}");
}

/// A mount that runs no programs is a fault of the host.
#[test]
fn noexec_temporary_folder_is_named() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can mount");
        return;
    }
    let dir = folder();
    fs::write(dir.path().join("mylia.c"), copy_of_lia("mylia")).unwrap();
    fs::create_dir(dir.path().join("noexec")).unwrap();
    let script = "mount -t tmpfs -o noexec,mode=755 none noexec && export TMPDIR=$PWD/noexec && exec \"$@\"";
    let done = std::process::Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(assert_cmd::cargo::cargo_bin("vmcc"))
        .args(["algorithm", "check", "mylia.c"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let error = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(3) && error.contains("set TMPDIR"), "{error}");
    assert_eq!(error.matches("mylia.c").count(), 1, "{error}");
}

#[test]
fn vectors_beside_the_file_are_run() {
    let dir = folder();
    fs::write(dir.path().join("mylia.c"), copy_of_lia("mylia")).unwrap();
    let vectors = fs::read_to_string(root().join("algorithms/vectors/lia.csv")).unwrap();
    fs::write(dir.path().join("mylia.csv"), &vectors).unwrap();
    let (code, checked) = json(dir.path(), &["algorithm", "check", "mylia.c"]);
    assert!(code == 0 && checked["vectors"].as_u64().unwrap() > 5, "{checked}");
    fs::write(dir.path().join("mylia.csv"), vectors.replace("0.025,", "0.026,")).unwrap();
    let error = refused(dir.path(), &["algorithm", "check", "mylia.c"], 2);
    assert!(error.contains("mylia.csv: ") && !error.contains("mylia.c:"), "{error}");
    assert!(error.contains("line 4") && error.contains("0.026") && error.contains("vectors"), "{error}");
    fs::write(dir.path().join("mylia.csv"), "nonsense").unwrap();
    assert!(refused(dir.path(), &["algorithm", "check", "mylia.c"], 2).contains("case,do,with"));
}

#[test]
fn compilers_are_named_if_they_are_missing_or_unusable() {
    let dir = folder();
    fs::write(dir.path().join("mylia.c"), copy_of_lia("mylia")).unwrap();
    let check = |variable: &str, value: &str| {
        let mut command = vmcc(dir.path());
        let done = command.args(["algorithm", "check", "mylia.c"]).env(variable, value).output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, error) = check("CC", "/nonexistent/cc");
    assert!(code == 3 && error.contains("/nonexistent/cc") && error.contains("apt install gcc"), "{error}");
    let (code, error) = check("PATH", "/nonexistent");
    assert!(code == 3 && error.contains("`cc` cannot be started"), "{error}");
    // A compiler that succeeds and makes nothing.
    let (code, error) = check("CC", "true");
    assert!(code == 3 && error.contains("`true`") && error.contains("set CC to gcc"), "{error}");
    let (code, error) = check("CC", "cc -DCC_MAX_PATHS_ -std=c11");
    assert!(code == 0, "arguments of CC are its own: {error}");
    let (code, error) = check("TMPDIR", "/nonexistent");
    assert!(code == 3 && error.contains("/nonexistent: ") && error.contains("set TMPDIR"), "{error}");
}

/// The folder of temporary files must not be another user's.
#[test]
fn folders_that_others_may_write_are_refused() {
    let dir = folder();
    fs::write(dir.path().join("mylia.c"), copy_of_lia("mylia")).unwrap();
    let shared = dir.path().join("shared");
    fs::create_dir(&shared).unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&shared, 0o777);
    let in_shared = |file: &str| {
        let done =
            vmcc(dir.path()).args(["algorithm", "check", file]).env("TMPDIR", &shared).output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, error) = in_shared("mylia.c");
    assert!(code == 3 && error.contains("shared: other users may write it"), "{error}");
    assert!(error.contains("set TMPDIR"), "{error}");
    mode(&shared, 0o1777);
    assert_eq!(in_shared("mylia.c").0, 0);
    assert!(names(&shared).is_empty(), "the private folder is removed: {:?}", names(&shared));
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    for (name, text) in [("mylia.c", copy_of_lia("mylia")), ("growth.h", "#define GROWTH\n".to_owned())] {
        let file = shared.join(name);
        fs::write(&file, text).unwrap();
        mode(&file, 0o666);
        let error = if name == "mylia.c" {
            refused(dir.path(), &["algorithm", "check", "shared/mylia.c"], 2)
        } else {
            let text = copy_of_lia("mine").replace("#include", "#include \"growth.h\"\n#include");
            fs::write(shared.join("mine.c"), text).unwrap();
            refused(dir.path(), &["algorithm", "check", "shared/mine.c"], 2)
        };
        assert!(error.contains(name) && error.contains("mode 666"), "{error}");
    }
}

#[test]
fn own_algorithms_are_refused_in_guests() {
    let dir = folder();
    fs::write(dir.path().join("mylia.c"), copy_of_lia("mylia")).unwrap();
    let run = ["run", "two.toml", "--engine", "guest", "--algorithm", "mylia.c", "--set", "cc=mylia"];
    let done = output(dir.path(), &run);
    let error = String::from_utf8(done.stderr).unwrap();
    assert!(matches!(done.status.code(), Some(2 | 3)) && error.contains("engine guest"), "{error}");
}

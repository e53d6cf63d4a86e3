//! Boots real guests: on any machine with what `make setup-guest` installs, root or not.
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmcc_lab::guest::{self, Accel, Guest, GuestError, GuestOptions, Stream, kernel, newest_kernel};

/// Time limit of a guest that hangs. At idle priority beside others nothing takes a known time, so nothing else has a limit.
const LONG: Duration = Duration::from_secs(1_800);

fn options() -> GuestOptions {
    GuestOptions { memory_bytes: 512 << 20, time_limit: LONG, ..GuestOptions::default() }
}

/// Leftovers of this process in the temporary directory and among the processes.
fn leftovers() -> Vec<String> {
    let own = format!("vmcc-guest-{}-", std::process::id());
    let dirs = std::env::temp_dir().read_dir().expect("a temporary directory");
    let mut found: Vec<String> = dirs
        .flatten()
        .map(|entry| entry.path().display().to_string())
        .filter(|path| path.contains(&own))
        .collect();
    for process in PathBuf::from("/proc").read_dir().expect("/proc").flatten() {
        let cmdline = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let cmdline = String::from_utf8_lossy(&cmdline).replace('\0', " ");
        if cmdline.contains(&own) {
            found.push(cmdline);
        }
    }
    found
}

/// bubblewrap's child dies by signal, a moment after its parent.
fn assert_nothing_is_left() {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !leftovers().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(leftovers(), [""; 0]);
}

#[test]
fn timeless_boots_the_oldest_and_newest_kernel_on_host_files() {
    let script = "uname -r; cat \"$0\"; cat /proc/sys/net/mptcp/enabled; ls /sys/kernel/btf/vmlinux; \
                  ip -o link | wc -l; modprobe sch_htb && lsmod | grep -c '^sch_htb '; echo wrong >&2; exit 13";
    for image in [kernel("6.1").expect("kernel 6.1"), newest_kernel().expect("a kernel")] {
        // A file of the host that no image could contain.
        let marker = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(marker.path(), "from the host\n").expect("a file");
        let mut options = options();
        options.env.push(("GREETING".into(), "it's me".into()));
        let output = Guest::new(options)
            .run(&image, "sh", ["-c", script, marker.path().to_str().expect("UTF-8")])
            .expect("a guest");
        let expected = format!("{}\nfrom the host\n1\n/sys/kernel/btf/vmlinux\n1\n1\n", image.release());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "wrong\n");
        assert_eq!(output.exit_code, 13);
    }
    assert_nothing_is_left();
}

#[test]
fn timeless_writes_reach_the_shared_directory_only() {
    let shared = tempfile::tempdir().expect("a directory");
    let other = tempfile::tempdir().expect("a directory");
    let script = "echo kept >\"$1/a file\"; echo lost >\"$2/file\"; cat \"$2/file\"; echo \"$GREETING\"; pwd; \
                  mkdir /x && mount -t virtiofs vmcc /x && echo bad >\"/x$2/file\"";
    let options = GuestOptions {
        shared_dir: Some(shared.path().to_path_buf()),
        cwd: Some(other.path().to_path_buf()),
        env: vec![("GREETING".into(), "it's me".into())],
        ..options()
    };
    let paths = [shared.path(), other.path()].map(|path| path.to_str().expect("UTF-8"));
    let output = Guest::new(options)
        .run(&newest_kernel().expect("a kernel"), "sh", ["-c", script, "sh", paths[0], paths[1]])
        .expect("a guest");
    let expected = format!("lost\nit's me\n{}\n", paths[1]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Read-only file system"), "{output:?}");
    assert_ne!(output.exit_code, 0);
    assert_eq!(std::fs::read_to_string(shared.path().join("a file")).expect("the guest's file"), "kept\n");
    assert_eq!(other.path().read_dir().expect("a directory").count(), 0);
}

/// A user without any privilege gets guests too; the other tests run as the user of the suite.
#[test]
fn timeless_needs_no_root() {
    if !nix::unistd::geteuid().is_root() {
        // Then every test of this file shows it.
        return;
    }
    let own = std::env::current_exe().expect("this program");
    // The build folder may lie where others must not look.
    let public = tempfile::tempdir().expect("a directory");
    let copy = public.path().join("tests");
    std::fs::copy(own, &copy).expect("a copy");
    std::fs::set_permissions(public.path(), Permissions::from_mode(0o755)).expect("permissions");
    let output = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
            "--no-new-privs",
            "--",
        ])
        .arg(&copy)
        .args(["--exact", "guest::boot::timeless_writes_reach_the_shared_directory_only"])
        .env("HOME", "/nonexistent")
        .current_dir("/")
        .output()
        .expect("setpriv");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn timeless_output_streams_while_the_program_runs_and_arrives_whole() {
    let mut first_at = None;
    let mut streamed = Vec::new();
    let script = "echo first; sleep 2; head -c 3000000 /dev/zero | tr '\\0' x; echo last";
    let output = Guest::new(options())
        .run_streaming(&newest_kernel().expect("a kernel"), "sh", ["-c", script], &mut |stream, bytes| {
            assert_eq!(stream, Stream::Stdout);
            first_at.get_or_insert_with(Instant::now);
            streamed.extend_from_slice(bytes);
        })
        .expect("a guest");
    assert!(first_at.expect("output").elapsed() > Duration::from_secs(2), "it came only at the end");
    assert_eq!(output.stdout.len(), "first\n".len() + 3_000_000 + "last\n".len());
    assert!(output.stdout.ends_with(b"xlast\n"));
    assert_eq!(streamed, output.stdout);
}

#[test]
fn timeless_is_stopped_by_its_time_limit() {
    let ends = |seconds| {
        let options = GuestOptions { time_limit: Duration::from_secs(seconds), ..options() };
        Guest::new(options)
            .run(&newest_kernel().expect("a kernel"), "sleep", ["1000"])
            .expect_err("the limit must end it")
    };
    // A boot alone may take as long as the limit.
    let mut error = ends(40);
    for limit in [300, LONG.as_secs()] {
        if matches!(error, GuestError::Boot { .. }) {
            error = ends(limit);
        }
    }
    assert!(matches!(error, GuestError::TimeLimit { .. }), "{error}");
    assert_nothing_is_left();
}

#[test]
fn timeless_is_stopped_by_the_callers_flag() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let options = GuestOptions { stop: Some(&STOP), ..options() };
    let mut seen = None;
    let error = Guest::new(options)
        .run_streaming(
            &newest_kernel().expect("a kernel"),
            "sh",
            ["-c", "echo up; sleep 1000"],
            &mut |_, _| {
                seen.get_or_insert_with(Instant::now);
                STOP.store(true, Ordering::Relaxed);
            },
        )
        .expect_err("the flag must end it");
    assert!(matches!(error, GuestError::Interrupted), "{error}");
    assert!(seen.expect("output").elapsed() < Duration::from_secs(600), "it did not sleep to its end");
    assert_nothing_is_left();
}

#[test]
fn timeless_crash_shows_the_console_log() {
    let error = Guest::new(options())
        .run(&newest_kernel().expect("a kernel"), "sh", ["-c", "echo c >/proc/sysrq-trigger; sleep 100"])
        .expect_err("a crashed guest has no result");
    assert!(matches!(error, GuestError::Died { .. }), "{error}");
    assert!(error.to_string().contains("sysrq triggered crash"), "{error}");
}

#[test]
fn timeless_program_that_does_not_exist_is_exit_code_127() {
    let options = GuestOptions { accel: Some(Accel::Emulation), ..options() };
    let output = Guest::new(options)
        .run(&newest_kernel().expect("a kernel"), "no-such-program", [""; 0])
        .expect("a guest");
    assert_eq!(output.exit_code, 127, "{output:?}");
}

/// One processor of a nanosecond per instruction; an hour of sleep there is none here.
#[test]
fn timeless_counts_instructions() {
    let script = "nproc; grep MHz /proc/cpuinfo; sleep 3600; cut -d. -f1 /proc/uptime";
    let options = GuestOptions { accel: Some(Accel::Counted), cpus: 4, ..options() };
    let output = Guest::new(options)
        .run(&newest_kernel().expect("a kernel"), "sh", ["-c", script])
        .expect("a guest, within its time limit");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    let [cpus, clock, uptime_s] = lines[..] else { panic!("{text}") };
    assert_eq!((cpus, output.accel), ("1", Accel::Counted));
    let mhz: f64 = clock.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("MHz");
    assert!((999.9..1000.1).contains(&mhz), "one instruction per nanosecond: {clock}");
    assert!(uptime_s.parse::<u64>().expect("seconds") >= 3600, "{text}");
}

#[test]
fn timeless_impossible_options_are_refused() {
    let refused = |options: GuestOptions| {
        let error = Guest::new(options).run(&newest_kernel().expect("a kernel"), "true", [""; 0]);
        matches!(error, Err(GuestError::Options { .. }))
    };
    assert!(refused(GuestOptions { cpus: 0, ..options() }));
    assert!(refused(GuestOptions { memory_bytes: 1 << 20, ..options() }));
    assert!(refused(GuestOptions { shared_dir: Some("relative".into()), ..options() }));
    assert!(refused(GuestOptions { shared_dir: Some("/no/such/directory".into()), ..options() }));
}

#[test]
fn timeless_directories_of_dead_runs_are_removed() {
    let mut dead = Command::new("true").spawn().expect("a process");
    dead.wait().expect("its end");
    let orphan = std::env::temp_dir().join(format!("vmcc-guest-{}-test", dead.id()));
    let alive = std::env::temp_dir().join(format!("vmcc-guest-{}-test", std::process::id()));
    std::fs::create_dir(&orphan).expect("a directory");
    std::fs::create_dir(&alive).expect("a directory");
    let removed = guest::clean().expect("cleaning");
    std::fs::remove_dir(&alive).expect("an owned directory stays");
    assert!(removed.contains(&orphan) && !orphan.exists());
}

//! `vmcc mark` where only a guest can show it: a kernel that lacks something, a link with a speed of its own.

use crate::inside;
use std::process::Command;
use std::time::Duration;
use vmcc_lab::guest::{Guest, GuestOptions, newest_kernel};

/// sch_htb cannot be loaded at first, as on a kernel without it.
const SCRIPT: &str = r#"
ip link add p0 type veth peer name p1
ip link set p0 up
mkdir -p /etc/modprobe.d
left() { tc qdisc show dev p0; ls -A /run/vmcc/ports 2>/dev/null; }
before=$(left)
try() {
    "$VMCC" "$@" 2>&1
    echo "exit $?"
    [ "$(left)" = "$before" ] && echo "nothing left"
}
echo 'install sch_htb /bin/false' >/etc/modprobe.d/none.conf
echo "== no htb"; try mark p0 --rate 20mbit
rm /etc/modprobe.d/none.conf
echo "== no bpf"; try mark p0 --rate 20mbit --backend bpf
echo "== served"; try mark p0 --rate 20mbit
echo "== listed"; try mark --list
echo "== ended"; try unmark p0
"#;

#[test]
fn timeless_mark_names_missing_kernel_features_without_changes() {
    let done = inside::output("6.1", SCRIPT);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let part = |name: &str| {
        let found = text.split("== ").find_map(|part| part.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name}: {text} {}", String::from_utf8_lossy(&done.stderr)))
    };
    let htb = part("no htb");
    for says in ["exit 3", "port p0", "HTB", "modprobe sch_htb", "nothing left"] {
        assert!(htb.contains(says), "{says}: {htb}");
    }
    let bpf = part("no bpf");
    assert!(
        bpf.contains("`bpf`")
            && bpf.contains("Linux 6.16")
            && bpf.contains("exit 3")
            && bpf.contains("nothing left"),
        "{bpf}"
    );
    let served = part("served");
    assert!(served.contains("exit 0") && served.contains("by htb (bpf: "), "{served}");
    assert!(part("listed").contains("p0: htb, 20mbit"), "{text}");
    let ended = part("ended");
    assert!(ended.contains("exit 0") && ended.contains("nothing left"), "{ended}");
}

/// A tap of this test; removed on drop.
struct Tap(String);

impl Tap {
    fn new() -> Self {
        let tap = Self(format!("vmt{}", std::process::id()));
        let made = Command::new("ip").args(["tuntap", "add", &tap.0, "mode", "tap"]).status().unwrap();
        assert!(made.success(), "a tap needs root");
        tap
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // The test's own failure matters more.
        let _ = Command::new("ip").args(["link", "del", &self.0]).output();
    }
}

#[test]
fn timeless_mark_refuses_a_rate_above_the_links() {
    let tap = Tap::new();
    let options = GuestOptions {
        taps: vec![tap.0.clone()],
        time_limit: Duration::from_secs(240),
        ..GuestOptions::default()
    };
    let script = r#"
modprobe virtio_net
while ! nic=$(cd /sys/class/net && ls -d e*); do sleep 0.1; done
ip link set "$nic" up
before=$(tc qdisc show dev "$nic")
"$0" mark "$nic" --rate 2gbit 2>&1; echo "exit $?"
[ "$(tc qdisc show dev "$nic")" = "$before" ] && echo "nothing left"
"$0" mark "$nic" --rate 900mbit 2>&1; echo "exit $?"
"#;
    let program = env!("CARGO_BIN_EXE_vmcc");
    let output =
        Guest::new(options).run(&newest_kernel().unwrap(), "sh", ["-c", script, program]).expect("a guest");
    let text = String::from_utf8_lossy(&output.stdout);
    let (refused, served) = text.split_once("nothing left").unwrap_or_else(|| panic!("{text}"));
    for says in ["--rate", "2gbit is more than the link carries (1gbit)", "give at most 1gbit", "exit 2"] {
        assert!(refused.contains(says), "{says}: {text}");
    }
    assert!(served.contains("is served by") && served.contains("exit 0"), "{text}");
}

//! TCP of a chosen cgroup that becomes MPTCP, on kernels that let a program decide so.

use crate::common;
use crate::inside;
/// Prints the sockets of unmodified programs in and beside the chosen cgroup: while the agent runs, after it was killed, and after it.
const SCRIPT: &str = r#"
set -e
cd /tmp
cat >vmcc.toml <<END
[agent]
interval = '1s'
[[cgroup]]
path = 'chosen'
upgrade = true
END
cat >sockets.py <<END
import os, socket, sys
open(f"/sys/fs/cgroup/{sys.argv[1]}/cgroup.procs", "w").write(str(os.getpid()))
S = socket
of = lambda *kind: S.socket(*kind).getsockopt(S.SOL_SOCKET, S.SO_PROTOCOL)
tcp = [of(), of(S.AF_INET6, S.SOCK_STREAM | S.SOCK_NONBLOCK, 6)]
print(sys.argv[1], *tcp, of(S.AF_INET, S.SOCK_DGRAM), of(S.AF_UNIX), of(S.AF_INET, S.SOCK_RAW, 1))
listener = S.create_server(("127.0.0.1", 0))
client = S.create_connection(listener.getsockname())
server, _ = listener.accept()
client.sendall(b"x" * 60000)
client.shutdown(S.SHUT_WR)
data = b"".join(iter(lambda: server.recv(65536), b""))
names, values = [line.split()[1:] for line in open("/proc/net/netstat") if line.startswith("MPTcpExt")]
print(len(data), "bytes,", dict(zip(names, values))["MPCapableACKRX"], "MPTCP connections so far")
END
mkdir -p /sys/fs/cgroup/chosen/inner /sys/fs/cgroup/beside
sockets() { echo "== $1"; for cgroup in chosen chosen/inner beside; do python3 sockets.py $cgroup; done; }
up() { $AS_ITS_UNIT "$VMCC" up --config vmcc.toml 2>said & agent=$!; until grep -q ^ready: said; do sleep 0.2; done; }
up
sockets up
echo 0 >/proc/sys/net/mptcp/enabled
sockets off
echo 1 >/proc/sys/net/mptcp/enabled
kill -KILL $agent
wait $agent || true
sockets killed
"$VMCC" down
sockets down
up
rmdir /sys/fs/cgroup/chosen/inner /sys/fs/cgroup/chosen
while [ -e /sys/fs/bpf/vmcc-upgrade ]; do sleep 0.2; done
kill $agent
wait $agent
"#;

/// With the capabilities of the unit, and no new ones.
fn as_its_unit() -> String {
    let unit = std::fs::read_to_string(common::root().join("dist/vmcc.service")).unwrap();
    let rights = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=CAP_")).unwrap();
    let rights = rights.to_lowercase().replace(" cap_", ",+");
    format!("setpriv --no-new-privs --inh-caps -all --bounding-set -all,+{rights}")
}

fn says(series: &str) -> String {
    let done = inside::output(series, &SCRIPT.replace("$AS_ITS_UNIT", &as_its_unit()));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{text} {}", String::from_utf8_lossy(&done.stderr));
    text
}

/// The protocols of two TCP sockets, and of UDP, of the machine's own and of ICMP, which stay; how many connections had MPTCP.
fn sockets(cgroup: &str, tcp: u16, connections: u32) -> String {
    format!("{cgroup} {tcp} {tcp} 17 0 1\n60000 bytes, {connections} MPTCP connections so far\n")
}

fn tcp_of_a_chosen_cgroup_becomes_mptcp(series: &str) {
    let text = says(series);
    let expected = [
        ("up", 262, [1, 2, 2]),
        // A program whose namespace has no MPTCP would get no socket at all.
        ("off", 6, [2; 3]),
        ("killed", 262, [3, 4, 4]),
        ("down", 6, [4; 3]),
    ];
    for (when, tcp, [chosen, inner, beside]) in expected {
        let all = [
            sockets("chosen", tcp, chosen),
            sockets("chosen/inner", tcp, inner),
            sockets("beside", 6, beside),
        ];
        let expected = format!("== {when}\n{}", all.concat());
        assert!(text.contains(&expected), "{expected} {text}");
    }
}

#[test]
fn timeless_tcp_of_a_chosen_cgroup_becomes_mptcp_and_no_other() {
    tcp_of_a_chosen_cgroup_becomes_mptcp("6.12");
}

#[test]
#[ignore = "on demand: of the kernels that can, the oldest that there is runs always"]
fn on_linux_7_tcp_of_a_chosen_cgroup_becomes_mptcp() {
    tcp_of_a_chosen_cgroup_becomes_mptcp("7");
}

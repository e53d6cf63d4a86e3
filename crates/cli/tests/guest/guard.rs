//! The guard on kernels older than this host's.

use crate::inside;
/// Two connections whose second path fails, is closed, and is tried again: the endpoint goes and comes, under its number.
const SCRIPT: &str = r#"
set -e
cd /tmp
ip netns add c
ip netns add s
for i in 0 1; do
	ip link add p$i netns c type veth peer name p$i netns s
	ip -n c addr add 10.77.$i.1/24 dev p$i
	ip -n s addr add 10.77.$i.2/24 dev p$i
	ip -n c link set p$i up
	ip -n s link set p$i up
	tc -n c qdisc add dev p$i root tbf rate 20mbit burst 15k limit 60k
done
for ns in c s; do ip -n $ns mptcp limits set subflow 2 add_addr_accepted 0; done
ip -n c mptcp endpoint add 10.77.1.1 dev p1 id 5 subflow
cat >server.py <<END
import socket, threading
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
listener.bind(("0.0.0.0", 5201))
listener.listen()
def sink(client):
    while client.recv(1 << 18): pass
while True: threading.Thread(target=sink, args=(listener.accept()[0],)).start()
END
cat >client.py <<END
import socket
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
client.connect(("10.77.0.2", 5201))
while True: client.sendall(b"x" * 65536)
END
in_c() { ip netns exec c "$@"; }
until_so() { until "$@"; do sleep 0.2; done; }
# This many subflows from the second address have had 100 kB acknowledged.
carry() { [ "$(in_c ss -tniH src 10.77.1.1 | grep -c 'bytes_acked:[0-9]\{6\}')" = "$1" ]; }
said() { [ "$(grep -c "$1" said)" = "$2" ]; }
listens() { ip netns exec s ss -tlnH | grep -q :5201; }
ip netns exec s python3 server.py &
until_so listens
in_c "$VMCC" up lia --guard --close-failed --retry 3s >said 2>&1 &
until_so said "until Ctrl-C" 1
in_c sysctl -qw net.ipv4.tcp_congestion_control=mp_lia
in_c python3 client.py &
in_c python3 client.py &
until_so carry 2
ip -n s route add blackhole 10.77.1.1/32
until_so said "^closed 10.77.1.1" 2
until_so carry 0
ip -n s route del blackhole 10.77.1.1/32
until_so said "^tried again 10.77.1.1" 2
until_so carry 2
ip -n c mptcp endpoint show
"#;

fn a_failed_path_is_tried_again_under_its_number(series: &str) {
    let done = inside::output(series, SCRIPT);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said} {}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(said.trim(), "10.77.1.1 id 5 subflow dev p1");
}

#[test]
#[ignore = "on demand: the oldest kernel that there is; others do it on the host's own"]
fn on_linux_6_1_failed_path_is_retried_with_its_id() {
    a_failed_path_is_tried_again_under_its_number("6.1");
}

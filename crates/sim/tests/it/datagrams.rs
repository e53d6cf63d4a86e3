//! Offered load of datagram senders, and counters of their receivers.

use crate::common::{get, near, run};

/// The goodput of an entry called `u` over a link that holds everything.
fn goodput(duration: &str, entry: &str) -> f64 {
    let text = format!(
        "title='t'\nduration='{duration}'\ninterval='1s'\n[topology]\nkind='dumbbell'\npairs=1\nrate='100mbit'\ndelay='1ms'\n\
         [[traffic]]\nname='u'\n{entry}\n"
    );
    get(&run(&text, &[]), "traffic.u.goodput_bps")
}

/// 28 bytes of each packet are headers.
#[test]
fn udp_goodput_is_payload() {
    for (packet, payload) in [("100B", 72.0 / 100.0), ("29B", 1.0 / 29.0), ("1500B", 1472.0 / 1500.0)] {
        let rate = goodput("2s", &format!("kind='on-off-udp'\nrate='10mbit'\npacket='{packet}'"));
        near(packet, rate, 10e6 * payload, 0.002);
    }
}

/// 0.4 to 40 packets in each burst; a burst shorter than a gap adds up with the next.
#[test]
fn bursts_of_any_length_have_their_rate() {
    for (on, off) in [("1ms", "9ms"), ("3ms", "7ms"), ("5ms", "5ms"), ("7ms", "1ms"), ("100ms", "100ms")] {
        let ms = |text: &str| text.trim_end_matches("ms").parse::<f64>().unwrap();
        let duty = ms(on) / (ms(on) + ms(off));
        let rate = goodput("20s", &format!("kind='on-off-udp'\nrate='5mbit'\non='{on}'\noff='{off}'"));
        near(on, rate, 5e6 * duty * 1472.0 / 1500.0, 0.005);
    }
}

/// The same draws in packets of 1500 and of 100 bytes, which hardly round: what is sent in bursts of 3 ms each, more than a packet too
/// much before, is the same.
#[test]
fn random_bursts_have_their_rate() {
    for kind in [
        "kind='on-off-udp'\nrate='5mbit'\non='3ms'\noff='7ms'\nrandom=true",
        "kind='congestion-generator'\nmin_rate='1mbit'\nmax_rate='9mbit'\nmin_duration='1ms'\nmax_duration='9ms'\nbusy=0.5",
    ] {
        let rate =
            |packet: f64| goodput("20s", &format!("{kind}\npacket='{packet}B'")) * packet / (packet - 28.0);
        near(kind, rate(1500.0), rate(100.0), 0.005);
    }
}

use proptest::prelude::*;

use crate::{BitsPerSec, Bytes, Limit, Nanos, Packets, Problem, Threshold};

#[test]
fn units_are_parsed() {
    assert_eq!("100mbit".parse(), Ok(BitsPerSec::new(100_000_000)));
    assert_eq!("10gbit".parse(), Ok(BitsPerSec::new(10_000_000_000)));
    assert_eq!("50us".parse(), Ok(Nanos::new(50_000)));
    assert_eq!("2.5ms".parse(), Ok(Nanos::new(2_500_000)));
    assert_eq!("0.1s".parse(), Ok(Nanos::new(100_000_000)));
    assert_eq!("10s".parse(), Ok(Nanos::from_secs(10)));
    assert_eq!("150kB".parse(), Ok(Bytes::new(150_000)));
    assert_eq!("64KiB".parse(), Ok(Bytes::new(65_536)));
    assert_eq!("100pkt".parse(), Ok(Packets::new(100)));
    assert_eq!("1 s".parse(), Ok(Nanos::from_secs(1)));
    assert_eq!("20pkt".parse(), Ok(Threshold::Packets(Packets::new(20))));
    assert_eq!("1ms".parse(), Ok(Threshold::Time(Nanos::from_millis(1))));
    assert_eq!("30kB".parse(), Ok(Limit::Bytes(Bytes::new(30_000))));
}

#[test]
fn parse_errors_name_the_problem() {
    let rate = |text: &str| text.parse::<BitsPerSec>().unwrap_err().problem;
    assert_eq!(rate(""), Problem::NotANumber);
    assert_eq!(rate("-1mbit"), Problem::NotANumber);
    assert_eq!(rate("1.mbit"), Problem::NotANumber);
    assert_eq!(rate("1.2.3mbit"), Problem::NotANumber);
    assert_eq!(rate("_mbit"), Problem::NotANumber);
    assert!(matches!(rate("100"), Problem::NoUnit(_)));
    assert!(matches!(rate("100Mbps"), Problem::UnknownUnit { .. }));
    assert_eq!(rate("0.5bit"), Problem::TooFine("bit"));
    assert_eq!(rate("99999999999tbit"), Problem::Overflow);
    assert_eq!(rate("999999999999999999999999999999999999999999bit"), Problem::Overflow);
    assert_eq!(
        "5 parsecs".parse::<Threshold>().unwrap_err().to_string(),
        "`5 parsecs` is not a queue length in bytes, packets or waiting time such as \"30kB\", \"20pkt\" or \
         \"1ms\": unknown unit `parsecs` (one of B, kB, MB, KiB, MiB, pkt, ns, us, ms, s)"
    );
    assert_eq!("1.5pkt".parse::<Limit>().unwrap_err().problem, Problem::TooFine("pkt"));
}

#[test]
fn unit_conversions_are_explicit() {
    let ten_gig = BitsPerSec::new(10_000_000_000);
    assert_eq!(ten_gig.transmit_ps(Bytes::new(1500)), Some(1_200_000));
    assert_eq!(BitsPerSec::new(3).transmit_time(Bytes::new(1)), Some(Nanos::new(2_666_666_667)));
    assert_eq!(BitsPerSec::ZERO.transmit_ps(Bytes::new(1)), None);
    assert_eq!(ten_gig.data_in(Nanos::from_micros(100)), Some(Bytes::new(125_000)));
    assert_eq!(
        Threshold::Time(Nanos::from_millis(1)).bytes(ten_gig, Bytes::ZERO),
        Some(Bytes::new(1_250_000))
    );
    assert_eq!(Bytes::MAX.checked_add(Bytes::new(1)), None);
    assert_eq!(Packets::MAX.bytes(Bytes::new(2)), None);
}

proptest! {
    #[test]
    fn text_round_trips(value: u64) {
        prop_assert_eq!(Nanos::new(value).to_string().parse(), Ok(Nanos::new(value)));
        prop_assert_eq!(Bytes::new(value).to_string().parse(), Ok(Bytes::new(value)));
        prop_assert_eq!(BitsPerSec::new(value).to_string().parse(), Ok(BitsPerSec::new(value)));
        prop_assert_eq!(Packets::new(value).to_string().parse(), Ok(Packets::new(value)));
    }

    #[test]
    fn round_values_round_trip(value in 0u64..10_000, power in 0u32..12) {
        let rate = BitsPerSec::new(value * 10u64.pow(power));
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        let json = serde_json::to_string(&rate).unwrap();
        prop_assert_eq!(serde_json::from_str::<BitsPerSec>(&json).unwrap(), rate);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,24}") {
        let _ = text.parse::<Nanos>();
        let _ = text.parse::<Limit>();
        let _ = text.parse::<Threshold>();
    }

    #[test]
    fn data_and_time_are_inverse(rate in 1u64..1_000_000_000_000, data in 0u64..1_000_000_000) {
        let (rate, data) = (BitsPerSec::new(rate), Bytes::new(data));
        let time = rate.transmit_time(data).unwrap();
        prop_assert!(rate.data_in(time).unwrap() >= data);
    }
}

//! Connections of the user-space transport: which subnets they take, and how they behave.

use super::refuse;
use super::subnets::{named, subflows, subnet_on};
use crate::Error;
use crate::spec::{Cc, Path, Quic, Transport, UDP_HEADERS_BYTES};
use crate::traffic_gen::Settings;
use vmcc_cc::Params;
use vmcc_multipath::MIN_PATHS;
use vmcc_scenario::Scenario;
use vmcc_scenario::model::{Protocol, Traffic, TrafficKind};

pub(super) fn is_quic(scenario: &Scenario, traffic: &Traffic) -> bool {
    traffic.protocol(&scenario.host) == Protocol::Quic && traffic.kind.has_connections()
}

/// Refuses traffic that the QUIC programs cannot send.
pub(super) fn check(traffic: &Traffic, key: &impl Fn(&str) -> String) -> Result<(), Error> {
    let TrafficKind::Bulk(_) = &traffic.kind else {
        let problem = format!("traffic of kind {:?} over QUIC; \"bulk\" is possible", traffic.kind.name());
        return refuse(key("kind"), problem);
    };
    if traffic.kind.writes_at().is_some() {
        return refuse(key("write_rate"), "its programs write as much as the connection takes");
    }
    if traffic.common.class > 0 {
        return refuse(key("class"), "its programs set no DSCP");
    }
    Ok(())
}

/// Its subnets are those of the paths that it names, or all, but no more than it has subflows.
pub(super) fn transport(
    scenario: &Scenario,
    traffic: &Traffic,
    cc: &Cc,
    key: &impl Fn(&str) -> String,
    (subnets, paths): (&[usize], &[Path]),
) -> Result<Transport, Error> {
    let Cc::Own(params) = cc else { return refuse(key("cc"), "a kernel's own algorithm, for QUIC") };
    let named = named(traffic, paths, &key("path"))?;
    let mut own: Vec<usize> = match named.as_slice() {
        [] => (0..subnets.len()).collect(),
        some => some.iter().map(|path| subnet_on(*path, subnets, &key("path"))).collect::<Result<_, _>>()?,
    };
    if let Some(count) = subflows(scenario, traffic).map(|count| count as usize) {
        if count > own.len() {
            return refuse(key("subflows"), format!("{count} subflows over {} paths", own.len()));
        }
        own.truncate(count);
    }
    let settings = settings(scenario, traffic, params);
    Ok(Transport::Quic(Box::new(Quic { subnets: own, settings })))
}

fn settings(scenario: &Scenario, traffic: &Traffic, params: &Params) -> Settings {
    let (host, common) = (&scenario.host, &traffic.common);
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Settings {
        params: *params,
        coupling: common.coupling.or(host.coupling).unwrap_or_default(),
        min_paths: host.min_paths.unwrap_or(MIN_PATHS),
        scheduler: common.scheduler.unwrap_or(host.scheduler),
        ack_path: common.ack_path.unwrap_or(host.ack_path),
        ecn: common.ecn.or(host.ecn).unwrap_or(params.algorithm().info().needs_ecn),
        max_ack_delay: host.delayed_ack.to_duration(),
        receive_window: host.receive_buffer.get(),
        send_window: host.send_buffer.get(),
        initial_window_pkt: number(host.initial_window.get()),
        datagram: u16::try_from(host.mtu.get().saturating_sub(UDP_HEADERS_BYTES)).unwrap_or(u16::MAX),
    }
}

#[cfg(test)]
mod tests {
    use crate::convert::tests::of_text;
    use crate::spec::{Cc, LabSpec, Quic};
    use crate::{Error, ErrorKind};
    use vmcc_scenario::model::{AckPath, Coupling, Scheduler};
    use vmcc_units::Nanos;

    fn spec(more: &str) -> Result<LabSpec, Error> {
        let paths = "[topology]\nkind='parallel-paths'\npaths=[{name='a'},{name='b'},{name='c'}]\nrate='20mbit'\ndelay='20us'\n";
        of_text(&format!("{paths}[[traffic]]\nkind='bulk'\nprotocol='quic'\n{more}"))
    }

    fn quic(more: &str) -> Quic {
        spec(more).unwrap().flows[0].quic().expect(more).clone()
    }

    #[test]
    fn paths_are_the_named_ones_up_to_the_subflow_count() {
        for (more, subnets) in [
            ("", &[0, 1, 2][..]),
            ("subflows=2", &[0, 1]),
            ("path=['c','a']", &[2, 0]),
            ("path=['c','a']\nsubflows=1", &[2]),
            ("path='b'", &[1]),
        ] {
            assert_eq!(quic(more).subnets, subnets, "{more}");
        }
    }

    #[test]
    fn own_programs_choose_their_settings() {
        let settings = quic("scheduler='blest'\nack_path='fixed'\ncc='dctcp'").settings;
        assert_eq!((settings.scheduler, settings.ack_path), (Scheduler::Blest, AckPath::Fixed));
        let name = settings.params.algorithm().name();
        assert_eq!((name, settings.ecn, settings.datagram), ("dctcp", true, 1472));
        assert!(!quic("").settings.ecn);
        assert_eq!(
            ["", "coupling='separate'", "coupling='combined'"].map(|own| quic(own).settings.coupling),
            [Coupling::Separate, Coupling::Separate, Coupling::Combined]
        );
        let flow = &spec("cc='lia'").unwrap().flows[0];
        assert!(matches!(flow.cc, Cc::Own(_)), "the kernel loads none");
        assert_eq!(flow.cc.name(), "lia");
    }

    #[test]
    fn unsupported_settings_of_quic_programs_are_named() {
        for (more, key) in
            [("write_rate='1mbit'", "traffic.bulk.write_rate"), ("subflows=4", "traffic.bulk.subflows")]
        {
            let error = spec(more).expect_err(more);
            assert_eq!(error.kind(), ErrorKind::BadInput);
            assert!(error.to_string().starts_with(key), "{error}");
        }
        let error =
            spec("[[event]]\nat='1s'\nkind='set-loss'\nlink='a'\nloss=0.1").expect_err("a change of loss");
        assert!(error.to_string().starts_with("event.set-loss"), "{error}");
    }

    #[test]
    fn path_cuts_are_ordered_by_time() {
        let event = |at: &str, kind: &str| format!("[[event]]\nat='{at}'\nkind='{kind}'\nlink='b'\n");
        let cuts = spec(&(event("3s", "link-up") + &event("2s", "link-down"))).unwrap().cuts;
        let cuts: Vec<_> = cuts.iter().map(|cut| (cut.at, cut.path, cut.up)).collect();
        assert_eq!(cuts, [(Nanos::from_secs(2), 1, false), (Nanos::from_secs(3), 1, true)]);
    }
}

use super::*;
use crate::spec::{Layout, Role, Sharing, Transport};
use vmcc_scenario::model::Marking;
use vmcc_scenario::{Document, Overrides};

fn convert(name: &str, set: &[&str]) -> Result<Vec<LabSpec>, Error> {
    let set = set.iter().map(|&text| text.to_owned()).collect();
    let overrides = Overrides { set, ..Overrides::default() };
    let plan = Document::open(name).unwrap().plan(&overrides).unwrap();
    plan.cases.iter().map(LabSpec::try_from).collect()
}

fn refused(set: &[&str], key: &str) {
    refused_in("demo", set, key);
}

fn refused_in(name: &str, set: &[&str], key: &str) {
    let error = convert(name, set).expect_err(key);
    assert_eq!(error.kind(), crate::ErrorKind::BadInput);
    assert!(error.to_string().starts_with(key), "{error}");
}

#[test]
fn the_demo_converts() {
    let specs = convert("demo", &[]).unwrap();
    assert_eq!(specs.len(), 4);
    for spec in &specs {
        assert_eq!(spec.paths.len(), 2);
        assert!(spec.paths.iter().all(|path| path.delay.is_zero()), "runs without netem");
        assert_eq!(spec.flows[1].role, Role::Competing);
    }
    assert!(matches!(specs[0].flows[0].transport, Transport::Tcp { .. }));
    assert_eq!(specs[3].flows[0].cc.kernel_name(), "mp_vmcc");
    assert_ne!(specs[3].paths[0].shape.as_ref().unwrap().marking, Marking::None);
}

#[test]
fn delays_beyond_the_labs_own_are_kept() {
    let specs = convert("demo", &["topology.delay=10ms"]).unwrap();
    assert_eq!(specs[0].paths[0].delay, Nanos::from_millis(10));
}

#[test]
fn the_runs_end_stops_what_goes_on() {
    let specs = convert("demo", &["duration=8s"]).unwrap();
    assert_eq!((specs[0].flows[1].role, specs[0].flows[1].stop), (Role::Competing, Nanos::from_secs(8)));
}

#[test]
fn what_the_kernel_engine_cannot_do_is_named() {
    refused(&["topology.loss.probability=0.01", "topology.loss.burst=3pkt"], "topology.loss.burst");
    refused(&["topology.jitter=1ms"], "topology.jitter");
    refused(&["host.scheduler=blest"], "host.scheduler");
    refused(&["host.min_rto=10ms"], "host.min_rto");
    refused(&["traffic.measured.stop=2500ms"], "traffic[measured].stop");
}

#[test]
fn every_marking_scenario_converts() {
    let of_marking = |name: &&str| name.starts_with("marking/");
    let names: Vec<&str> = vmcc_scenario::builtin::all().iter().map(|b| b.name).filter(of_marking).collect();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        let specs = convert(name, &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(specs.iter().all(LabSpec::serves_ports), "{name}");
    }
}

#[test]
fn a_virtual_host_has_a_lane_per_vnic_and_moves_them() {
    let name = "marking/virtual-host";
    let specs =
        convert(name, &["variant=moving", "topology.vnics=3", "topology.nic_of_vnic=[0,1,1]"]).unwrap();
    let spec = &specs[0];
    assert_eq!((spec.lanes(), spec.paths.len()), (3, 2));
    assert_eq!(spec.paths_of(&spec.flows[0]), [0, 1, 1]);
    let [remap] = spec.remaps[..] else { panic!("{:?}", spec.remaps) };
    assert_eq!((remap.at, remap.vm, remap.vnic, remap.nic), (Nanos::from_secs(4), 0, 1, 0));
    let Layout::VirtualHost(host) = &spec.layout else { panic!("{:?}", spec.layout) };
    let Sharing::Hard(shape) = &host.sharing else { panic!("{:?}", host.sharing) };
    assert_eq!(shape.rate, "26666666bit".parse().unwrap(), "a third of 80 Mbit/s");
    assert!(spec.paths.iter().all(|path| path.shape.is_none()), "two VMs of 80 cannot fill 200 Mbit/s");
}

#[test]
fn vms_that_borrow_have_guarantees_by_weight() {
    let set = ["variant=lending", "topology.weights=[3,1]", "path_rate=100mbit"];
    let specs = convert("marking/virtual-host", &set).unwrap();
    let Layout::VirtualHost(host) = &specs[0].layout else { panic!("{:?}", specs[0].layout) };
    let Sharing::Borrowing(guarantees) = &host.sharing else { panic!("{:?}", host.sharing) };
    // 160 Mbit/s in all, 3:1, over two NICs.
    let rates: Vec<u64> = guarantees.iter().map(|guarantee| guarantee.rate.get()).collect();
    assert_eq!(rates, [60_000_000, 20_000_000]);
}

#[test]
fn what_a_virtual_host_cannot_do_on_the_kernel_is_named() {
    let refused = |set: &[&str], key| refused_in("marking/virtual-host", set, key);
    let bursts = ["variant=capped", "topology.path_loss.probability=0.01", "topology.path_loss.burst=3pkt"];
    refused(&bursts, "topology.path_loss.burst");
    refused(&["variant=capped", "topology.vnics=9", "topology.nics=9"], "topology.paths");
    refused(&["variant=capped", "topology.vms=40"], "topology.vms");
    refused(
        &["variant=lending", "topology.path_marking.rule=threshold", "topology.path_marking.at=30kB"],
        "topology.path_marking",
    );
    refused(&["variant=capped", "traffic.first.subflows=1"], "traffic.first.subflows");
    refused_in("examples/virtual-host", &["share=hard"], "event.deschedule");
}

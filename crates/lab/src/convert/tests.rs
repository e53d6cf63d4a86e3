use super::*;
use crate::spec::{Flow, Job, Layout, OfPaths, Role, Sharing, Transport};
use vmcc_scenario::ResolvedCase;
use vmcc_scenario::model::Marking;
use vmcc_scenario::{Document, Overrides};

fn convert(name: &str, set: &[&str]) -> Result<Vec<LabSpec>, Error> {
    let set = set.iter().map(|&text| text.to_owned()).collect();
    let overrides = Overrides { set, ..Overrides::default() };
    let plan = Document::open(name).unwrap().plan(&overrides).unwrap();
    plan.cases.iter().map(LabSpec::try_from).collect()
}

/// The one case of a scenario.
pub(crate) fn of_text(text: &str) -> Result<LabSpec, Error> {
    LabSpec::try_from(&case(text))
}

/// The first case of a scenario.
pub(crate) fn case(text: &str) -> ResolvedCase {
    let head = "title = 't'\nduration = '4s'\nwarmup = '1s'\n[host]\ncc = 'reno'\n";
    let plan = Document::parse("t", &format!("{head}{text}")).and_then(|d| d.plan(&Overrides::default()));
    plan.unwrap().cases.swap_remove(0)
}

fn subnets(spec: &LabSpec) -> usize {
    spec.paths_of(&spec.flows[0]).len()
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
fn demo_scenario_converts() {
    let specs = convert("demo", &[]).unwrap();
    assert_eq!(specs.len(), 4);
    for spec in &specs {
        assert_eq!(spec.paths.len(), 2);
        assert!(spec.paths.iter().all(|path| path.out.wire.delay.is_zero()), "runs without netem");
        assert_eq!(spec.flows[1].role, Role::Competing);
    }
    assert!(matches!(specs[0].flows[0].transport, Transport::Tcp { .. }));
    assert_eq!(specs[3].flows[0].cc.kernel_name(), "mp_vmcc");
    assert_ne!(specs[3].paths[0].out.shape.as_ref().unwrap().marking, Marking::None);
}

#[test]
fn configured_delay_is_kept() {
    let specs = convert("demo", &["topology.delay=10ms"]).unwrap();
    assert_eq!(specs[0].paths[0].out.wire.delay, Nanos::from_millis(10));
}

#[test]
fn run_end_stops_open_entries() {
    let specs = convert("demo", &["duration=8s"]).unwrap();
    assert_eq!((specs[0].flows[1].role, specs[0].flows[1].stop), (Role::Competing, Nanos::from_secs(8)));
}

#[test]
fn unsupported_settings_of_the_kernel_engine_are_named() {
    refused(&["topology.loss.probability=0.01", "topology.loss.burst=3pkt"], "topology.loss.burst");
    refused(&["topology.jitter=1ms"], "topology.jitter");
    refused(&["host.scheduler=blest"], "host.scheduler");
    refused(&["host.ack_path=best"], "host.ack_path");
    refused(&["traffic.measured.scheduler=blest"], "traffic.measured.scheduler");
    refused(&["traffic.measured.ack_path=fixed"], "traffic.measured.ack_path");
    refused(&["host.packet_memory=2304B"], "host.packet_memory");
    refused(&["host.pool_routes=true"], "host.pool_routes");
    refused(&["traffic.measured.read_rate=1mbit"], "traffic.measured.read_rate");
    let long = ["traffic.measured.write_rate=1mbit", "traffic.measured.write_chunk=2MiB"];
    refused(&long, "traffic.measured.write_chunk");
    refused(&["traffic.measured.stop=2500ms"], "traffic[measured].stop");
}

#[test]
fn each_direction_is_converted_separately() {
    let spec = of_text(
        "[topology]\nkind='parallel-paths'\npaths=1\nrate='100mbit'\ndelay='20us'\njitter='3ms'\nreorder=true\n\
         reverse={rate='5mbit',delay='8ms',jitter='0s',loss=0.01,buffer='10pkt'}\n[[traffic]]\nkind='bulk'\n",
    );
    let spec = spec.unwrap();
    let (out, back) = (&spec.paths[0].out, &spec.paths[0].back);
    let rate = |direction: &crate::spec::Direction| direction.shape.as_ref().unwrap().rate.get();
    assert_eq!((rate(out), rate(back)), (100_000_000, 5_000_000));
    assert_eq!(back.shape.as_ref().unwrap().buffer, "10pkt".parse().unwrap());
    let wire = |delay, jitter, loss| crate::spec::Wire {
        delay: Nanos::from_millis(delay),
        jitter: Nanos::from_millis(jitter),
        loss,
    };
    assert_eq!((out.wire, back.wire), (wire(0, 3, 0.0), wire(8, 0, 0.01)));
    assert!(spec.is_impaired());
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
fn virtual_host_has_a_subnet_per_vnic_and_moves_them() {
    let name = "marking/virtual-host";
    let specs =
        convert(name, &["variant=moving", "topology.vnics=3", "topology.nic_of_vnic=[0,1,1]"]).unwrap();
    let spec = &specs[0];
    assert_eq!((subnets(spec), spec.paths.len()), (3, 2));
    assert_eq!(spec.paths_of(&spec.flows[0]), [0, 1, 1]);
    let [remap] = spec.remaps[..] else { panic!("{:?}", spec.remaps) };
    assert_eq!((remap.at, remap.vm, remap.vnic, remap.nic), (Nanos::from_secs(4), 0, 1, 0));
    let Layout::VirtualHost(host) = &spec.layout else { panic!("{:?}", spec.layout) };
    let Sharing::Hard(shape) = &host.sharing else { panic!("{:?}", host.sharing) };
    assert_eq!(shape.rate, "26666666bit".parse().unwrap(), "a third of 80 Mbit/s");
    assert!(spec.paths.iter().all(|path| path.out.shape.is_none()), "two VMs of 80 cannot fill 200 Mbit/s");
}

#[test]
fn borrowing_vms_get_guarantees_by_weight() {
    let set = ["variant=lending", "topology.weights=[3,1]", "path_rate=100mbit"];
    let specs = convert("marking/virtual-host", &set).unwrap();
    let Layout::VirtualHost(host) = &specs[0].layout else { panic!("{:?}", specs[0].layout) };
    let Sharing::Borrowing(guarantees) = &host.sharing else { panic!("{:?}", host.sharing) };
    // 160 Mbit/s in all, 3:1, over two NICs.
    let rates: Vec<u64> = guarantees.iter().map(|guarantee| guarantee.rate.get()).collect();
    assert_eq!(rates, [60_000_000, 20_000_000]);
}

#[test]
fn unsupported_settings_of_virtual_hosts_are_named() {
    let refused = |set: &[&str], key| refused_in("marking/virtual-host", set, key);
    let bursts = ["variant=capped", "topology.path_loss.probability=0.01", "topology.path_loss.burst=3pkt"];
    refused(&bursts, "topology.path_loss.burst");
    refused(&["variant=capped", "topology.vnics=9", "topology.nics=9"], "topology.nics");
    refused(&["variant=capped", "topology.vms=40"], "topology.vms");
    refused(
        &["variant=lending", "topology.path_marking.rule=threshold", "topology.path_marking.at=30kB"],
        "topology.path_marking",
    );
    refused(&["variant=capped", "traffic.first.subflows=1"], "traffic.first.subflows");
    refused_in("examples/virtual-host", &["share=hard"], "event.deschedule");
}

/// But one whose vNIC moves, as in `examples/virtual-host`.
#[test]
fn vm_behind_a_virtual_switch_can_be_a_real_vm() {
    let specs = convert("examples/virtual-machine", &[]).unwrap();
    assert!(specs.iter().all(|spec| spec.machines.hosts.len() == 1 && !spec.userspace_links_impair()));
    let asked = convert("examples/virtual-machine-objects", &[]).unwrap();
    assert!(
        asked
            .iter()
            .all(|spec| spec.machines.hosts == BTreeSet::from([0]) && spec.machines.sleeps.is_empty())
    );
    assert!(asked.iter().all(|spec| (spec.flows[0].client(), spec.flows[0].server()) == (1, 0)));
}

const FETCHED: &str = "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n\
                       [[traffic]]\nkind='poisson'\nper_second=5.0\nsizes='100kB'\n";

fn linger(text: &str) -> Nanos {
    let spec = of_text(text).unwrap();
    let crate::Job::Objects { linger, .. } = spec.flows[0].job else { panic!("{:?}", spec.flows[0].job) };
    linger
}

/// The last counts of a connection's sockets are read by the guest, and a descheduled guest does not read them.
#[test]
fn served_files_stay_until_the_vm_has_read_them() {
    let machine = |text: &str| text.replace("[topology]", "machines='client'\n[topology]");
    let off = "[[event]]\nkind='deschedule'\nat='0s'\nhost='client'\non='200ms'\noff='300ms'\n";
    assert_eq!(linger(FETCHED), Nanos::from_millis(50));
    assert_eq!(linger(&machine(FETCHED)), Nanos::from_millis(200));
    assert_eq!(linger(&format!("{FETCHED}{off}")), Nanos::from_millis(500));
}

#[test]
fn unsupported_vm_settings_are_refused_by_key() {
    let refused = |text: &str, key: &str, problem: &str| {
        let error = of_text(text).expect_err(problem).to_string();
        assert!(error.starts_with(key) && error.contains(problem), "{error}");
    };
    let machines = |names: &str| FETCHED.replace("[topology]", &format!("machines={names}\n[topology]"));
    refused(&machines("'server'"), "host.machines", "server: it is sent to, or fetches");
    refused(&machines("['client','server']"), "host.machines", "another host");
    // 500 objects of a megabyte each.
    refused(
        &machines("'client'").replace("100kB", "1MB"),
        "host.machines",
        "client: it keeps its files and objects in memory",
    );
    let off = "[[event]]\nkind='deschedule'\nat='0s'\nhost='server'\non='200ms'\noff='300ms'\n";
    refused(&format!("{FETCHED}{off}"), "event.deschedule", "server: it is sent to, or fetches");
}

/// A host that is off in one case is a machine in all, one that is named only in those that name it.
#[test]
fn vm_setting_applies_to_its_own_case_only() {
    let named = case(&FETCHED.replace("[topology]", "machines='client'\n[topology]"));
    let hosts = |case: &ResolvedCase, off: &[&str]| {
        let off = off.iter().map(|&name| name.to_owned()).collect();
        LabSpec::of(case, &off, 0).unwrap().machines.hosts
    };
    assert_eq!(hosts(&named, &[]), BTreeSet::from([0]));
    assert_eq!(hosts(&case(FETCHED), &[]), BTreeSet::new());
    assert_eq!(hosts(&case(FETCHED), &["client"]), BTreeSet::from([0]));
}

const LEAVES: &str = "[topology]\nkind='leaf-spine'\nleaves=2\nspines=2\nhosts_per_leaf=2\nrate='20mbit'\n\
                      delay='20us'\n";

/// Flows spread by hash have one number of routes, and so of subflows, per pair of hosts.
#[test]
fn entries_between_the_same_hosts_have_the_same_number_of_subflows() {
    let spec = |first: &str, second: &str| {
        let entry = |name: &str, more: &str| {
            format!("[[traffic]]\nkind='bulk'\nname='{name}'\nfrom='h0'\nto='h2'\n{more}\n")
        };
        of_text(&format!("{LEAVES}{}{}", entry("first", first), entry("second", second)))
    };
    for (first, second) in [("", "subflows=4"), ("subflows=2", "subflows=4")] {
        let text = spec(first, second).expect_err(first).to_string();
        assert!(text.starts_with("traffic.first.subflows: "), "{text}");
        assert!(text.contains("another entry") && text.contains("the same number"), "{text}");
    }
    assert_eq!(subnets(&spec("subflows=4", "subflows=4").unwrap()), 4);
    assert_eq!(subnets(&spec("protocol='tcp'", "subflows=4").unwrap()), 4, "TCP takes the first way");
}

/// A message that names a key which no scenario has helps nobody.
#[test]
fn refusals_name_existing_keys() {
    let traffic = "[[traffic]]\nkind='bulk'\nname='x'\n";
    let link = |to: &str| {
        format!(
            "{{from='a',to='{to}',rate='20mbit',delay='20us'}},{{from='{to}',to='b',rate='20mbit',delay='20us'}}"
        )
    };
    let links: Vec<String> = (0..9).map(|i| link(&format!("s{i}"))).collect();
    let routes: Vec<String> = (0..9).map(|i| format!("{{via=['a','s{i}','b']}}")).collect();
    let graph = format!(
        "[topology]\nkind='graph'\nhosts=['a','b']\nrouting='explicit'\nlinks=[{}]\nroutes=[{}]\n{traffic}",
        links.join(","),
        routes.join(",")
    );
    let pods = format!("[topology]\nkind='two-pod'\nnics=9\nrate='20mbit'\ndelay='20us'\n{traffic}");
    let leaves = LEAVES.replace("20mbit", "20gbit");
    for (text, key) in [
        (graph, "topology.routes: "),
        (pods, "topology.nics: "),
        (format!("{leaves}{traffic}protocol='tcp'\n"), "topology: "),
    ] {
        let text = of_text(&text).expect_err(key).to_string();
        assert!(text.starts_with(key) && text.contains("--engine sim"), "{text}");
    }
}

/// Of `examples/graph`, two routes have their narrowest link in common.
#[test]
fn paths_through_one_queue_are_both_sampled_there() {
    let specs = convert("examples/graph", &[]).unwrap();
    let Layout::Routed(routed) = &specs[0].layout else { panic!("{:?}", specs[0].layout) };
    let ports = |path| OfPaths::ports_of(path, routed.links.iter().map(|link| &link.paths));
    let names =
        |path| ports(path).into_iter().map(|port| routed.links[port].name.as_str()).collect::<Vec<_>>();
    assert_eq!(
        specs[0].paths.iter().map(|path| path.name.as_str()).collect::<Vec<_>>(),
        ["upper", "lower", "other"]
    );
    assert_eq!([names(0)[0], names(1)[0], names(2)[0]], ["s1-s2", "alice-s3", "s1-s2"]);
    assert_eq!(routed.nodes[routed.links[ports(2)[0]].from], "s1", "in the direction of the data");
    for (path, links) in [(0, ["alice-s1", "s1-s2", "s2-bob"]), (2, ["carol-s1", "s1-s2", "s2-bob"])] {
        assert!(links.iter().all(|link| names(path).contains(link)), "{:?}", names(path));
        assert_eq!(ports(path).len(), 6, "both directions");
    }
}

#[test]
fn each_round_is_a_flow_that_waits_for_the_previous_one() {
    let network =
        "[topology]\nkind='leaf-spine'\nleaves=3\nspines=2\nhosts_per_leaf=1\nrate='40mbit'\ndelay='20us'\n";
    let traffic = "[[traffic]]\nkind='sized'\nfrom='*'\nto='*'\npairing='all'\nsize='10kB'\nrounds=2\n";
    let spec = of_text(&format!("{network}{traffic}")).unwrap();
    let of_round = |round| spec.flows.iter().filter(|flow| flow.round == round).count();
    assert_eq!((of_round(0), of_round(1), of_round(2)), (6, 6, 0));
}

#[test]
fn file_entries_convert_to_get_or_put() {
    let network = "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n";
    let of = |traffic: &str| of_text(&format!("{network}[[traffic]]\nkind='sized'\nsize='10kB'\n{traffic}"));
    let fetched = |traffic: &str| of(traffic).unwrap().flows[0].job.is_fetched();
    assert!(fetched("program='nfs'\n") && !fetched("program='nginx'\n") && !fetched(""));
    let error = of("program='nfs'\nwrite_rate='1mbit'\n").unwrap_err().to_string();
    assert!(error.starts_with("traffic.sized.write_rate"), "{error}");
}

#[test]
fn persistent_objects_use_open_connections() {
    let of = |traffic: &str| {
        let paths = "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n";
        of_text(&format!("{paths}[[traffic]]\nkind='poisson'\nsizes='10kB'\nper_second=9.0\n{traffic}"))
    };
    let flow = |traffic: &str| of(traffic).unwrap().flows.remove(0);
    assert!(flow("kept_connections=40\n").job.keeps_connections());
    assert_eq!(flow("kept_connections=40\n").connections, 40);
    assert!(!flow("").job.keeps_connections());
    assert_eq!(flow("").connections, 1);
    let error = |traffic: &str| of(traffic).and_then(|spec| spec.check()).unwrap_err().to_string();
    assert!(
        error("kept_connections=101\n").contains("kept_connections"),
        "{}",
        error("kept_connections=101\n")
    );
    assert!(of("kept_connections=100\n").unwrap().check().is_ok());
}

#[test]
fn incast_rounds_start_at_their_times() {
    let network = "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n";
    let of = |interval: &str| {
        let text = format!(
            "{network}[[traffic]]\nkind='incast'\nsize='10kB'\nconnections=3\nstart='1s'\n{interval}"
        );
        let flows = of_text(&text).unwrap().flows;
        assert!(
            flows
                .iter()
                .all(|flow| flow.connections == 3 && flow.round == 0 && flow.stop == Nanos::from_secs(4))
        );
        flows.iter().map(|flow| flow.start).collect::<Vec<_>>()
    };
    assert_eq!(of(""), [Nanos::from_secs(1)]);
    assert_eq!(of("interval='1s'\n"), [1, 2, 3].map(Nanos::from_secs));
}

#[test]
fn requests_are_answered_by_the_receiver_of_the_entry() {
    let network = "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n";
    let of = |traffic: &str| {
        let asks = "[[traffic]]\nkind='request-response'\nrequest='60B'\nresponse='1kB'\n";
        of_text(&format!("{network}{asks}{traffic}"))
    };
    let redis = "program='redis'\nrequests=1000\nconnections=10\n";
    let spec = of(&format!("{redis}reads=0.75\n")).unwrap();
    let flow = &spec.flows[0];
    // Data flow from who answers, which is where the entry's clients send to.
    assert_eq!((spec.hosts[flow.from].as_str(), spec.hosts[flow.to].as_str()), ("server", "client"));
    assert!(flow.job.is_fetched() && flow.job.keeps_connections());
    let Job::Requests(requests) = &flow.job else { panic!("{:?}", flow.job) };
    assert_eq!((requests.count, requests.readers, flow.connections), (1_000, 8, 10));
    let error = |traffic: &str| of(traffic).and_then(|spec| spec.check()).unwrap_err().to_string();
    for (traffic, key) in [
        ("", "traffic.request-response.program"),
        ("program='redis'\n", "traffic[request-response].requests"),
        ("program='nginx'\nrequests=10\n", "traffic[request-response].requests"),
        ("program='nginx'\nconnections=2\nreads=0.5\n", "traffic[request-response].reads"),
        ("program='nginx'\nthink='1ms'\n", "traffic.request-response.think"),
        ("program='postgresql'\nstop='500ms'\n", "traffic[request-response].stop"),
    ] {
        assert!(error(traffic).starts_with(key), "{traffic}: {}", error(traffic));
    }
}

#[test]
fn files_of_other_programs_use_one_connection_each() {
    let network = "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n";
    let of = |traffic: &str| of_text(&format!("{network}[[traffic]]\nkind='sized'\nsize='10kB'\n{traffic}"));
    for program in ["rsync", "rsync-ssh", "ftp"] {
        let spec = of(&format!("program='{program}'\nwrite_rate='1mbit'\n")).unwrap();
        assert!(spec.check().is_ok() && spec.flows[0].job.is_file() && !spec.flows[0].job.is_fetched());
    }
    let error = of("program='ftp'\nconnections=2\n").and_then(|spec| spec.check()).unwrap_err().to_string();
    assert!(error.starts_with("traffic[sized].connections"), "{error}");
}

#[test]
fn congestion_generator_has_a_flow_per_path() {
    let network =
        "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n[[traffic]]\nkind='bulk'\n";
    let of = |more: &str| {
        let noise = "[[traffic]]\nkind='congestion-generator'\nmax_rate='10mbit'\nmin_duration='1s'\nmax_duration='2s'\n";
        of_text(&format!("{network}{noise}{more}"))
    };
    let subnets =
        |more: &str| of(more).unwrap().flows[1..].iter().map(Flow::first_subnet).collect::<Vec<_>>();
    assert_eq!(subnets(""), [0, 1]);
    assert_eq!(subnets("path='b'\n"), [1]);
    assert!(of("").unwrap().flows[1].job.is_datagrams());
    let seeds: Vec<u64> = [1, 2]
        .map(|seed| match &of("").unwrap().with_seed(seed).flows[1].job {
            Job::Generated(generating) => generating.seed,
            other => panic!("{other:?}"),
        })
        .into();
    assert_eq!(seeds, [1, 2]);
}

#[test]
fn unloaded_time_uses_the_paths_of_the_flow() {
    let ms = |text: &str, bytes: u64| {
        let spec = of_text(&format!(
            "[topology]\nkind='parallel-paths'\nrate='100mbit'\ndelay='1ms'\n\
             paths=[{{name='a'}},{{name='b',rate='10mbit',delay='20ms'}}]\n[[traffic]]\nkind='sized'\nsize='1MB'\n{text}"
        ))
        .unwrap();
        spec.flows[0].unloaded.expect("its paths are known").transfer_us(bytes) / 1e3
    };
    // Three times across for a handshake and one packet, and its serialization.
    assert!(
        (60.0..61.0).contains(&ms("protocol='tcp'\npath='b'\n", 100)),
        "{}",
        ms("protocol='tcp'\npath='b'\n", 100)
    );
    assert!((3.0..3.1).contains(&ms("protocol='tcp'\npath='a'\n", 100)));
    // A long one uses both: 110 Mbit/s, of which headers take 5 %.
    let long = ms("protocol='mptcp'\n", 110_000_000);
    assert!((8_300.0..8_500.0).contains(&long), "{long}");
}

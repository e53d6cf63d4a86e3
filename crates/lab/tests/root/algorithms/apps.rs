//! Unchanged applications over both paths: files by rsync and FTP, requests to Redis, nginx and PostgreSQL, random congestion.

use super::workloads::{of, programs};
use crate::common::{alone, registry, run_with, two_paths};
use std::os::unix::fs::PermissionsExt;
use vmcc_lab::{Cc, ErrorKind, Generating, Job, LabSpec, Programs, Requests, Role, Transport};
use vmcc_results::RunOutput;
use vmcc_scenario::model::{FileProgram, RequestProgram};
use vmcc_units::{Bytes, Nanos};

/// Two paths of 100 Mbit/s.
fn app(job: Job, connections: u32, seconds: u64) -> LabSpec {
    let mut spec = two_paths(registry("lia"), seconds);
    spec.warmup = Nanos::ZERO;
    (spec.flows[0].job, spec.flows[0].connections) = (job, connections);
    spec
}

fn file(program: FileProgram, size: &str) -> Job {
    Job::Transfer { program, size: size.parse().unwrap(), rate: None }
}

fn requests(program: RequestProgram, size: u64, count: u64, reads: f64, readers: u32) -> Job {
    Job::Requests(Requests { program, size: Bytes::new(size), count, reads, readers })
}

/// Each path carried more than a fifth.
fn on_both_paths(output: &RunOutput) {
    let carried: Vec<_> = output.metrics.paths.iter().filter_map(|path| path.goodput_bps).collect();
    assert!(carried.iter().all(|path| *path > 0.2 * carried.iter().sum::<f64>()), "{carried:?}");
}

fn files_arrive(program: FileProgram, connections: u32) {
    let _alone = alone();
    let output = run_with(&app(file(program, "5MB"), connections, 8), programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (f64::from(connections), 0.0));
    assert!(output.flows.iter().all(|flow| flow.subflows == 2), "{:?}", output.flows);
    // Both paths at their full rate need 0.2 s for each file; programs start and log in besides.
    assert!(of(&output, "fct_us.min") > 0.2e6, "{}", of(&output, "fct_us.min"));
    on_both_paths(&output);
}

#[test]
fn root_rsync_sends_files_to_its_daemon_over_both_paths() {
    files_arrive(FileProgram::Rsync, 2);
}

#[test]
#[ignore = "needs openssh-server: scripts/setup.sh apps"]
fn root_rsync_sends_files_over_ssh_over_both_paths() {
    files_arrive(FileProgram::RsyncSsh, 2);
}

#[test]
fn root_ftp_file_arrives_on_its_data_connection() {
    // pure-ftpd closes the port of a data connection when that is accepted, before another subflow can ask for it.
    let _alone = alone();
    let output = run_with(&app(file(FileProgram::Ftp, "5MB"), 1, 12), programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (1.0, 0.0));
    assert_eq!(output.flows[0].delivered_bytes, 5_000_000);
}

/// A path that fails during a transfer: MPTCP completes it on the other, TCP does not.
#[test]
fn root_rsync_file_survives_a_failed_path() {
    let _alone = alone();
    let mut spec = app(file(FileProgram::Rsync, "25MB"), 1, 6);
    spec.cuts = vec![vmcc_lab::Cut { at: Nanos::from_millis(500), path: 0, up: false }];
    let output = run_with(&spec, programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (1.0, 0.0));
    spec.flows[0].transport = Transport::Tcp { subnet: 0 };
    let output = run_with(&spec, programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (0.0, 1.0));
}

#[test]
fn root_redis_answers_reads_and_writes_on_open_connections() {
    let _alone = alone();
    let spec = app(requests(RequestProgram::Redis, 200_000, 240, 0.625, 5), 8, 6);
    let output = run_with(&spec, programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (240.0, 0.0));
    let (median, tail, rate) =
        (of(&output, "fct_us.p50"), of(&output, "fct_us.p99"), of(&output, "requests_per_s"));
    assert!(0.0 < median && median <= tail, "{median} {tail}");
    // Little's law: 8 clients, each of which waits for its answer. Both programs need not end together.
    let clients = rate * of(&output, "fct_us") / 1e6;
    assert!((2.0..9.0).contains(&clients), "{clients}");
    assert!(
        output.warnings.iter().all(|warning| !warning.contains("could not be read")),
        "{:?}",
        output.warnings
    );
    // Linux gives a subflow up to 64 KiB at a time: larger values come back over both.
    on_both_paths(&output);
}

/// The flow over TCP by the first path, which fails at a time.
fn on_failing_path(mut spec: LabSpec, at: Nanos) -> LabSpec {
    spec.flows[0].transport = Transport::Tcp { subnet: 0 };
    spec.cuts = vec![vmcc_lab::Cut { at, path: 0, up: false }];
    spec
}

/// Requests that redis-benchmark has not done in time are unfinished; the run has figures all the same.
#[test]
fn root_requests_stalled_by_a_failed_path_are_unfinished() {
    let _alone = alone();
    let spec = on_failing_path(
        app(requests(RequestProgram::Redis, 32_000, 100_000, 1.0, 4), 4, 3),
        Nanos::from_millis(500),
    );
    let output = run_with(&spec, programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (0.0, 100_000.0));
    assert!(output.metrics.get("fct_us.p50").is_none(), "{:?}", output.metrics);
    assert!(
        output.warnings.iter().any(|warning| warning.contains("could not be read")),
        "{:?}",
        output.warnings
    );
}

#[test]
fn root_nginx_answers_wrk_over_both_paths() {
    let _alone = alone();
    let output =
        run_with(&app(requests(RequestProgram::Nginx, 100_000, 0, 1.0, 4), 4, 3), programs()).unwrap();
    let (completed, rate) = (of(&output, "completed"), of(&output, "requests_per_s"));
    // Two paths carry 250 of them in a second.
    assert!(completed > 30.0 && rate < 250.0, "{completed} {rate}");
    assert!(of(&output, "fct_us.p50") <= of(&output, "fct_us.p99"));
    on_both_paths(&output);
}

/// wrk ends without waiting for answers: the last request of each connection is unfinished, as in the simulator.
#[test]
fn root_requests_of_wrk_on_a_failed_path_are_unfinished() {
    let _alone = alone();
    let spec = on_failing_path(
        app(requests(RequestProgram::Nginx, 100_000, 0, 1.0, 4), 4, 3),
        Nanos::from_millis(1_500),
    );
    let output = run_with(&spec, programs()).unwrap();
    assert!(of(&output, "completed") > 10.0, "{:?}", output.metrics);
    assert_eq!(of(&output, "unfinished"), 4.0);
}

#[test]
#[ignore = "needs postgresql: scripts/setup.sh apps"]
fn root_postgresql_answers_pgbench() {
    let _alone = alone();
    let output =
        run_with(&app(requests(RequestProgram::Postgresql, 100, 0, 1.0, 4), 4, 4), programs()).unwrap();
    let (completed, rate) = (of(&output, "completed"), of(&output, "requests_per_s"));
    assert!(completed > 20.0 && rate > 5.0, "{completed} {rate}");
    assert_eq!(of(&output, "unfinished"), 0.0);
}

/// The generator loads both paths, each by draws of its own, and files take what is left.
#[test]
fn root_congestion_generator_draws_load_per_path() {
    let _alone = alone();
    let mut spec = app(file(FileProgram::Rsync, "5MB"), 1, 5);
    let noise = |subnet| {
        let generating = Generating {
            rates: ("20mbit".parse().unwrap(), "60mbit".parse().unwrap()),
            durations: (Nanos::from_millis(100), Nanos::from_secs(1)),
            busy: 0.7,
            packet: Bytes::new(1_500),
            seed: 1,
            independent: true,
        };
        vmcc_lab::Flow {
            label: format!("noise{subnet}"),
            role: Role::Competing,
            cc: Cc::Native("reno".into()),
            transport: Transport::Tcp { subnet },
            job: Job::Generated(generating),
            ..spec.flows[0].clone()
        }
    };
    let noise = [noise(0), noise(1)];
    spec.flows.extend(noise);
    let output = run_with(&spec, programs()).unwrap();
    assert_eq!(of(&output, "completed"), 1.0);
    let loads = [0, 1].map(|subnet| of(&output, &format!("traffic.noise{subnet}.goodput_bps")));
    // 28 Mbit/s on average; what the queue drops is missing.
    assert!(loads.iter().all(|load| (5e6..60e6).contains(load)), "{loads:?}");
    assert_ne!(loads[0], loads[1]);
}

/// A script in place of a program.
fn script(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.to_string_lossy().into_owned()
}

/// A sender that changes a byte is found out, and both files are kept.
#[test]
fn root_corrupted_file_fails_the_run_and_is_kept() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // The client's words have the file's name last but one.
    let text = "#!/bin/bash\ncase \" $* \" in *' --daemon '*) exec rsync \"$@\";; esac\n\
                words=(\"$@\"); from=$((${#words[@]} - 2)); copy=FOLDER/copy\n\
                tr '\\000-\\377' '\\001-\\377\\000' <\"${words[$from]}\" >$copy; words[$from]=$copy; exec rsync \"${words[@]}\"\n";
    let text = text.replace("FOLDER", &folder.path().to_string_lossy());
    let liars = Programs { rsync: script(&folder, "rsync", &text), ..programs() };
    let error = run_with(&app(file(FileProgram::Rsync, "100kB"), 1, 3), liars).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    let text = error.to_string();
    let kept = text.split("both are in ").nth(1).unwrap_or_else(|| panic!("{text}"));
    let kept = kept.split([')', ' ', ']']).next().unwrap().to_owned();
    let read = |name: &str| std::fs::read(std::path::Path::new(&kept).join(name)).unwrap();
    let (arrived, sent) = (read("arrived"), read("sent"));
    std::fs::remove_dir_all(kept).unwrap();
    assert_eq!((arrived.len(), sent.len()), (100_000, 100_000));
    assert!(arrived.iter().zip(&sent).all(|(arrived, sent)| *arrived == sent.wrapping_add(1)));
}

/// A server that cannot have its port: its own message is in the error.
#[test]
fn root_port_in_use_is_named_in_the_error() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // The port that the server takes is held by another, where the run does not look for it.
    let text = "#!/bin/bash\nREAL --port 7777 --save '' >/dev/null &\n\
                until (exec 3<>/dev/tcp/127.0.0.1/7777) 2>/dev/null; do sleep 0.05; done\n\
                REAL --port 7777 --save ''; kill %1; exit 1\n";
    let text = text.replace("REAL", &programs().redis_server);
    let twice = Programs { redis_server: script(&folder, "redis-server", &text), ..programs() };
    let spec = app(requests(RequestProgram::Redis, 100, 100, 1.0, 1), 1, 2);
    let error = run_with(&spec, twice).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    let text = error.to_string();
    assert!(text.contains("ended before it listened") && text.contains("already in use"), "{text}");
}

#[test]
fn root_missing_program_is_named_with_its_package() {
    let _alone = alone();
    let gone = || "not-there".to_owned();
    let all = Programs {
        rsync: gone(),
        ssh: gone(),
        sshd: gone(),
        lftp: gone(),
        pure_ftpd: gone(),
        redis_server: gone(),
        redis_benchmark: gone(),
        wrk: gone(),
        postgresql: gone(),
        ..programs()
    };
    let good = programs();
    for (job, missing, package) in [
        (file(FileProgram::Rsync, "1kB"), all.clone(), "rsync"),
        (
            file(FileProgram::RsyncSsh, "1kB"),
            Programs { rsync: good.rsync.clone(), ..all.clone() },
            "openssh-server",
        ),
        (file(FileProgram::Ftp, "1kB"), all.clone(), "pure-ftpd"),
        (
            file(FileProgram::Ftp, "1kB"),
            Programs { pure_ftpd: good.pure_ftpd.clone(), ..all.clone() },
            "lftp",
        ),
        (requests(RequestProgram::Redis, 1, 1, 1.0, 1), all.clone(), "redis-server"),
        (
            requests(RequestProgram::Redis, 1, 1, 1.0, 1),
            Programs { redis_server: good.redis_server.clone(), ..all.clone() },
            "redis-tools",
        ),
        (requests(RequestProgram::Nginx, 1, 0, 1.0, 1), all.clone(), "wrk"),
        (requests(RequestProgram::Postgresql, 1, 0, 1.0, 1), all.clone(), "postgresql"),
    ] {
        let error = run_with(&app(job, 1, 2), missing).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostCannot);
        let text = error.to_string();
        assert!(
            text.contains("not-there") && text.contains(&format!("apt-get install -y {package}")),
            "{text}"
        );
    }
}

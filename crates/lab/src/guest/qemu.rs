//! The processes of one guest: QEMU, and the server of its root file system.

use super::files::FileServer;
use super::program::{dies_with_parent, find, log_file};
use super::{Accel, GuestError, GuestOptions, Job, KernelImage, Power};
use crate::cpu;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

const QEMU: &str = "qemu-system-x86_64";
/// QEMU 7.2's emulation of cmpxchg16b can leave garbage in EFLAGS, after which the guest's slab allocator crashes;
/// without the feature kernels do otherwise. Five levels of page tables would only cost time, and so do string instructions:
/// where they are said to be fast, kernels copy and clear by them, byte by byte in emulation.
const EMULATED_PROCESSOR: &str = "max,-cx16,-la57,-erms,-fsrm";

/// A running guest. Dropping it kills it; so does the death of the thread that started it.
#[derive(Debug)]
pub(super) struct Qemu {
    qemu: Child,
    power: Power,
    _files: FileServer,
}

impl Qemu {
    pub(super) fn start(
        kernel: &KernelImage,
        job: &Job,
        options: &GuestOptions,
        accel: Accel,
    ) -> Result<Self, GuestError> {
        if !cfg!(target_arch = "x86_64") {
            let problem = format!("this processor ({}); guests run x86-64 kernels", std::env::consts::ARCH);
            return Err(GuestError::Options { problem });
        }
        let qemu = find(QEMU, &[]).ok_or(GuestError::ProgramMissing { program: QEMU })?;
        let files = FileServer::start(job, options.shared_dir.as_deref())?;
        let log = log_file(&job.dir().join("qemu.log"))?;
        let errors = log.try_clone().map_err(GuestError::file(job.dir()))?;
        let qemu = dies_with_parent(&qemu)
            .args(arguments(kernel, job.dir(), &files, options, accel))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            // Ctrl-C on the terminal is for vmcc, which then stops the guest in order.
            .process_group(0)
            .spawn()
            .map_err(|e| GuestError::Helper { program: QEMU.to_owned(), cause: e.to_string() })?;
        let power = options.power.clone().unwrap_or_default();
        power.begins(qemu.id());
        Ok(Self { qemu, power, _files: files })
    }

    /// True if QEMU has ended; never blocks.
    pub(super) fn has_ended(&mut self) -> Result<bool, GuestError> {
        let ended = self.power.has_ended(&mut self.qemu);
        ended.map_err(|e| GuestError::Helper { program: QEMU.to_owned(), cause: e.to_string() })
    }

    /// Time for which a processor of the guest has waited for one of the host's.
    pub(super) fn waited(&self) -> Duration {
        cpu::waited_by(self.qemu.id())
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.power.ends();
        // Neither can fail on a child that has not been waited for, and there is no one to tell.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// True if the machine offers KVM to this user. Only a boot shows whether it works.
pub(super) fn kvm_is_offered() -> bool {
    OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

fn arguments(
    kernel: &KernelImage,
    dir: &Path,
    files: &FileServer,
    options: &GuestOptions,
    accel: Accel,
) -> Vec<OsString> {
    let (accelerator, processor) = match accel {
        Accel::Kvm => ("kvm", "max"),
        Accel::Emulation => ("tcg,thread=multi", EMULATED_PROCESSOR),
        Accel::Counted => ("tcg,thread=single", EMULATED_PROCESSOR),
    };
    // Counted processors take turns of arbitrary length, in which one would wait for the other.
    let processors = if accel == Accel::Counted { 1 } else { options.cpus };
    let memory_mib = options.memory_bytes >> 20;
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35"]);
    add(&["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]);
    add(&["-accel", accelerator, "-cpu", processor, "-smp", &processors.to_string()]);
    if accel == Accel::Counted {
        // An instruction lasts 2^0 ns, and an idle processor goes on to its next timer at once.
        add(&["-icount", "shift=0,sleep=off"]);
    }
    // virtiofs needs the guest's memory to be a file that the server maps as well.
    add(&["-m", &format!("{memory_mib}M")]);
    add(&["-object", &format!("memory-backend-memfd,id=memory,size={memory_mib}M,share=on")]);
    add(&["-numa", "node,memdev=memory"]);
    add(&["-chardev", &format!("socket,id=files,path={}", escaped(files.socket()))]);
    add(&["-device", "vhost-user-fs-pci,chardev=files,tag=vmcc"]);
    for (number, tap) in options.taps.iter().enumerate() {
        // An existing interface, so its name holds no comma.
        add(&["-netdev", &format!("tap,id=net{number},ifname={tap},script=no,downscript=no")]);
        add(&["-device", &format!("virtio-net-pci,netdev=net{number},romfile=,speed=1000,duplex=full")]);
    }
    add(&["-device", "virtio-serial-pci"]);
    for name in ["stdout", "stderr", "control"] {
        let file = escaped(&dir.join(name));
        add(&["-chardev", &format!("file,id={name},path={file},append=on")]);
        add(&["-device", &format!("virtserialport,chardev={name},name=vmcc.{name}")]);
    }
    add(&["-chardev", &format!("file,id=console,path={}", escaped(&dir.join("console")))]);
    add(&["-serial", "chardev:console"]);
    // A kernel that fails reboots, which ends QEMU. On a busy host an emulated timer is late and a processor stands
    // still for seconds: that is no reason to fail or to complain. Mitigations cost emulation much, and so does memory that
    // is cleared whenever it is taken; the guest runs nothing that the host would not run itself. Nor need its ciphers be
    // tested or its place be secret.
    let command_line = format!(
        "console=ttyS0 quiet oops=panic panic=-1 no_timer_check nosoftlockup rcupdate.rcu_cpu_stall_suppress=1 \
         mitigations=off init_on_alloc=0 cryptomgr.notests nokaslr vmcc.job={}",
        dir.display()
    );
    add(&["-append", &command_line]);
    arguments.extend(["-kernel".into(), kernel.image().into_os_string()]);
    arguments.extend(["-initrd".into(), kernel.initrd().into_os_string()]);
    arguments
}

/// A path inside one of QEMU's comma-separated options.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

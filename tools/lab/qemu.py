# SPDX-License-Identifier: GPL-2.0
"""Boot a guest of the lab, run a job in it, bring back what it printed.

    import qemu
    qemu.own_network()                       # once, before the first boot
    result = qemu.boot("build/kernel-lab", job="ip link; modprobe netdevsim",
                       nics=[qemu.Tap(0)], progress=print)
    result.rc, result.lines, result.problems

The job is a shell script; it runs as root in /job, where the files given with
it are. What it prints comes back line by line through a virtio-serial port
while the guest runs (so progress can be shown), and result.rc is its exit code.
The guest's console goes to a file; result.problems are the lines of it that no
healthy kernel prints. Every boot starts from the same root file system: what a
guest writes there is forgotten.

A job's files go to the guest on a second, small disk, since that needs neither
a new root file system nor a file server in QEMU, and is read at once. Neither
disk nor port is behind the IOMMU: only the NICs' DMA is translated and counted.
"""
import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BUILD = TOP / "build"
ROOTFS = BUILD / "rootfs.ext4"
SBIN = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

# What a healthy kernel does not print. Lines of the DMA debugging code that
# only say that it is there are the exception.
PROBLEM = re.compile(
    r"WARNING:|BUG:|\bBUG\b|KASAN|KCSAN|UBSAN|Oops|Kernel panic|"
    r"general protection|stack segment|unable to handle|"
    r"INFO: (possible|task|rcu|suspicious|trying)|possible circular|"
    r"inconsistent lock state|suspicious RCU|bad unlock balance|"
    r"sleeping function|scheduling while atomic|DMA-API:|DMAR:.*fault|"
    r"DMAR: \[DMA|refcount_t:|unregister_netdevice: waiting|"
    r"[Bb]ad page|stalled pool|corruption|list_add|list_del|"
    r"rcu_.*detected|soft lockup|hung_task|kmemleak: [1-9]|"
    r"nobody cared|page allocation failure|ODEBUG|Call Trace", 0)
HARMLESS = re.compile(
    r"DMA-API: (preallocated|debugging enabled|enabled)|"
    r"Lock dependency validator|page_?alloc.*fail_page_alloc|"
    r"list_add_tail.*selftest|KASAN: *KernelAddressSanitizer|"
    r"kasan: KernelAddressSanitizer initialized")


class LabError(Exception):
    """Something the user can do something about; the text says what."""


def own_network():
    """Move this process into a network namespace of its own.

    Guests' peers live there, so nothing of the machine's network is touched.
    An ordinary user gets a user namespace around it. Must be called while the
    process has one thread, and everything that needs the real network (the
    source, packages) must have been done before.
    """
    flags, uid, gid = 0x40000000, os.getuid(), os.getgid()     # CLONE_NEWNET
    if uid:
        flags |= 0x10000000                                    # CLONE_NEWUSER
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        raise LabError(
            "cannot make a network namespace (%s): run as root, or allow user "
            "namespaces: sysctl kernel.unprivileged_userns_clone=1"
            % os.strerror(ctypes.get_errno()))
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    sh("ip link set lo up")


def sh(command):
    """Run a shell command of the host, quietly, or say what it said."""
    env = dict(os.environ, PATH=SBIN)
    p = subprocess.run(["bash", "-c", command], env=env, text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if p.returncode:
        raise LabError(f"'{command}' failed: {p.stdout.strip()}")
    return p.stdout


@dataclass
class Tap:
    """A virtio-net NIC whose peer is the host's own TCP stack.

    Host 10.1.N.1 and fd00:N::1, guest 10.1.N.2 and fd00:N::2. The host's
    offloads go across (vnet_hdr): segments of 64 KiB both ways.
    """
    n: int
    queues: int = 1
    iommu: bool = True
    options: str = ""           # more properties of the device

    def prepare(self):
        if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
            raise LabError(
                "/dev/net/tun cannot be opened by this user, so there is no "
                "network to a guest; as root: modprobe tun; chmod 666 "
                "/dev/net/tun (udev does this on an ordinary Debian)")
        mq = " multi_queue" if self.queues > 1 else ""
        dev = f"lab{self.n}"
        sh(f"ip link show {dev} >/dev/null 2>&1 || {{ "
           f"ip tuntap add dev {dev} mode tap vnet_hdr{mq} && "
           f"ip addr add 10.1.{self.n}.1/24 dev {dev} && "
           f"ip addr add fd00:{self.n}::1/64 dev {dev} nodad && "
           f"ip link set {dev} up; }}")

    def args(self):
        q = f",queues={self.queues}" if self.queues > 1 else ""
        mq = f",mq=on,vectors={2 * self.queues + 2}" if self.queues > 1 else ""
        return ["-netdev", f"tap,id=net{self.n},ifname=lab{self.n},script=no,"
                f"downscript=no,vhost=off{q}",
                "-device", nic(self.n, f"netdev=net{self.n}", self.iommu,
                               mq + self.options)]


@dataclass
class Hub:
    """Two NICs of the guest, N and N + 1, joined inside QEMU.

    Nothing outside of QEMU takes part, so under icount two boots of one image
    give the same counts to the instruction. No offloads across, and transmit
    by timer: the virtual clock alone decides when.
    """
    n: int
    iommu: bool = True
    options: str = ""

    def prepare(self):
        pass

    def args(self):
        out = []
        for n in (self.n, self.n + 1):
            out += ["-netdev", f"hubport,id=net{n},hubid={self.n}",
                    "-device", nic(n, f"netdev=net{n}", self.iommu,
                                   ",ioeventfd=off,tx=timer" + self.options)]
        return out


@dataclass
class Hns3:
    """Two PCI functions, N and N + 1, of which hns3_sim.ko makes a pair of
    hns3 NICs, back to back. All of it is inside the guest."""
    n: int

    def prepare(self):
        pass

    def args(self):
        out = []
        for n in (self.n, self.n + 1):
            out += ["-device", f"pci-testdev,addr=0x{0x10 + n:x}"]
        return out


def nic(n, netdev, iommu, options):
    """The NIC has its own PCI slot, so its name in the guest is known."""
    io = ",iommu_platform=on,ats=off" if iommu else ""
    return (f"virtio-net-pci,{netdev},addr=0x{0x10 + n:x},disable-legacy=on"
            f"{io},mac=52:54:00:00:00:{n:02x}{options}")


@dataclass
class Result:
    rc: int = -1
    lines: list = field(default_factory=list)
    problems: list = field(default_factory=list)
    console: str = ""           # path of the guest's console
    seconds: float = 0.0
    records: list = field(default_factory=list)     # of the plugin


# QEMU's processes, for whoever has to end them from a signal handler
running = set()

START = """#!/bin/bash
# Runs in the guest: connect the job to the host's port.
port=/dev/ttyS1
for p in /sys/class/virtio-ports/*/name; do
	[ -e $p ] && port=/dev/$(basename ${p%/name})
done
exec 3<>$port
[ $port != /dev/ttyS1 ] || stty -F $port 115200 raw -echo
[ -d /job/mods/lib/modules ] && { rm -rf /lib/modules; ln -s /job/mods/lib/modules /lib/modules; }
cd /job
bash /job/job 0</dev/null 1>&3 2>&3
echo "@exit $?" >&3
sync
while :; do sleep 60; done
"""


def job_disk(path, job, files, modules):
    """An ext4 image with the job, its files and the kernel's modules."""
    with tempfile.TemporaryDirectory(dir=path.parent) as d:
        root = Path(d)
        (root / "start").write_text(START)
        (root / "start").chmod(0o755)
        (root / "job").write_text(job)
        for name, source in files.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            source = Path(source)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True,
                                dirs_exist_ok=True)
            else:
                shutil.copy(source, target)
        if modules and (modules / "lib/modules").is_dir():
            shutil.copytree(modules, root / "mods", symlinks=True,
                            ignore=shutil.ignore_patterns("build", "source"))
        size = sum(f.lstat().st_size + 4096 for f in root.rglob("*"))
        mib = 4 + size * 5 // 4 // 2**20
        path.unlink(missing_ok=True)
        sh(f"mke2fs -q -t ext4 -O ^has_journal -m 0 -d {d} {path} {mib}M")


def build_plugin():
    """Compile the instruction counter, unless that has been done."""
    so = BUILD / "insn.so"
    src = TOP / "tools/lab/plugin"
    compile_once(so, [src / "insn.c", src / "marker.h"],
                 f"gcc -O2 -Wall -shared -fPIC -fvisibility=hidden {src}/insn.c -o")
    return so


def build_txcount():
    """Compile the traffic program, unless that has been done."""
    out = BUILD / "txcount"
    lab = TOP / "tools/lab"
    compile_once(out, [lab / "guest/txcount.c", lab / "plugin/marker.h"],
                 f"gcc -O2 -Wall -static -I{lab}/plugin {lab}/guest/txcount.c -o")
    return out


def compile_once(target, sources, command):
    if not target.exists() or any(s.stat().st_mtime > target.stat().st_mtime
                                  for s in sources):
        target.parent.mkdir(parents=True, exist_ok=True)
        # Guests start at the same time, and one may run what another builds.
        with tempfile.TemporaryDirectory(dir=target.parent) as d:
            new = Path(d) / target.name
            sh(f"{command} {new}")
            new.rename(target)


def kernel_files(kernel):
    """(image, modules, System.map) of a build directory or a bzImage."""
    kernel = Path(kernel)
    out = kernel
    if kernel.is_dir():
        kernel = kernel / "arch/x86/boot/bzImage"
    else:
        out = kernel.resolve().parent
        for up in kernel.resolve().parents:
            if (up / "System.map").exists():
                out = up
                break
    if not kernel.exists():
        raise LabError(f"there is no kernel {kernel}: build it with "
                       "tools/lab/kernel lab")
    return kernel, out / "mods", out / "System.map"


def boot(kernel, job, files=None, nics=(), smp=2, memory=1024, icount=False,
         plugin=False, profile=False, append="", iommu="strict", name="guest",
         timeout=600, on_line=None, qemu_args=(), thread=None, uart=False,
         nice=0):
    """Boot KERNEL (a build directory or an image), run JOB, return a Result.

    nics: Tap and Hub objects. icount: one instruction is one nanosecond of
    the guest's clock, which needs smp=1. plugin: count instructions between
    markers, see plugin/marker.h; profile: per kernel symbol as well. iommu:
    strict, lazy, passthrough, or off (no IOMMU in the machine). on_line is
    called with every line that the job prints. thread: "single" or "multi"
    forces how QEMU runs several vCPUs. uart: what the job prints comes by a
    UART, which survives that the guest is suspended, not by the faster port.
    nice: let other guests go first, by so much.
    """
    image, modules, sysmap = kernel_files(kernel)
    if not ROOTFS.exists():
        raise LabError(f"there is no {ROOTFS}: make it with tools/lab/rootfs")
    if not shutil.which("qemu-system-x86_64"):
        raise LabError("qemu-system-x86_64 is missing; as root: "
                       "apt-get install qemu-system-x86")
    work = BUILD / "guests" / f"{name}.{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    logs = BUILD / "results"
    logs.mkdir(parents=True, exist_ok=True)
    console = logs / f"{name}.console"
    disk = work / "job.ext4"
    job_disk(disk, job, files or {}, modules)
    # A path that is short enough for a socket's, wherever the project lives.
    sockdir = tempfile.mkdtemp(prefix="lab")
    port = socket.socket(socket.AF_UNIX)
    port.bind(f"{sockdir}/port")
    port.listen(1)

    # no_timer_check: on a busy host the timer may seem dead at boot.
    cmdline = ("no_timer_check console=ttyS0 root=/dev/vda rw init=/lab-init panic=-1 "
               "loglevel=7 net.ifnames=0 tsc=reliable random.trust_cpu=on "
               "bonding.max_bonds=0 dummy.numdummies=0 ifb.numifbs=0 ")
    args = ["nice", "-n", str(nice),
            "qemu-system-x86_64", "-nodefaults", "-display", "none",
            # Five-level page tables trip KASAN: while the kernel identifies
            # the CPU, an interrupt finds its own feature bits cleared.
            "-no-reboot", "-no-user-config", "-cpu", "max,la57=off",
            "-m", str(memory), "-smp", str(smp),
            "-machine", "q35" + ("" if iommu == "off" else
                                 ",kernel-irqchip=split"),
            "-accel", "tcg" + (f",thread={thread}" if thread else "")]
    if iommu != "off":
        args += ["-device", "intel-iommu,intremap=on"]
        cmdline += {"strict": "intel_iommu=on iommu.strict=1 ",
                    "lazy": "intel_iommu=on iommu.strict=0 ",
                    "passthrough": "intel_iommu=on iommu.passthrough=1 ",
                    }[iommu]
    if icount:
        # With a peer outside, idle time must pass as it does there: otherwise
        # the clock jumps to the next timer, and TCP sees answers that are far
        # too late. Without one the jumps make boots repeatable.
        outside = any(isinstance(n, Tap) for n in nics)
        args += ["-icount", f"shift=0,sleep={'on' if outside else 'off'}",
                 "-seed", "1",
                 "-rtc", "base=2026-01-01,clock=vm"]
    else:
        # On a busy host the guest's own calibration can be wrong by a factor
        # of three, and with it every rate that the guest reports.
        cmdline += f"tsc_early_khz={sh(str(build_txcount()) + ' tsc').strip()} "
    records = work / "insn"
    if plugin:
        cmdline += "nokaslr "
        opts = f"{build_plugin()},out={records},profile={'on' if profile else 'off'}"
        if sysmap.exists():
            opts += f",map={sysmap}"
        args += ["-plugin", opts]
    args += ["-kernel", str(image), "-append", cmdline + append,
             "-serial", f"file:{console}",
             "-drive", f"file={ROOTFS},if=none,id=root,format=raw,snapshot=on",
             "-device", "virtio-blk-pci,drive=root,disable-legacy=on,addr=0x8",
             "-drive", f"file={disk},if=none,id=job,format=raw,readonly=on",
             "-device", "virtio-blk-pci,drive=job,disable-legacy=on,addr=0x9",
             "-chardev", f"socket,id=lab,path={sockdir}/port"]
    if uart:
        args += ["-device", "isa-serial,chardev=lab,index=1"]
    else:
        args += ["-device", "virtio-serial-pci,disable-legacy=on,addr=0xa",
                 "-device", "virtserialport,chardev=lab,name=lab"]
    for one in nics:
        one.prepare()
        args += one.args()
    args += list(qemu_args)

    result = Result(console=str(console))
    start = time.monotonic()
    errors = open(work / "stderr", "w+")
    p = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=errors,
                         stderr=errors, env=dict(os.environ, TMPDIR=str(work)))
    running.add(p)
    try:
        port.settimeout(1)
        conn = None
        while conn is None and p.poll() is None:
            try:
                conn, _ = port.accept()
            except TimeoutError:
                pass
        pending = b""
        if conn:
            conn.settimeout(1)
        while conn and time.monotonic() - start < timeout:
            try:
                data = conn.recv(65536)
            except TimeoutError:
                if p.poll() is not None:
                    break
                continue
            if not data:
                break
            pending += data
            *lines, pending = pending.split(b"\n")
            for line in lines:
                line = line.decode(errors="replace").rstrip("\r")
                if line.startswith("@exit "):
                    result.rc = int(line.split()[1])
                    break
                result.lines.append(line)
                if on_line:
                    on_line(line)
            if result.rc >= 0:
                break
        timed_out = time.monotonic() - start >= timeout
        p.terminate()
        p.wait(20)
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
        running.discard(p)
        port.close()
        shutil.rmtree(sockdir, ignore_errors=True)
    result.seconds = time.monotonic() - start
    text = console.read_text(errors="replace") if console.exists() else ""
    result.problems = [l.strip() for l in text.splitlines()
                       if PROBLEM.search(l) and not HARMLESS.search(l)]
    errors.seek(0)
    said = errors.read().strip()
    errors.close()
    if result.rc < 0:
        tail = "\n    ".join(text.splitlines()[-8:])
        why = (f"did not end within {timeout} s" if timed_out else
               "ended before its job did" if text else "did not start")
        raise LabError(f"the guest '{name}' {why}; QEMU said: "
                       f"{said or 'nothing'} (exit code {p.returncode}); its "
                       f"console ({console}) ends:"
                       f"\n    {tail}")
    if plugin:
        result.records = read_records(records)
        if profile:
            shutil.copy(records, logs / f"{name}.profile")
    shutil.rmtree(work, ignore_errors=True)
    return result


def read_records(path):
    """The plugin's records: dicts with total, user, repmovs, and symbols."""
    out = []
    for line in Path(path).read_text().splitlines():
        w = line.split()
        if w[0] == "stop":
            out.append(dict(total=int(w[2]), user=int(w[3]),
                            repmovs=int(w[4]), symbols={}))
        elif w[0] == "sym" and out:
            s = out[-1]["symbols"]
            s[w[2]] = s.get(w[2], 0) + int(w[1])
    return out


if __name__ == "__main__":
    # tools/lab/qemu.py KERNEL COMMAND: try something in a guest.
    if len(sys.argv) < 3:
        sys.exit("usage: qemu.py KERNEL COMMAND [append]")
    try:
        own_network()
        r = boot(sys.argv[1], sys.argv[2], nics=[Tap(0)], name="try",
                 on_line=lambda line: print(line, flush=True),
                 append=" ".join(sys.argv[3:]))
    except LabError as e:
        sys.exit(f"qemu: {e}")
    print(f"exit code {r.rc}, {r.seconds:.1f} s, console {r.console}")
    for line in r.problems:
        print("problem:", line)
    sys.exit(r.rc)

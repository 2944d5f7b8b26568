"""The doctor's findings on the network between nodes: a made-up /sys, /dev and environment for each cause."""

import json
import resource

import pytest

from doctor import host as hosts
from doctor.cards import PROVIDERS
from doctor.fabric import judge_fabric
from doctor.host import Done
from doctor.nccl import chosen_of, nccl_settings
from doctor.survey import survey
from graphcrate.compat.facts.fabrics import fabrics
from tests.unit.made_up_host import GIB, MadeUp, by_id

MODULE_OF = {"mlx5": "mlx5_core", "irdma": "ice", "efa": "efa", "erdma": "erdma"}
HDR, NO_GID = "200 Gb/sec (4X HDR)", ":".join(["0000"] * 8)


def card(number=0, kind="mlx5", state="4: ACTIVE", link="InfiniBand", rate=HDR, pkey="0xffff", gids=()):
    """Files of a card, and of its node."""
    name = f"{kind}_{number}"
    folder = f"/sys/class/infiniband/{name}"
    port = {"state": state, "link_layer": link, "rate": rate, "pkeys/0": pkey}
    port |= {f"gids/{at}": gid for at, gid in enumerate(gids)}
    return {
        **{f"{folder}/ports/1/{name}": f"{text}\n" for name, text in port.items()},
        f"{folder}/device/uevent": f"DRIVER={MODULE_OF.get(kind, kind)}\nPCI_CLASS=20700\n",
        f"/sys/class/infiniband_verbs/uverbs{number}/ibdev": f"{name}\n",
        f"/dev/infiniband/uverbs{number}": "",
    }


def without(files, *beginnings):
    return {name: text for name, text in files.items() if not name.startswith(beginnings)}


def verbs(*devices, error="", dmabuf=True, plugins=None, warnings=""):
    """The answer of the process that loads libibverbs."""
    told = {"loaded": not error, "error": error, "devices": devices, "dmabuf": dmabuf, "plugins": plugins or {}}
    return {"ibv_get_device_list": Done(0, f"@verbs {json.dumps(told)}\n", warnings)}


def node(expected, files=None, container="", answers=None, programs=None, closed=(), **environment):
    fields = {"files": card() if files is None else files, "python": verbs("mlx5_0") if answers is None else answers}
    fields |= {"environment": environment, "programs": programs, "closed": closed}
    return fields, container, expected


NO_FILE = "cannot open shared object file: No such file or directory"
NO_VERBS = verbs(error=f"libibverbs.so.1: {NO_FILE}")
NO_NODES = without(card(), "/dev/")
NODE = "/dev/infiniband/uverbs0"
TWO = {**card(), **card(1)}
ROCE = card(link="Ethernet", rate="100 Gb/sec (4X EDR)", gids=("fe80::1", NO_GID))
EFA, ERDMA, IRDMA = card(kind="efa", link="Unspecified"), card(kind="erdma", link="Ethernet"), card(kind="irdma")
UEVENT = "/sys/class/infiniband/mlx5_0/device/uevent"
DEBIAN = {"/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'}
ROCKY = {"/etc/os-release": 'PRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"\n'}
INSTALL = "apt-get install --yes libibverbs1 ibverbs-providers librdmacm1"
BULLSEYE = {"/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\n'}
SOFT = {"/sys/class/infiniband/rxe0/ports/1/state": "4: ACTIVE\n", NODE: ""}
CXI = {"/sys/class/cxi/cxi0/": "", "/dev/cxi0": ""}
NET, OFI = "libnccl-net.so", "libnccl-net-ofi.so"
ABSENT = {NET: f"{NET}: {NO_FILE}", OFI: f"{OFI}: {NO_FILE}"}
OLD_GLIBC = {NET: "/lib/libc.so.6: version `GLIBC_2.38' not found (required by /host/libfabric.so.1)"}
INTERFACES = {"/sys/class/net/lo/": "", "/sys/class/net/eth0/": "", "/sys/class/net/ib0/": ""}
WARNING = "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so': libmlx5-rdmav34.so: cannot open\n"
RDMA_CM = {"/dev/infiniband/rdma_cm": ""}
ENROOT = {"enroot": "4.1.2\n"}

CARDS = [
    node({"fabric": "note | TCP is all there is", "*": "note"}, {}),
    node({"fabric": "warn | modprobe mlx5_ib"}, {"/sys/bus/pci/devices/0000:3b:00.0/class": "0x020700\n"}),
    node(
        {"fabric": "ok | InfiniBand, 200 Gb/sec (4X HDR): mlx5_0:1 (1 of 1 ports active)", "libibverbs": "ok | mlx5_0"}
    ),
    node({"fabric": "ok | RoCE, 100 Gb/sec (4X EDR): mlx5_0:1"}, ROCE),
    node({"fabric": "ok | eRDMA, 200 Gb/sec"}, ERDMA, answers=verbs("erdma_0")),
    node({"fabric": "ok | RoCE by software: rxe0:1"}, SOFT, answers=verbs("rxe0")),
    node({"fabric": "ok | (1 of 2 ports active)"}, {**card(), **card(1, state="1: DOWN")}),
    node({"fabric": "warn | mlx5_0:1 DOWN | uses TCP | ibstat", "libibverbs": None}, card(state="1: DOWN")),
    node({"fabric": "warn | mlx5_0:1 INIT | subnet manager | opensm"}, card(state="2: INIT")),
    node({"fabric": "warn | mlx5_0:1 INIT | cable"}, card(state="2: INIT", link="Ethernet")),
    node({"fabric-rate": "warn | mlx5_0:1 has 25 Gb/sec (1X EDR) | cable"}, card(rate="25 Gb/sec (1X EDR)")),
    node({"fabric-rate": None}),
    node({"fabric-rate": None}, card(rate="25 Gb/sec (1X EDR)", link="Ethernet")),
    node({"libibverbs": "| (mlx5)"}, card() | {UEVENT: "DRIVER=mlx5_core.sf\n"}, "docker", verbs()),
]
DEVICES = [
    node({"fabric-devices": None}),
    *[
        node({"fabric-devices": f"warn | mlx5_0: there is no {NODE} | TCP | {fix}", "libibverbs": None}, NO_NODES, kind)
        for kind, fix in (
            ("docker", "docker run --device=/dev/infiniband --ulimit memlock=-1:-1"),
            ("podman", "podman run --device=/dev/infiniband"),
            ("enroot", "MELLANOX_VISIBLE_DEVICES is not set | MELLANOX_VISIBLE_DEVICES=all srun"),
            ("apptainer", "--bind /dev/infiniband"),
            ("kubernetes", "rdma/"),
            ("graphcrate", "./build.py run` has a /dev of its own"),
            ("image", "--device=/dev/infiniband, --bind"),
            ("", "modprobe ib_uverbs"),
        )
    ],
    node({"fabric-devices": "| MELLANOX_VISIBLE_DEVICES is void"}, NO_NODES, "enroot", MELLANOX_VISIBLE_DEVICES="void"),
    node({"fabric-devices": f"warn | {NODE}: Permission denied | ls -l /dev/infiniband"}, closed=[NODE]),
    node(
        {"fabric-devices": f"warn | {NODE}: Operation not permitted | cgroup | --device=/dev/infiniband"},
        container="docker",
        closed={NODE: "Operation not permitted"},
    ),
    node(
        {"fabric-devices": "note | mlx5_0: there is no", "libibverbs": "ok | finds mlx5_1"},
        without(TWO, NODE),
        answers=verbs("mlx5_1"),
    ),
    node({"fabric-devices": None}, without(card(), "/sys/class/infiniband_verbs")),  # any node will do
]
LIBRARY = [
    *[
        node({"libibverbs": f"warn | {NO_FILE} | TCP | {fix} | --only fabric"}, card() | release, "docker", NO_VERBS)
        for release, fix in ((DEBIAN, INSTALL), (ROCKY, "dnf install --assumeyes libibverbs"), ({}, "rdma-core"))
    ],
    node({"libibverbs": f"note | on this host | {INSTALL}"}, card() | DEBIAN, answers=NO_VERBS),
    node(
        {"libibverbs": "warn | no provider for mlx5_0 (mlx5) | couldn't load driver 'libmlx5-rdmav34.so'"},
        container="docker",
        answers=verbs(warnings=WARNING),
    ),
    node(
        {"libibverbs": "warn | no provider for erdma_0 (erdma) | Debian bullseye has none for erdma | bookworm"},
        {**ERDMA, **BULLSEYE},
        "docker",
        verbs(),
    ),
    node({"libibverbs": "warn | bullseye has none for irdma"}, {**IRDMA, **BULLSEYE}, "docker", verbs()),
    node({"libibverbs": "warn | no provider for erdma_0 | NET/IB : No device found"}, ERDMA, "docker", verbs()),
    node({"libibverbs": "warn | ended with -11"}, answers={"ibv_get": Done(-11, "", "")}),
    node({"libibverbs": "warn | no answer in time"}, answers={"ibv_get": Done(None, "", "")}),
    node({"libibverbs": "warn | cannot be started"}, answers={"ibv_get": None}),
    node({"libibverbs": None}, EFA, answers=verbs(plugins=ABSENT)),
]
PLUGINS = [
    *[
        node({"nccl-plugin": f"warn | {NET} is not here | uses TCP | ./build.py job", **seen}, files, "docker", answers)
        for files, answers, seen in (
            (CXI, verbs(plugins=ABSENT), {"slingshot": "ok | cxi0"}),
            (EFA, verbs("efa_0", plugins=ABSENT), {"fabric": "ok | EFA"}),
        )
    ],
    node({"nccl-plugin": "note | is not here"}, CXI, answers=verbs(plugins=ABSENT)),
    node({"nccl-plugin": "warn | GLIBC_2.38 | newer base"}, CXI, "docker", verbs(plugins=OLD_GLIBC)),
    node({"nccl-plugin": f"ok | {NET}", "nccl-net": "note | AWS Libfabric"}, CXI, answers=verbs(plugins={NET: ""})),
    node({"nccl-plugin": "ok", "nccl-net": None}, CXI, answers=verbs(plugins={NET: ""}), NCCL_NET="AWS Libfabric"),
    node(
        {"nccl-plugin": "fail | Failed to initialize any NET plugin | ./build.py job"},
        CXI,
        "docker",
        verbs(plugins=ABSENT),
        NCCL_NET="AWS Libfabric",
    ),
    node({"nccl-plugin": "warn | NCCL_NET_PLUGIN=ofi"}, CXI, answers=verbs(plugins={**ABSENT, OFI: ""})),
    node({"nccl-plugin": f"ok | {OFI}"}, CXI, answers=verbs(plugins={OFI: ""}), NCCL_NET_PLUGIN="ofi"),
    node({"nccl-plugin": "warn | switched off | unset NCCL_NET_PLUGIN"}, CXI, NCCL_NET_PLUGIN="none"),
    node({"nccl-plugin": "note | no answer"}, CXI, answers={"ibv_get": Done(-11, "", "")}),
    node({"slingshot": "warn | there is no /dev/cxi0 | --bind /dev/cxi0"}, without(CXI, "/dev"), "apptainer"),
    node({"slingshot": "warn | ls -l /dev/cxi"}, without(CXI, "/dev")),
    node({"nccl-plugin": None}),
]
DRIVER = "NVRM version: NVIDIA UNIX {}  535.54.03  Release Build\n"
CLOSED_DRIVER = {"/proc/driver/nvidia/version": DRIVER.format("x86_64 Kernel Module")}
OPEN_DRIVER = {"/proc/driver/nvidia/version": DRIVER.format("Open Kernel Module for x86_64")}
PEERMEM = {"/sys/module/nvidia_peermem/version": "535.54.03\n"}
OLD_KERNEL = {"/proc/sys/kernel/osrelease": "4.18.0-553.el8.x86_64\n"}
GEFORCE = {"/proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: \t NVIDIA GeForce RTX 4090\n"}
DIRECT = [
    node({"gpudirect": None}),
    node({"gpudirect": "ok | nvidia_peermem"}, {**card(), **CLOSED_DRIVER, **PEERMEM}),
    node({"gpudirect": "ok | dma-buf"}, {**card(), **OPEN_DRIVER}),
    node({"gpudirect": "warn | not NVIDIA's open one | modprobe nvidia_peermem"}, {**card(), **CLOSED_DRIVER}),
    node(
        {"gpudirect": "warn | kernel 4.18.0-553.el8.x86_64 is older than 5.12"}, {**card(), **OPEN_DRIVER, **OLD_KERNEL}
    ),
    node({"gpudirect": "warn | rdma-core 34"}, {**card(), **OPEN_DRIVER}, answers=verbs("mlx5_0", dmabuf=False)),
    node({"gpudirect": "note | GeForce"}, {**card(), **CLOSED_DRIVER, **GEFORCE}),
    node({"gpudirect": None}, {**ERDMA, **CLOSED_DRIVER}, answers=verbs("erdma_0")),
]
PKEYS = "/sys/class/infiniband/mlx5_0/ports/1/pkeys"
KEYS = {f"{PKEYS}/2": "0x0000\n", f"{PKEYS}/9": "0x7001\n", f"{PKEYS}/10": "0x8001\n"}
PARTITIONS = [
    node({"partition": None}),
    node({"partition": "note | 0x801a at index 0 | same one"}, card(pkey="0x801a")),
    node({"partition": "warn | 0x7fff at index 0 | error 12 | full member"}, card(pkey="0x7fff")),
    node({"partition": "warn | export NCCL_IB_PKEY=10"}, card(pkey="0x7fff") | KEYS),
    node({"partition": None}, card(pkey="0x7fff") | KEYS, NCCL_IB_PKEY="10"),
    node({"partition": None}, card(pkey="0x7fff") | {"/etc/nccl.conf": "NCCL_IB_PKEY=10\n"}),
    node({"partition": None}, card(pkey="0x7fff", link="Ethernet")),
    node({"partition": None}, card(pkey="what")),
]
CONF = "/etc/nccl.conf"
VARIABLES = [
    node({"nccl-ib-disable": "warn | uses TCP | unset NCCL_IB_DISABLE"}, NCCL_IB_DISABLE="1"),
    node(
        {"nccl-ib-disable": "warn | take NCCL_IB_DISABLE out of /etc/nccl.conf"},
        {**card(), CONF: "NCCL_IB_DISABLE=1\n"},
    ),
    node({"nccl-ib-disable": None}, {**card(), CONF: "NCCL_IB_DISABLE=1\n"}, NCCL_IB_DISABLE="0"),
    node({"nccl-ib-disable": None}, {}, NCCL_IB_DISABLE="1"),
    node({"nccl-net": "warn | NCCL_NET=Socket | unset NCCL_NET"}, NCCL_NET="Socket"),
    node({"nccl-net": None}, {}, NCCL_NET="Socket"),
    node({"nccl-net": "fail | NCCL_NET=IB | Failed to initialize"}, {}, NCCL_NET="IB"),
    node({"nccl-net": None}, NCCL_NET="IB"),
    node({"nccl-hca": "warn | NCCL_IB_HCA=erdma fits none | mlx5_0:1 | unset NCCL_IB_HCA"}, NCCL_IB_HCA="erdma"),
    node({"nccl-hca": None}, NCCL_IB_HCA="=mlx5_0:1,mlx5_9"),
    node({"nccl-gid": "warn | NCCL_IB_GID_INDEX=1 is empty at mlx5_0:1"}, ROCE, NCCL_IB_GID_INDEX="1"),
    node({"nccl-gid": "warn | NCCL_IB_GID_INDEX=3 is empty"}, ROCE, NCCL_IB_GID_INDEX="3"),
    node({"nccl-gid": None}, ROCE, NCCL_IB_GID_INDEX="0"),
    node({"nccl-gid": None}, NCCL_IB_GID_INDEX="3"),
    node(
        {"nccl-interface": "fail | hsn0 fits no interface | eth0, ib0, lo | ip -brief"},
        INTERFACES,
        NCCL_SOCKET_IFNAME="hsn0",
    ),
    node({"nccl-interface": "fail"}, INTERFACES, NCCL_SOCKET_IFNAME="^eth,ib,lo"),
    node({"nccl-interface": None}, INTERFACES, NCCL_SOCKET_IFNAME="eth,hsn"),
    node({"nccl-interface": "fail"}, INTERFACES, NCCL_SOCKET_IFNAME="=eth"),
    node({"nccl-interface": None}, {}, NCCL_SOCKET_IFNAME="hsn0"),  # a /sys that shows none tells nothing
    node({"gloo-interface": "fail | Unable to find address for: hsn0"}, INTERFACES, GLOO_SOCKET_IFNAME="eth0,hsn0"),
    node({"gloo-interface": None}, INTERFACES, GLOO_SOCKET_IFNAME="eth0"),
]
HOOKS = [
    node({"mellanox": "warn | 99-mellanox.sh | unset"}, {}, programs=ENROOT, MELLANOX_VISIBLE_DEVICES="all"),
    node(
        {"mellanox": "warn | 2: the node has 1 | Unknown MELLANOX device id"},
        {**card(), **RDMA_CM},
        programs=ENROOT,
        MELLANOX_VISIBLE_DEVICES="0,2",
    ),
    node({"mellanox": "warn | 99-mellanox.sh"}, ERDMA, programs=ENROOT, MELLANOX_VISIBLE_DEVICES="all"),
    node({"mellanox": None}, {**card(), **RDMA_CM}, programs=ENROOT, MELLANOX_VISIBLE_DEVICES="all"),
    node({"mellanox": None}, {}, programs=ENROOT, MELLANOX_VISIBLE_DEVICES="void"),
    node({"mellanox": None}, {}, MELLANOX_VISIBLE_DEVICES="all"),  # no enroot that reads it
]
ROWS = [*CARDS, *DEVICES, *LIBRARY, *PLUGINS, *DIRECT, *PARTITIONS, *VARIABLES, *HOOKS]


@pytest.mark.parametrize(("fields", "container", "expected"), ROWS)
def test_doctor_names_each_cause_of_a_slow_network(tmp_path, monkeypatch, fields, container, expected):
    """`expected`: id → "status | words | more words" of the finding; None: there is none; "*": statuses of all."""
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (-1, -1))
    found = by_id(judge_fabric(MadeUp(tmp_path, **fields), container))
    for name, told in expected.items():
        status, *words = (told or "").split("|")
        if name == "*":
            assert {one.status for one in found.values()} <= set(status.split()), found
        elif told is None:
            assert name not in found, found[name]
        else:
            assert found[name].status == (status.strip() or found[name].status), found[name]
            assert all(word.strip() in "\n".join(found[name]) for word in words), found[name]


ROOT_STATUS = {"/proc/self/status": "Name:\tpython\nCapEff:\t000001ffffffffff\n"}
OUTSIDE, INSIDE = ({"/proc/self/uid_map": f"         0 {first}\n"} for first in ("0 4294967295", "1000 1"))
JOB = {"SLURM_JOB_ID": "7"}
LIMITS = [
    ((-1, -1), {}, "", {}, None),
    ((65536, -1), {}, "", {}, "warn | 64 KiB | ibv_create_qp failed | ulimit -l unlimited"),
    ((65536, 65536), {}, "docker", {}, "warn | docker run --ulimit memlock=-1:-1"),
    ((65536, 65536), {}, "", JOB, "warn | PropagateResourceLimitsExcept=MEMLOCK"),
    ((65536, 65536), {}, "", {}, "warn | limits.d"),
    ((4 * GIB, 4 * GIB), {}, "", {}, "note | 4 GiB"),
    ((65536, 65536), {**ROOT_STATUS, **OUTSIDE}, "", {}, None),
    ((65536, 65536), {**ROOT_STATUS, **INSIDE}, "", {}, "warn"),
]


@pytest.mark.parametrize(("limits", "files", "container", "environment", "told"), LIMITS)
def test_doctor_judges_locked_memory_where_there_are_cards(
    tmp_path, monkeypatch, limits, files, container, environment, told
):
    monkeypatch.setattr(resource, "getrlimit", {resource.RLIMIT_MEMLOCK: limits}.get)
    made = {"environment": environment, "python": verbs("mlx5_0")}
    found = by_id(judge_fabric(MadeUp(tmp_path / "cards", {**card(), **files}, **made), container))
    status, *words = (told or "").split(" | ")
    assert (found["locked-memory"].status if told else "") == status
    assert all(word in "\n".join(found["locked-memory"]) for word in words)
    assert "locked-memory" not in by_id(judge_fabric(MadeUp(tmp_path / "none", files, **made), container))


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ("", ["mlx5_0:1", "mlx5_1:2", "mlx5_10:1"]),
        ("mlx5_1", ["mlx5_1:2", "mlx5_10:1"]),
        ("=mlx5_1", ["mlx5_1:2"]),
        ("mlx5_1:1", ["mlx5_10:1"]),
        ("^mlx5_1", ["mlx5_0:1"]),
        ("^=mlx5_1:2,mlx5_0", ["mlx5_10:1"]),
        ("mlx4", []),
    ],
)
def test_doctor_reads_nccl_lists_as_nccl_does(value, taken):
    assert chosen_of(value, ["mlx5_0:1", "mlx5_1:2", "mlx5_10:1"]) == taken


def test_doctor_reads_nccl_files_after_the_environment(tmp_path):
    files = {
        "/home/alice/.nccl.conf": "NCCL_NET=IB\nNCCL_DEBUG=INFO\n# NCCL_IB_HCA=x\nPATH=/x\n",
        CONF: "NCCL_NET=Socket\nNCCL_IB_HCA=mlx5_0\n",
        "/site.conf": "NCCL_NET=OFI\n",
    }
    found = nccl_settings(MadeUp(tmp_path, files, environment={"NCCL_DEBUG": "WARN", "GLOO_SOCKET_IFNAME": "eth0"}))
    assert {name: (one.value, one.file) for name, one in found.items()} == {
        "NCCL_DEBUG": ("WARN", ""),
        "GLOO_SOCKET_IFNAME": ("eth0", ""),
        "NCCL_NET": ("IB", "/home/alice/.nccl.conf"),
        "NCCL_IB_HCA": ("mlx5_0", CONF),
    }
    named = nccl_settings(MadeUp(tmp_path, files, environment={"NCCL_CONF_FILE": "/site.conf"}))
    assert named["NCCL_NET"].undo("NCCL_NET") == "take NCCL_NET out of /site.conf"


def test_doctor_knows_the_providers_of_graphcrates_fabrics():
    assert {name for fabric in fabrics().values() for name in fabric.providers} <= set(PROVIDERS.values())


def test_doctor_survey_knows_the_container_of_a_network(tmp_path):
    host = MadeUp(tmp_path, {**NO_NODES, "/.dockerenv": ""}, python=verbs())
    assert "docker run --device=/dev/infiniband" in by_id(dict(survey(host))["network"])["fabric-devices"].fix


def test_device_that_cannot_be_opened_has_the_reason(tmp_path):
    host = hosts.Host(str(tmp_path), {})
    (tmp_path / "open").write_text("")
    (tmp_path / "folder").mkdir()
    assert [host.open_error(name) for name in ("/open", "/gone", "/folder")] == [
        "",
        "No such file or directory",
        "Is a directory",
    ]
    assert (tmp_path / "open").read_text() == ""

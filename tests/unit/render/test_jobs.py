"""Jobs as text: compared byte for byte with tests/unit/render/jobs/, and refused where a runtime cannot do it.

`python -m tests.unit.render.test_jobs` writes the files again.
"""

import ast
import shlex
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubernetes_validate import ValidationError, validate

from graphcrate.compat.variants import recipes, targets
from graphcrate.compat.variants.targets import NodeFabric
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import encode
from graphcrate.model.report import BuildParameters
from graphcrate.model.runtime import JOBS
from graphcrate.model.words import visible
from graphcrate.oci.reference import parse
from graphcrate.render import job_image, job_network, jobs
from graphcrate.render.job import Job, Mount, read_mount, read_runtime
from graphcrate.render.notebook import notebook
from graphcrate.render.pai_job import pai_image
from graphcrate.render.published import pulling
from tests import ROOT
from tests.unit import small_layouts, tars

GOLDEN = Path(__file__).parent / "jobs"
REGISTRY = "registry.example.com/team/pyg:2.3.1-torch2.0.1-cu118-py311"
ALIYUN = "registry.cn-shanghai.aliyuncs.com/team/glt:0.2.2"
GLT = "python dist_train.py --master_addr=$MASTER_ADDR --num_nodes=$WORLD_SIZE --node_rank=$RANK"


def job(runtime, image, command="python dna.py", **options):
    return Job(runtime=runtime, name="pyg", image=image, command=command, **options)


def in_partition(*arguments, **options):
    """A job with what targets/ says of its partition."""
    wanted = job(*arguments, **options)
    target = targets.load(ROOT / "targets" / f"{wanted.partition}.toml")
    return job_network.in_partition(wanted, wanted.partition, target.partitions[wanted.partition])


def on_fabric(kind, *arguments, interface="", plugin="", **options):
    """A job on nodes with this network between them."""
    return job_network.on_fabric(job(*arguments, **options), NodeFabric(kind=kind, interface=interface, plugin=plugin))


SAMPLES = {
    "dgx2.sbatch": in_partition("singularity", "/lustre/img/pyg.sif", partition="dgx2", gpus=2),
    "dgx2-per-gpu.sbatch": in_partition(
        "singularity", "/lustre/our images/pyg.sif", "python train.py", partition="dgx2", gpus=4, nodes=2, per_gpu=True,
        mounts=(Mount("/lustre/data", "/data"),), time="02:00:00", account="acct-gnn",
    ),
    "a100.sbatch": in_partition("pyxis", REGISTRY, partition="a100"),
    "a100-nodes.sbatch": in_partition(
        "pyxis", REGISTRY, "python train.py --epochs 3", partition="a100", nodes=2, gpus=4, per_gpu=True,
        mounts=(Mount("/data/ogb", "/data"),),
    ),
    "sqsh.sbatch": job("pyxis", "/lustre/img/pyg.sqsh", "cd /data && python dna.py", partition="a100", cpus=8),
    "notebook.sbatch": job("singularity", "/lustre/img/pyg.sif", notebook(), partition="dgx2"),
    "notebook-pyxis.sbatch": job("pyxis", "/lustre/img/pyg.sqsh", notebook(), partition="a100"),
    "sqsh-cpu.sbatch": job("pyxis", "/lustre/img/pyg.sqsh", partition="a100", gpus=0, cpus=8),
    "sqsh-nodes.sbatch": in_partition("pyxis", "/lustre/img/pyg.sqsh", "python train.py", partition="a100", nodes=2),
    "variable.sbatch": in_partition(
        "singularity", "/lustre/img/pyg.sif", "OMP_NUM_THREADS=4 python train.py", partition="dgx2"
    ),
    "docker.sh": job("docker", "pyg:2.3.1", gpus=2),
    "docker-per-gpu.sh": job("docker", "pyg:2.3.1", "python train.py", gpus=2, per_gpu=True),
    "docker-cpu.sh": job("docker", "pyg:2.3.1", gpus=0, mounts=(Mount("/data/ogb", "/data"),)),
    "dlc.json": job("pai-dlc", ALIYUN, GLT, nodes=2, mounts=(Mount("d-abc", "/mnt/data"),), driver="535.54.03"),
    "dlc-per-gpu.json": job("pai-dlc", ALIYUN, "python train.py", nodes=2, gpus=4, per_gpu=True, workspace="12345"),
    "dsw.txt": job("pai-dsw", ALIYUN),
    "oci.sh": job("oci", "/lustre/our images/pyg.sqsh", mounts=(Mount('/data/o"gb', "/data"),)),
    "charliecloud.sh": job("charliecloud", "/lustre/our images/pyg.sqsh", mounts=(Mount("/data/ogb", "/data"),)),
    "podman-hpc.sbatch": job("podman-hpc", REGISTRY, nodes=2, gpus=4, mounts=(Mount("/data/our ogb", "/data"),)),
    "edf.toml": job("edf", REGISTRY, mounts=(Mount("/capstor/our data", "/data"),)),
    "edf-sqsh.toml": job("edf", "/capstor/pyg.sqsh"),
    "kubernetes.yaml": job("kubernetes", REGISTRY, 'python dna.py --title "a b"', mounts=(Mount("ogb", "/data"),)),
    "kubernetes-nodes.yaml": on_fabric(
        "infiniband", "kubernetes", REGISTRY, "python train.py", nodes=2, gpus=8, per_gpu=True
    ),
    "kubernetes-ranks.yaml": job("kubernetes", REGISTRY, "cd /data && python train.py", nodes=4),
    "module.sh": msgspec.structs.replace(
        job("module", "/site/our images/pyg.sif", mounts=(Mount("/data/ogb", "/data"),)), name="pyg/2.3.1"
    ),
    "reframe.txt": job("reframe", "/site/our images/pyg.sif", suites=("dna", "ops", "ddp")),
    "infiniband.sbatch": on_fabric("infiniband", "pyxis", REGISTRY, "python train.py", nodes=2, interface="ib0"),
    "slingshot.sbatch": on_fabric(
        "slingshot", "singularity", "/lustre/img/pyg.sif", "python train.py", nodes=2, interface="hsn",
        plugin="/opt/aws-ofi-nccl",
    ),
    "slingshot-pyxis.sbatch": on_fabric(
        "slingshot", "pyxis", "/lustre/img/pyg.sqsh", "cd /data && python train.py", nodes=2,
        plugin="/opt/aws-ofi-nccl",
    ),
    "erdma.sh": on_fabric("erdma", "docker", "pyg:2.3.1", gpus=2),
}  # fmt: skip


def test_job_texts_equal_their_golden_files():
    assert {name: jobs.text(sample) for name, sample in SAMPLES.items()} == {
        path.name: path.read_text() for path in GOLDEN.iterdir()
    }


@pytest.mark.parametrize(
    ("kind", "runtime", "image", "options"),
    [
        ("infiniband", "pyxis", REGISTRY, {"nodes": 1}),
        ("infiniband", "singularity", "/img/pyg.sif", {"nodes": 2}),  # Apptainer gives the host's /dev
        ("erdma", "pai-dlc", ALIYUN, {"nodes": 2}),  # PAI sets its own
        ("ethernet", "pyxis", REGISTRY, {"nodes": 2}),
        ("ethernet", "docker", "pyg:1", {}),
    ],
)
def test_job_that_needs_nothing_for_its_network_is_as_without_one(kind, runtime, image, options):
    assert jobs.text(on_fabric(kind, runtime, image, **options)) == jobs.text(job(runtime, image, **options))


def test_pai_image_is_pulled_from_the_vpc_address():
    for name in ("registry", "acme-registry", "crpi-a1"):
        place = f"cn-beijing.{'personal.' * name.startswith('crpi')}cr.aliyuncs.com/a:1"
        assert pai_image(f"{name}.{place}") == f"{name}-vpc.{place}"
    for same in ("registry-vpc.cn-beijing.cr.aliyuncs.com/a:1", "registry.example.com/a/b:1", "graphlearn/glt:1.0.0"):
        assert pai_image(same) == same


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (job("docker", "pyg:1", nodes=2), "no --nodes"),
        (job("docker", "pyg:1", partition="a100"), "no --partition"),
        (job("pai-dsw", ALIYUN, nodes=2), "no --nodes"),
        (job("pai-dlc", ALIYUN, time="60"), "no --time"),
        (job("pai-dsw", ALIYUN, mounts=(Mount("d-abc", "/mnt/data"),)), "no --mount"),
        (job("reframe", "/a.sif", mounts=(Mount("/data", "/data"),)), "no --mount"),
        (job("reframe", "a.sif", suites=("dna",)), "not a whole path"),
        (job("charliecloud", "/a.sqsh", mounts=(Mount("/data", "/data", read_only=True),)), "for writing too"),
        (job("kubernetes", REGISTRY, mounts=(Mount("ogb_data", "/data"),)), "'ogb_data' is not the name of a claim"),
        (job("pai-dlc", ALIYUN, gpus=3), "1, 4"),
        (job("pai-dlc", ALIYUN, mounts=(Mount("/data/ogb", "/data"),)), "'/data/ogb' is not one"),
        (job("pai-dlc", ALIYUN, workspace="team"), "and this is 'team'"),
        (job("pai-dlc", ALIYUN, "train.sh", per_gpu=True), "python"),
        (job("pyxis", REGISTRY, driver="535.54.03"), "no --driver"),
        (job("singularity", "/a.sif", partition="a b"), "--partition 'a b'"),
        (job("singularity", "/a.sif", time="soon"), "'soon' is not a time limit of Slurm's"),
        (job("singularity", "/a.sif", "python a.py\nrm -r b"), "one line"),
        (job("singularity", "/a.sif", nodes=0), "at least one node"),
    ],
)
def test_job_option_that_the_runtime_lacks_is_refused(wanted, message):
    with pytest.raises(UsageError, match=message):
        jobs.text(wanted)
    assert jobs.text(msgspec.structs.replace(SAMPLES["dlc.json"], gpus=3, instance="ecs.own")).count("ecs.own") == 1


@pytest.mark.parametrize("name", ["My_job", "1gnn", "a" * 60, "a.b"])
def test_name_that_kubernetes_does_not_take_is_refused_with_one_that_it_takes(name):
    with pytest.raises(UsageError) as refused:
        jobs.text(msgspec.structs.replace(SAMPLES["kubernetes.yaml"], name=name))
    given = refused.value.next_step.split()[1]
    assert f"name: {given}}}\n" in jobs.text(msgspec.structs.replace(SAMPLES["kubernetes.yaml"], name=given))


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("name", [name for name in SAMPLES if name.startswith("kubernetes")])
def test_kubernetes_job_passes_the_schema_of_kubernetes(name, version):
    for made in yaml.safe_load_all(jobs.text(SAMPLES[name])):
        validate(made, version, strict=True)


@pytest.mark.parametrize(("field", "value"), [("completionMode", 5), ("completion-mode", "Indexed")])
def test_schema_of_kubernetes_refuses_a_job_with_this_field(field, value):
    _, made = yaml.safe_load_all(jobs.text(SAMPLES["kubernetes-nodes.yaml"]))
    made["spec"][field] = value
    with pytest.raises(ValidationError, match=field):
        validate(made, "1.37", strict=True)


@pytest.mark.parametrize("typed", ['python a.py --title "a: b"', "echo $(date) $HOME $$", "X=1 python a.py # 'c'"])
def test_kubernetes_job_is_yaml_with_the_command_as_typed(typed):
    (made,) = yaml.safe_load_all(jobs.text(job("kubernetes", REGISTRY, typed)))
    (container,) = made["spec"]["template"]["spec"]["containers"]
    words = container["command"]
    assert words[:2] == ["/bin/sh", "-c"]
    assert words[2].replace("$$", "$").removeprefix("exec ") == typed
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_edf_is_toml_with_the_hook_for_the_cuda_of_the_tag():
    made = tomllib.loads(jobs.text(SAMPLES["edf.toml"]))
    assert (made["image"], made["workdir"], made["mounts"]) == (
        "registry.example.com#team/pyg:2.3.1-torch2.0.1-cu118-py311", "/data", ["/capstor/our data:/data"],
    )  # fmt: skip
    assert made["annotations"]["com"]["hooks"]["aws_ofi_nccl"] == {"enabled": "true", "variant": "cuda11"}
    assert "annotations" not in tomllib.loads(jobs.text(SAMPLES["edf-sqsh.toml"]))


def test_reframe_test_is_python_with_the_suites_of_the_stack(typed):
    code, out, err = typed("job", "/site/our images/pyg-cu118.sif", "--runtime", "reframe", "--name", "2nd try")
    assert code == 2, (out, err)
    out = typed("job", "/site/our images/pyg-cu118.sif", "--runtime", "reframe", "--name", "2.3.1")[1]
    parsed = ast.parse(out)
    named = {row.targets[0].id: ast.literal_eval(row.value) for row in parsed.body if isinstance(row, ast.Assign)}
    assert named["IMAGE"] == "/site/our images/pyg-cu118.sif"
    assert {name: Path(rows["cuda"][0].split()[1]).name for name, rows in named["SUITES"].items()} == {
        name: f"{name}.py" for name in ("dna", "ops", "ddp")
    }
    assert [row.name for row in parsed.body if isinstance(row, ast.ClassDef)] == ["_2_3_1_suites"]
    assert "which suites has /site/mine.sif" in typed("job", "/site/mine.sif", "--runtime", "reframe")[2]


@pytest.mark.parametrize(
    ("ref", "runtime", "name"),
    [
        ("pyg:2.3.1-torch2.0.1-cu118-py311", "module", "pyg/2.3.1"),
        ("/site/images/pyg.sif", "module", "pyg"),
        ("pyg:2.3.1-torch2.0.1-cu118-py311", "singularity", "pyg"),
    ],
)
def test_name_of_a_module_has_the_release(ref, runtime, name):
    assert job_image.default_name(ref, runtime) == name


def test_job_resources_follow_the_partition_of_the_target(typed, context):
    with pytest.raises(UsageError, match="a node of dgx2 has 16 GPUs, not 17"):
        in_partition("singularity", "/a.sif", partition="dgx2", gpus=17)
    assert in_partition("singularity", "/a.sif", partition="dgx2", gpus=16).gpus == 16
    described = "gpus = ['H100']\n[partitions.gpu]\ncores_per_gpu = 12\n"
    (context.root / "targets").mkdir()
    for name, cores in (("targets/ours.toml", "12"), ("mine.toml", "3")):
        (context.root / name).write_text(described.replace("12", cores))
    asked = ("job", "/a.sif", "--runtime", "singularity", "--command", "python a.py", "--gpus", "2")
    assert "--cpus-per-task=24" in typed(*asked, "--partition", "gpu")[1]
    assert "--cpus-per-task=6" in typed(*asked, "--partition", "gpu", "--target", "mine.toml")[1]
    _, out, err = typed(*asked, "--target", "mine.toml")
    assert ("--partition=gpu\n" in out, "--cpus-per-task=6" in out) == (True, True), "its only partition"
    assert err == "/a.sif is not here: the job opens that path on its cluster\n"
    _, out, err = typed(*asked, "--partition", "other")
    assert ("cpus-per-task" in out, "--cpus N asks for N for each GPU" in err) == (False, True)


@pytest.mark.parametrize("command", ["OMP_NUM_THREADS=4 python train.py", " _A=1 B=2 python train.py", "A= train"])
@pytest.mark.parametrize("sample", ["dgx2.sbatch", "a100.sbatch", "a100-nodes.sbatch", "docker.sh"])
def test_job_command_with_a_leading_variable_runs_in_sh(sample, command):
    """A runtime would look for a program of that name."""
    text = jobs.text(msgspec.structs.replace(SAMPLES[sample], command=command))
    assert f"sh -c {shlex.quote(command)}\n" in text.replace(" & step=$!\n", "\n")
    assert "sh -c 'python" not in jobs.text(msgspec.structs.replace(SAMPLES[sample], command="python train.py --lr=3"))


@given(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), min_size=1).map(visible).filter(str.strip))
def test_job_command_with_shell_syntax_is_quoted_for_sh(command):
    text = jobs.text(job("docker", "pyg:1", command))
    if f"sh -c {shlex.quote(command)}\n" not in text:
        assert not set(command) & set(";&|<>$`()")
        assert text.endswith(f"    {command}\n")


@given(st.text("abc \"'$`\\;&/", min_size=1, max_size=20))
def test_job_image_path_is_quoted_as_one_word(name):
    path = f"/images/{name}.sif"
    line = next(line for line in jobs.text(job("singularity", path)).splitlines() if line.startswith("image="))
    assert shlex.split(line) == [f"image={path}"]


REACHED = [
    ("pyg:1", "singularity", "{output}/pyg/1/pyg.sif"),
    ("pyg.sqsh", "pyxis", "./pyg.sqsh"),
    ("../images/pyg.sqsh", "pyxis", "../images/pyg.sqsh"),
    ("/lustre/pyg.sqsh", "pyxis", "/lustre/pyg.sqsh"),
    ("pyg.sif", "singularity", "pyg.sif"),
    ("/lustre/pytorch-19.10-py3.simg", "singularity", "/lustre/pytorch-19.10-py3.simg"),
    ("docker://registry.example.com/a/pyg:1", "pyxis", "registry.example.com/a/pyg:1"),
    ("docker:pyg:1", "docker", "pyg:1"),
]
OUT_OF_REACH = [
    ("pyg:2", "singularity", "--to sif"),
    ("pyg:3", "pyxis", "names no registry"),
    ("torch:2.0.1-cu118", "pai-dsw", "names no registry"),
    ("pyg.sif", "docker", "docker opens images on a registry, and not pyg.sif"),
    ("pyg.sqsh", "singularity", "opens .sif"),
    ("pyg.sif", "pyxis", "opens .sqsh"),
    ("pyg.tar", "pyxis", "opens .sqsh, and not pyg.tar"),
    ("pyg.docker.tar", "docker", "docker opens images on a registry, and not pyg.docker.tar"),
    ("registry.example.com/a/b:1", "singularity", "needs a file"),
    ("Not A Name", "docker", "not an image reference"),
    ("docker:pyg:1", "singularity", r"store of docker .* opens \.sif"),
    ("podman:pyg:1", "pai-dlc", "store of podman .* opens images on a registry"),
]


@pytest.mark.parametrize(("ref", "runtime", "expected"), REACHED + OUT_OF_REACH)
def test_find_image_gives_the_file_of_the_runtime_or_is_refused(ref, runtime, expected, tmp_path):
    for tag in "12":
        (tmp_path / "pyg" / tag).mkdir(parents=True)
    (tmp_path / "pyg" / "1" / "pyg.sif").touch()
    if (ref, runtime, expected) in REACHED:
        assert job_image.find_image(ref, runtime, tmp_path) == expected.format(output=tmp_path)
    else:
        with pytest.raises(UsageError, match=expected):
            job_image.find_image(ref, runtime, tmp_path)


@pytest.mark.parametrize(
    ("words", "next_step"),
    [
        (
            "a.sif --runtime slurm",
            "a.sif --runtime singularity --command 'ls -l'    (opens .sif in a job of Slurm); or ",
        ),
        ("a.simg --runtime pyxis", "a.simg --runtime singularity --command 'ls -l'    (opens .simg"),
        ("a.sqsh --runtime apptainer", "a.sqsh --runtime pyxis --command 'ls -l'    (opens .sqsh"),
        ("a.sqsh --runtime podman-hpc", "a.sqsh --runtime pyxis --command 'ls -l'    (opens .sqsh"),
        ("a.sif", "a.sif --command 'ls -l' --runtime singularity\n"),
        ("a.sqsh", "a.sqsh --command 'ls -l' --runtime pyxis\n"),
        ("registry.example/a:1", "registry.example/a:1 --command 'ls -l' --runtime singularity\n"),
    ],
)
@pytest.mark.parametrize("is_here", [False, True])
def test_file_of_another_runtime_is_offered_as_a_job_of_that_one(
    typed, tmp_path, monkeypatch, words, next_step, is_here
):
    monkeypatch.chdir(tmp_path)
    ref, *more = words.split()
    if is_here and "/" not in ref:
        Path(ref).write_bytes(b"x")
    code, out, err = typed("job", ref, *more, "--command", "ls -l")
    assert (code, out) == (2, "")
    assert f"next:  ./build.py job {next_step}" in err


@pytest.mark.parametrize("ref", ["pyg.tar", "docker:pyg:1", "podman:pyg"])
def test_job_of_an_image_that_convert_takes_names_that_command(ref, typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pyg.tar").touch()
    err = typed("job", ref, "--command", "ls", "--runtime", "singularity")[2]
    assert f"next:  ./build.py convert {ref} --to sif" in err


def test_job_paths_with_spaces_are_refused_by_pyxis_mounts_only(typed):
    code, out, err = typed("job", "./my pyg.sqsh", "--runtime", "pyxis", "--command", "python a.py", "--cpus", "2")
    assert (code, "#SBATCH --job-name=my-pyg\n" in out, "image='./my pyg.sqsh'\n" in out) == (0, True, True), err
    for runtime, image in (("singularity", "./a.sif"), ("docker", "pyg:1"), ("pyxis", "./a.sqsh")):
        code, out, err = typed("job", image, "--runtime", runtime, "--command", "ls", "--mount", "/my data:/data")
        assert code == (2 if runtime == "pyxis" else 0), err
        assert ("cannot mount '/my data': there is a space in its path" in err) == (runtime == "pyxis")
        assert ("'/my data:/data'" in out) == (runtime != "pyxis")
    assert [bool(jobs.mountable(path)) for path in ("/a b", "/a,b", "/a:b", "/a-b")] == [True, True, True, False]


def test_read_mount_takes_source_target_and_mode():
    assert read_mount("/a:/b") == read_mount("/a:/b:rw") == Mount("/a", "/b")
    assert read_mount("/a:/b:ro") == Mount("/a", "/b", read_only=True)
    assert read_mount("/a:/b:ro").typed == "/a:/b:ro"
    for wrong in ("/a", "/a:b", ":/b", "/a:/b:", "/a:/b:rx", "/a:/b:ro:ro", "/a,b:/c"):
        with pytest.raises(UsageError, match="SOURCE:TARGET"):
            read_mount(wrong)


@pytest.mark.parametrize(
    ("runtime", "image", "written"),
    [
        ("singularity", "/a.sif", "--bind /data:/data:ro"),
        ("docker", "pyg:1", "--volume /data:/data:ro"),
        ("podman-hpc", REGISTRY, "--volume /data:/data:ro"),
        ("pyxis", REGISTRY, "$PWD:$PWD,/data:/data:ro"),
        ("edf", REGISTRY, '"/data:/data:ro"'),
        ("module", "/a.sif", "--bind /data:/data:ro"),
        ("oci", "/a.sqsh", '"source": "/data", "options": ["rbind", "ro"]'),
        ("pai-dlc", ALIYUN, '"MountAccess": "RO"'),
        ("kubernetes", REGISTRY, 'mountPath: "/data", readOnly: true'),
    ],
)
def test_mount_for_reading_is_written_as_the_runtime_takes_it(runtime, image, written):
    source = "data" if runtime in ("kubernetes", "pai-dlc") else "/data"
    held, open_ = Mount(source, "/data", read_only=True), Mount(source, "/data")
    assert written in jobs.text(job(runtime, image, mounts=(held,)))
    assert written not in jobs.text(job(runtime, image, mounts=(open_,)))


def test_every_runtime_that_mounts_for_reading_is_tried():
    tried = {"singularity", "docker", "podman-hpc", "pyxis", "edf", "module", "oci", "pai-dlc", "kubernetes"}
    assert {name for name, form in JOBS.items() if form.mounts and form.read_only} == tried


def test_interface_of_the_nodes_goes_to_containers_that_see_it_alone():
    """NCCL ends where it is told an interface that a pod does not have."""
    written = {
        name: "NCCL_SOCKET_IFNAME" in jobs.text(on_fabric("infiniband", name, image, nodes=nodes, interface="ib0"))
        for name, image, nodes in (
            ("kubernetes", REGISTRY, 2), ("docker", "pyg:1", 1), ("pyxis", REGISTRY, 2), ("singularity", "/a.sif", 2),
            ("podman-hpc", REGISTRY, 2),
        )
    }  # fmt: skip
    assert written == {
        "kubernetes": False, "docker": False, "pyxis": True, "singularity": True, "podman-hpc": True,
    }  # fmt: skip


def test_image_and_job_names_follow_the_reference():
    assert job_image.image_name("registry.example.com:5000/team/pyg:1@sha256:00") == "pyg"
    assert job_image.image_name("/lustre/pyg.sif") == "pyg"
    assert [job_image.job_name(ref) for ref in ("./my pyg.sqsh", "/lustre/pyg.sif", "./ .sif")] == [
        "my-pyg",
        "pyg",
        "job",
    ]
    for name, runtime in {"apptainer": "singularity", "enroot": "pyxis", "podman": "docker"}.items():
        assert read_runtime(name) == runtime


STACKS = [recipes.load(path) for path in sorted((ROOT / "recipes").glob("*.toml"))]


@pytest.mark.parametrize(
    ("ref", "program"),
    [
        ("torch:2", "torch_check.py"),
        ("pyg:2", "dna.py"),
        ("registry.example.com/team/pyg:2.3.1", "dna.py"),
        ("/lustre/pyg-cu118.sif", "dna.py"),
        ("/lustre/torch_2.0.1.sif", "torch_check.py"),
        ("torchrec-lab:1", ""),
        ("pygmalion:1", ""),
        ("torch-lab:1", ""),
        ("mine:1", ""),
    ],
)
def test_default_command_is_that_of_the_stack_or_refused(ref, program, tmp_path):
    if program:
        assert job_image.default_command(ref, tmp_path, STACKS) == f"python /opt/graphcrate/examples/{program}"
    else:
        with pytest.raises(UsageError, match="what shall run in"):
            job_image.default_command(ref, tmp_path, STACKS)


@pytest.mark.parametrize("ref", ["torchrec-lab:1", "{output}/torchrec-lab/1/torchrec-lab.sif"])
def test_default_command_of_an_own_image_is_that_of_its_stack(ref, tmp_path):
    folder = tmp_path / "torchrec-lab" / "1"
    layout = small_layouts.layout(folder, [tars.file("a")], tag="1")
    asked = BuildParameters(recipe="pyg", variant="11.8")
    report = small_layouts.report(layout, name="torchrec-lab", asked=asked)
    (folder / "report.json").write_bytes(encode(report))
    assert job_image.default_command(ref.format(output=tmp_path), tmp_path, STACKS).endswith("/dna.py")


def test_stack_programs_are_files_in_examples():
    assert [stack.name for stack in STACKS if not (ROOT / "examples" / (stack.program or "none")).is_file()] == []


def test_pulling_gives_the_commands_for_each_runtime():
    inside = parse("registry-vpc.example:5000/team/pyg:1.0")
    told = pulling(parse("registry.example:5000/team/pyg:1.0"), "pyg", inside=inside)
    assert told["docker"] == "docker run --gpus all --rm -it registry.example:5000/team/pyg:1.0"
    assert told["singularity"] == "singularity pull pyg.sif docker://registry.example:5000/team/pyg:1.0"
    assert told["srun"].startswith("srun --container-image='registry.example:5000#team/pyg:1.0' python /opt/")
    assert told["enroot"] == "enroot import --output pyg.sqsh 'docker://registry.example:5000#team/pyg:1.0'"
    assert told["pai"] == str(inside)
    assert "pai" not in pulling(parse("registry.example/pyg:1"), "pyg")
    assert "pai-accelerated" not in told, "of an Enterprise instance alone"
    own = "acme-registry.cn-shanghai.cr.aliyuncs.com/a/pyg:1"
    told = pulling(parse(own), "pyg", inside=parse(own.replace("registry", "registry-vpc")))
    assert told["pai-accelerated"].split()[0] == "acme-registry-vpc.cn-shanghai.cr.aliyuncs.com/a/pyg:1_accelerated"
    plain = pulling(parse("10.0.0.5:5000/pyg:1"), "pyg", plain_http=True)
    for_cpus = pulling(parse("registry.example/pyg:1"), "pyg", on_gpus=False)
    assert for_cpus["docker"] == "docker run --rm -it registry.example/pyg:1", "no toolkit of NVIDIA's is needed"
    assert plain["singularity"].startswith("singularity pull --no-https pyg.sif")
    assert plain["enroot"].startswith("ENROOT_ALLOW_HTTP=yes enroot import")
    assert '"insecure-registries": ["10.0.0.5:5000"]' in plain["docker"]


if __name__ == "__main__":
    for file, sample in SAMPLES.items():
        (GOLDEN / file).write_text(jobs.text(sample))

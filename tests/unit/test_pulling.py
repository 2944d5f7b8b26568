"""render.pulling: what users of a published image type."""

from graphcrate.engines.render import pulling
from graphcrate.oci.reference import parse


def test_an_image_on_a_registry():
    assert pulling.lines(parse("registry.example:5000/team/pyg:1.0"), "pyg") == {
        "docker": "docker run --gpus all --rm -it registry.example:5000/team/pyg:1.0",
        "singularity": "singularity pull pyg.sif docker://registry.example:5000/team/pyg:1.0",
        "srun": "srun --container-image='registry.example:5000#team/pyg:1.0' "
        "python /opt/graphcrate/examples/torch_check.py",
        "enroot": "enroot import --output pyg.sqsh 'docker://registry.example:5000#team/pyg:1.0'",
    }


def test_inside_of_the_clouds_network():
    found = pulling.lines(
        parse("registry.cn-hangzhou.aliyuncs.com/ns/pyg:1.0"),
        "pyg",
        inside=parse("registry-vpc.cn-hangzhou.aliyuncs.com/ns/pyg:1.0"),
    )
    assert found["pai"] == "registry-vpc.cn-hangzhou.aliyuncs.com/ns/pyg:1.0"

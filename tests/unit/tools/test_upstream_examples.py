"""Upstream's examples and GLT's tests: what is changed in an example before it runs, and what needs GPUs."""

from types import SimpleNamespace

import pytest

from tools.upstream_examples import run_example
from tools.upstream_glt import conftest as glt

LOOP = """loader = ClusterLoader(data, num_workers=12)
device = torch.device(0)
for epoch in range(1, 201):
    for step in range(1, 201):
"""


@pytest.mark.parametrize("gpu", [False, True])
def test_example_gets_generated_data_few_workers_and_the_cpu_where_no_gpu_is(gpu, monkeypatch):
    monkeypatch.setattr(run_example, "has_gpu", lambda: gpu)
    first, loader, device, loop, inner = run_example.changed(LOOP, 3).splitlines()
    assert first == "import generated; generated.install()"
    assert loader == "loader = ClusterLoader(data, num_workers=2)"
    assert device == ("device = torch.device(0)" if gpu else 'device = torch.device("cpu")')
    assert (loop, inner.strip()) == ("for epoch in range(1, 4):", "for step in range(1, 201):")
    assert run_example.changed(changed := run_example.changed(LOOP, 3), 3) == changed, "it runs twice"
    assert "range(1, 201):" in run_example.changed(LOOP, 0).splitlines()[3], "it has an option for its epochs"


def test_example_whose_loop_is_written_in_another_way_is_not_run_for_all_its_epochs(monkeypatch):
    monkeypatch.setattr(run_example, "has_gpu", lambda: True)
    with pytest.raises(AssertionError, match="another way"):
        run_example.changed(LOOP.replace("range(1, 201)", "range(200)"), 3)


def test_example_that_a_version_does_not_have_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(run_example, "EXAMPLES", tmp_path)
    with pytest.raises(pytest.skip.Exception, match=r"gcn\.py is not in this version"):
        run_example.run_example("gcn.py")


def test_example_that_fails_is_told_by_its_error_first(tmp_path, monkeypatch):
    (tmp_path / "gcn.py").write_text("x")
    error = SimpleNamespace(returncode=1, stdout="Epoch: 1\n", stderr="Traceback …\nTypeError: no 'group'\n\n")
    for name, value in (("HERE", tmp_path), ("EXAMPLES", tmp_path), ("has_gpu", lambda: False)):
        monkeypatch.setattr(run_example, name, value)
    monkeypatch.setattr(run_example.subprocess, "run", lambda *_, **__: error)
    with pytest.raises(pytest.fail.Exception, match=r"^gcn\.py ended with 1: TypeError: no 'group'\nEpoch: 1"):
        run_example.run_example("gcn.py")
    assert run_example.last_line("\n") == "without a word"


def test_glt_tests_need_gpus_by_file_or_by_test():
    assert glt.gpus("test_dist_feature.py", "test_dist_feature_lookup") == 2
    assert glt.gpus("test_graph.py", "test_cuda_graph_init") == 1
    assert glt.gpus("test_graph.py", "test_cpu_graph_init") == 0
    assert glt.gpus("test_partition.py", "test_random_homo_partition") == 0

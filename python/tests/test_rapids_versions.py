"""What `alluvion.rapids` says where there is no RMM, or one that it has no door for."""

import os
import subprocess
import sys

import pytest


def run(program, *paths):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), os.environ["PYTHONPATH"]])}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)


USES = ["from alluvion.rapids import DeviceResource", "import alluvion.rapids; alluvion.rapids.install('cuda')"]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("raise ImportError('it is broken')", "needs the package rmm, which cannot be imported: it is broken"),
        ("__version__ = '25.08.00'", "has no door for rmm 25.08.00: it has them for 25.10, 25.12, 26.02, 26.04, 26.06, 26.08, 26.10"),
        ("__version__ = '27.02.00'", "has no door for rmm 27.02.00"),
        ("__version__ = 'dev'", "has no door for rmm dev"),
        ("", "has no door for rmm unknown"),
    ],
)
def test_an_rmm_without_a_door_is_an_import_error(tmp_path, use, module, said):
    (tmp_path / "rmm.py").write_text(module)
    ended = run(use, tmp_path)
    assert ended.returncode == 1 and "ImportError: alluvion.rapids" in ended.stderr and said in ended.stderr


@pytest.mark.parametrize("use", USES)
def test_the_stand_in_is_no_rmm_to_have_a_door_for(use):
    ended = run("import alluvion.rmm; alluvion.rmm.install(); " + use)
    assert ended.returncode == 1 and "ImportError: alluvion.rmm stands in for rmm in this process" in ended.stderr


def test_the_module_itself_needs_no_rmm(tmp_path):
    (tmp_path / "rmm.py").write_text("raise ImportError('it is broken')")
    ended = run("import alluvion.rapids, alluvion.rapids.preload, alluvion.rapids.build; print(alluvion.rapids.__all__)", tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "['DeviceResource', 'install']\n"), ended.stderr
    ended = run("import alluvion.rapids; alluvion.rapids.nothing", tmp_path)
    assert "AttributeError: module 'alluvion.rapids' has no attribute 'nothing'" in ended.stderr

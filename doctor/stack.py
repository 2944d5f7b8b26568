"""Python packages: do their versions go together, does each extension load, does torch see the GPU and why not."""

import json
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from doctor.container import Interpreter, names_in
from doctor.cuda import newest_fitting, oldest_driver
from doctor.driver import Nvidia, fix_for_gpu
from doctor.facts import GLT_RELEASES
from doctor.finding import Finding, fail, listed, note, numbers, ok, warn
from doctor.host import Done, Host
from doctor.symbols import has_new_strings, has_old_strings, owner_of, readable

IMPORT_LIMIT = 240.0  #: seconds for torch and all extensions; a cold network disk is slow
EXTENSIONS = ("torch_scatter", "torch_sparse", "torch_cluster", "torch_spline_conv", "pyg_lib")
#: imported after torch, in this order
IMPORTED = (
    *EXTENSIONS,
    "torch_geometric",
    "graphlearn_torch",
    "torchvision",
    "torchaudio",
    "torchtext",
    "dgl",
    "numpy",
)
#: Imports torch once, then each package in a process of its own that begins where torch is there: a crash is an answer.
#: CUDA is asked last, for a process that has started it cannot be forked.
IMPORT_ALL = r"""
import json, os, signal, sys, traceback, warnings
def tell(**what):
    print("@doctor " + json.dumps(what), flush=True)
def short(error):
    return type(error).__name__ + ": " + str(error)
def trial(name):
    said, say = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(said)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        heard = []
        warnings.showwarning = lambda message, *rest, **more: heard.append(str(message))
        warnings.simplefilter("always")
        answer = {"error": ""}
        try:
            __import__(name)
            if name == "torch_geometric":
                __import__("torch_geometric.nn")
        except BaseException as error:
            answer["error"] = short(error)
        answer["heard"] = [text for text in heard if "Disabling its usage" in text or "compiled using NumPy 1" in text]
        os.write(say, json.dumps(answer).encode())
        os._exit(0)
    os.close(say)
    with os.fdopen(said, "rb") as stream:
        told = stream.read()
    status = os.waitpid(child, 0)[1]
    answer = json.loads(told.decode()) if told else {}
    if os.WIFSIGNALED(status):
        answer["signal"] = signal.Signals(os.WTERMSIG(status)).name
    elif not told:
        answer["error"] = "ended with exit code %d" % (status >> 8)
    tell(name=name, **answer)
try:
    import torch
except BaseException as error:
    tell(name="torch", error=short(error))
    raise SystemExit
tell(name="torch", error="", version=torch.__version__, cuda=torch.version.cuda, file=torch.__file__,
     abi=bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", False)))
for each in sys.argv[1:]:
    trial(each)
told = {"available": False, "error": "", "count": 0, "archs": [], "gpus": []}
try:
    told["available"] = torch.cuda.is_available()
    told["archs"] = torch.cuda.get_arch_list()
    if not told["available"] and torch.version.cuda:
        torch.cuda.init()
    told["count"] = torch.cuda.device_count()
    for index in range(told["count"]):
        told["gpus"].append([torch.cuda.get_device_name(index), list(torch.cuda.get_device_capability(index))])
    if told["available"]:
        torch.ones(8, device="cuda").sum().item()
except BaseException as error:
    told["error"] = short(error)
tell(name="cuda", **told)
"""


def installed_in(host: Host, python: Interpreter) -> Dict[str, str]:
    """Distributions that Python would find, the first of each name: its version, or nothing where it has no record."""
    found: Dict[str, str] = {}
    for folder in python.path:
        for name, version in names_in(host, folder).items() if folder else ():
            if version or name not in found:
                found[name] = found.get(name) or version
    return found


def judge_versions(host: Host, installed: Dict[str, str]) -> Iterator[Finding]:
    """Yield what distributions say of each other, without importing anything."""
    torch = installed.get("torch", "")
    if not torch:
        return
    own = [name for name in ("torch", *IMPORTED) if installed.get(name)]
    yield ok("packages", listed((f"{name} {installed[name]}" for name in own), 12))
    series = ".".join(str(part) for part in numbers(torch)[:2])
    for name in EXTENSIONS:
        built = re.search(r"\+pt(\d)(\d+)(cu\d+|cpu)$", installed.get(name, ""))  # PyG's own wheels: +pt113cu117
        if not built:
            continue
        for_torch, for_cuda = f"{built.group(1)}.{built.group(2)}", built.group(3)
        seen = f"{name} {installed[name]} beside torch {torch}"
        if for_torch != series:
            why = f'its symbols are of torch {for_torch}: `undefined symbol`, or PyG\'s "Disabling its usage"'
            fix = f"pip install --force-reinstall {name} -f the page of PyG for torch {torch}"
            yield fail("extension-version", seen, why, fix)
        elif "+" in torch and for_cuda != torch.split("+")[1]:
            why = f"it was built for {for_cuda}, torch for {torch.split('+')[1]}"
            yield fail("extension-version", seen, why, "a wheel of the same CUDA, from the page of PyG for it")
    yield from _glt(installed, torch, series)
    stated = host.environment.get("PYTORCH_VERSION")
    if stated and stated.split("+")[0] != torch.split("+")[0]:
        why = "another torch than the image's own is found first"
        yield warn(
            "pytorch-version",
            f"PYTORCH_VERSION={stated}, torch {torch}",
            why,
            "python -c 'import torch; print(torch.__file__)'",
        )


def _glt(installed: Dict[str, str], torch: str, series: str) -> Iterator[Finding]:
    version = installed.get("graphlearn_torch", "")
    fitting = [release for release, (fits, _) in GLT_RELEASES.items() if series in fits]
    if not version or version not in GLT_RELEASES:
        return
    seen = f"graphlearn-torch {version} beside torch {torch}"
    if series not in GLT_RELEASES[version][0]:
        why = f"it was compiled for torch {listed(GLT_RELEASES[version][0])}: `undefined symbol`"
        fix = (
            f"pip install graphlearn-torch=={max(fitting, key=numbers)}"
            if fitting
            else "torch 2.3: an image of the recipe `glt`"
        )
        yield fail("glt", seen, why, fix)
    elif "torch_sparse" not in installed:
        yield fail("glt", seen + ", and no torch_sparse", "it imports torch_sparse first", "pip install torch_sparse")
    else:
        yield ok("glt", seen)


def judge_imports(host: Host, installed: Dict[str, str], nvidia: Nvidia, container: str) -> Iterator[Finding]:
    """Import everything for real, and ask torch for the GPU."""
    wanted = [name for name in IMPORTED if name in installed]
    done = host.run([host.python, "-c", IMPORT_ALL, *wanted], limit=IMPORT_LIMIT)
    told = [json.loads(line[8:]) for line in (done.out if done else "").splitlines() if line.startswith("@doctor ")]
    whole = [answer["name"] for answer in told if answer["name"] != "cuda" and _went_well(answer)]
    if whole:
        yield ok("imports", f"can be imported: {listed(whole, len(whole))}")
    for answer in told:
        name = answer["name"]
        if name == "cuda":
            yield from judge_torch_gpu(host, answer, told[0], nvidia, container)
        elif not _went_well(answer):
            yield import_finding(name, answer, told[0])
    if done is None or done.code != 0 or not told:
        seen = "importing ended " + _how(done)
        why = "after {}".format(told[-1]["name"]) if told else "before torch was there"
        yield fail("import", seen, why, "python -X faulthandler -c 'import torch'    shows where")


def _how(done: Optional[Done]) -> str:
    if done is None:
        return "before it began: python cannot be started"
    if done.code is None:
        return f"by the time limit of {IMPORT_LIMIT:.0f} s"
    last = (done.err.strip().splitlines() or [""])[-1]
    return f"by signal {-done.code}" if done.code < 0 else f"with exit code {done.code}: {last}"


def _went_well(answer: Dict[str, Any]) -> bool:
    return not (answer.get("signal") or answer.get("error") or answer.get("heard"))


def import_finding(name: str, answer: Dict[str, Any], torch: Dict[str, Any]) -> Finding:
    """Return the finding on an import that did not go well."""
    heard: List[str] = answer.get("heard") or []
    if answer.get("signal"):
        why = "its binary does not fit this torch, CUDA or processor, or is broken"
        fix = f"python -X faulthandler -c 'import torch, {name}'"
        return fail("import", "{} crashes ({})".format(name, answer["signal"]), why, fix)
    if answer.get("error"):
        seen = "{}: {}".format(name, " ".join(readable(answer["error"]).split()))
        return fail("import", seen[:600], *_import_reason(name, answer["error"], torch))
    text = " ".join(readable(" ".join(heard)).split())
    seen = f"{name} says: {text}"[:600]
    if "NumPy" in text:
        return fail("import", seen, "a package was built for NumPy 1", "pip install 'numpy<2'")
    return fail(
        "import", seen, "PyG goes on without it: slower, or a crash later", _import_reason(name, text, torch)[1]
    )


def _import_reason(name: str, error: str, torch: Dict[str, Any]) -> Tuple[str, str]:
    symbol = re.search(r"undefined symbol: ([\w.$@]+)", error)
    with_torch = "torch {}".format(torch.get("version", "")).strip()
    renew = "pip install --force-reinstall {} built for {} (CUDA {})".format(name, with_torch, torch.get("cuda"))
    if symbol:
        owner = owner_of(symbol.group(1)) or "a library"
        if has_old_strings(symbol.group(1)) or has_new_strings(symbol.group(1)):
            return f"it was built for a torch of another version or C++ ABI than {with_torch}", renew
        return f"it was built for another version of {owner} than there is", renew
    version = re.search(r"version `(\w+_[\d.]+)' not found \(required by ([^)]+)\)", error)
    if version:
        why = "{} was built on a newer system than this one".format(version.group(2).rsplit("/", 1)[-1])
        return why, f"an image with a newer base; or build {name} from source here"
    library = re.search(r"(lib[\w+.-]+\.so[\w.]*): cannot open shared object", error)
    if library:
        why = f"it was linked to {library.group(1)}, which is not here: a build for another CUDA"
        return why, renew
    if "No module named" in error:
        return "something that it imports is not installed", "pip install the module that is named"
    modules = "torch" if name == "torch" else f"torch, {name}"
    return "see `doctor --explain` with the whole message", f"python -c 'import {modules}'"


def judge_torch_gpu(
    host: Host, cuda: Dict[str, Any], torch: Dict[str, Any], nvidia: Nvidia, container: str
) -> Iterator[Finding]:
    """Yield whether torch works on the GPU; if not, the one cause of the many."""
    version, built = torch.get("version", ""), torch.get("cuda")
    there = bool(nvidia.devices or nvidia.on_bus or nvidia.driver)
    if cuda["available"] and not cuda["error"]:
        yield ok(
            "torch-gpu",
            "torch {} works on {} GPU(s): {}".format(version, cuda["count"], listed(gpu[0] for gpu in cuda["gpus"])),
        )
        return
    seen = f"torch {version} does not use the GPU"
    if not built:
        if there:
            why, fix = (
                "it is a build for the CPU",
                "an image for CUDA: make image CUDA=…; pip install torch from a CUDA index",
            )
            yield fail("torch-gpu", seen, why, fix)
        else:
            yield ok("torch-gpu", f"torch {version} is a build for the CPU, and there is no GPU")
        return
    if not there:
        why = "there is no GPU, or the container does not see it"
        yield note(
            "torch-gpu",
            f"torch {version} for CUDA {built} runs on the CPU here",
            why,
            fix_for_gpu(container) if container else "",
        )
        return
    yield fail("torch-gpu", seen, *why_torch_sees_none(host, cuda, built, nvidia, container))


def why_torch_sees_none(
    host: Host, cuda: Dict[str, Any], built: str, nvidia: Nvidia, container: str
) -> Tuple[str, str]:
    """(cause, fix), the first that holds."""
    if not nvidia.devices:
        return "there is no /dev/nvidia0 (see `devices`)", fix_for_gpu(container)
    visible = host.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU", "unset CUDA_VISIBLE_DEVICES; srun --gres=gpu:1"
    if not nvidia.loaded:
        return "libcuda is not there (see `libcuda`)", fix_for_gpu(container)
    oldest = oldest_driver(built)
    if nvidia.driver and oldest and numbers(nvidia.driver) < numbers(oldest):
        better = newest_fitting(nvidia.driver, nvidia.capabilities)
        fix = (
            f"an image for CUDA {better}: make image CUDA={better}; or driver {oldest}"
            if better
            else "driver " + oldest
        )
        return f"driver {nvidia.driver} is too old for CUDA {built}, which needs {oldest}", fix
    if nvidia.code not in (None, 0):
        return f"CUDA does not start: cuInit answers {nvidia.code} (see `libcuda`)", "nvidia-smi"
    archs, text = cuda.get("archs") or [], cuda.get("error", "")
    if "no kernel image" in text or any(_lacks(archs, gpu.capability) for gpu in nvidia.gpus):
        kinds = listed("sm_" + code.replace(".", "") for code in nvidia.capabilities)
        better = newest_fitting(nvidia.driver, nvidia.capabilities)
        fix = f"make image CUDA={better}" if better else f"a torch that was built for {kinds}"
        return f"this torch was built for {listed(archs, 12)}, and not for {kinds}", fix
    return text or "torch gives no reason", "doctor --explain 'the whole message'"


def _lacks(archs: List[str], capability: str) -> bool:
    """As suites/proof/stack.py has it: machine code of the same major version, or PTX of any older one."""
    wanted = numbers(capability)
    for name in archs:
        found = re.match(r"(sm|compute)_(\d+)(\d)([af]?)$", name)
        if found:
            code = (int(found.group(2)), int(found.group(3)))
            if code == wanted[:2] or (found.group(1) == "compute" and not found.group(4) and code <= wanted):
                return False
            if found.group(1) == "sm" and found.group(4) != "a" and code[0] == wanted[0] and code[1] <= wanted[1]:
                return False
    return bool(archs)

"""The Python package: its wheel is built from the program under test, installed into a fresh environment, and used with the real clients.

LOCKSTEP_BINARY names the program (default build/lockstep under the repository). The fresh environment has pip and this package alone; the
clients are those of the environment that runs these tests, seen through a path file.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build/lockstep")).resolve()
# One host; as root, and more processes than processors.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_plm": "isolated", "TMPDIR": "/tmp"}


def run(*command, status=0, **options):
    environment = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "HF_HUB_OFFLINE": "1", "TINKER_TELEMETRY": "0"}
    result = subprocess.run([str(c) for c in command], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == status, f"{command}: {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout + result.stderr


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    printed = run(sys.executable, "-B", REPOSITORY / "python/backend.py", "--binary", BINARY, "--out", out)
    [path] = out.glob("*.whl")
    assert printed.strip() == str(path)
    return path


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The python of a fresh environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("fresh") / "env"
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin/python"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-input", "--disable-pip-version-check", wheel)
    run(python, "-c", "import lockstep, sys; assert 'tinker' not in sys.modules and 'openai' not in sys.modules")
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "clients.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def script(installed, text, status=0):
    return run(installed, "-B", "-c", text, status=status)


def test_the_wheel_says_what_it_needs(wheel, installed):
    assert re.fullmatch(r"lockstep-[0-9.]+-py3-none-manylinux_2_\d+_x86_64\.whl", wheel.name), wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert archive.testzip() is None and {"lockstep/py.typed", "lockstep/bin/lockstep", "lockstep/models/countdown-glm/model.safetensors", "lockstep/models/agent-glm/model.safetensors", "lockstep/models/agent-glm/chat_template.jinja", "lockstep/recipes/countdown_rl.toml"} <= names
    # No file of it asks for a newer glibc than its name promises, and the oldest promise that holds is made.
    folder = Path(script(installed, "import lockstep; print(lockstep.program().parents[1])").strip())
    files = [folder / "bin/lockstep", *sorted((folder / "lib").iterdir())]
    asked = [tuple(map(int, v.split("."))) for f in files for v in re.findall(r"GLIBC_(\d+\.\d+)", run("objdump", "-T", f))]
    assert max(asked) == tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)", wheel.name).groups()))


def test_nothing_but_libc_is_taken_from_the_system(installed):
    folder = Path(script(installed, "import lockstep; print(lockstep.program().parents[1])").strip())
    loaded = dict(re.findall(r"(\S+) => (/\S+)", run("ldd", folder / "bin/lockstep")))
    own = {name for name, path in loaded.items() if Path(path).resolve().is_relative_to(folder.resolve())}
    assert {"libstdc++.so.6", "libcrypto.so.3", "libsqlite3.so.0"} <= own, loaded
    assert set(loaded) - own <= {"libc.so.6", "libm.so.6"}, loaded
    # The control: the same program without its libraries beside it takes them from the system.
    elsewhere = dict(re.findall(r"(\S+) => (/\S+)", run("ldd", BINARY)))
    assert set(loaded) == set(elsewhere) and not any(Path(p).resolve().is_relative_to(folder.resolve()) for p in elsewhere.values())


def test_processes_of_open_mpi_share_its_ranks(installed):
    module = BINARY.with_name("lockstep_mpi.so")
    folder = Path(script(installed, "import lockstep; print(lockstep.program().parents[1])").strip())
    assert (folder / "lib/lockstep_mpi.so").exists() == module.exists()
    if not module.exists() or not shutil.which("mpirun"):
        pytest.skip("no Open MPI")
    doctor = [installed.parent / "lockstep", "doctor", "--ranks", "tp=2", "--transport", "mpi", "--quick", "--threads", "1"]
    said = run("env", *(f"{name}={value}" for name, value in OPEN_MPI.items()), "mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", *doctor)
    assert "the same bits in 2 processes" in said and "these ranks are fit" in said, said
    assert "mpirun did not start" in run(*doctor, status=1), "the control: a process that is alone"


def test_the_command_is_the_program(installed):
    command = installed.parent / "lockstep"
    assert run(command, "--version") == run(BINARY, "--version")
    said = script(installed, "import lockstep; print(lockstep.__version__)").strip()
    assert run(command, "--version").splitlines()[0].startswith(f"lockstep {said}, commit "), said
    assert "did you mean" in run(command, "generat", status=2)
    assert run(installed, "-m", "lockstep", "info", script(installed, "import lockstep; print(lockstep.shipped_model())").strip(), "--json")


def test_a_server_trains_and_samples_through_the_real_clients(installed):
    said = script(installed, """
import json, lockstep, tinker
from tinker import types
with lockstep.serve(threads=1) as server:
    assert server.running and server.base_url.startswith("http://127.0.0.1:"), server
    openai = server.openai()
    ask = lambda: openai.completions.create(model=server.model, prompt="3 7 12=48:", max_tokens=8, temperature=0).choices[0].text
    text = ask()
    client = server.tinker().create_lora_training_client(base_model=server.model, rank=4).result()
    tokens = [1, 5, 7, 9, 11, 13, 8, 6, 3, 2]
    tensor = lambda values, dtype: types.TensorData(data=list(values), dtype=dtype, shape=[len(values)])
    datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={"target_tokens": tensor(tokens[1:], "int64"), "weights": tensor([1.0] * 9, "float32")})
    losses = []
    for step in range(2):
        losses.append(client.forward_backward([datum], "cross_entropy").result().metrics["loss:sum"])
        client.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    process, log = server.pid, server.log
    again = ask()
print(json.dumps({"text": text, "again": again, "losses": losses, "status": server.stop(), "running": server.running, "log": log.exists()}))
""")
    result = json.loads(said.strip().splitlines()[-1])
    assert result["text"] and result["text"] == result["again"], result  # the base is what it was
    assert result["losses"][1] < result["losses"][0], result
    assert result["status"] == 0 and not result["running"] and not result["log"], result


def test_a_server_that_fails_shows_its_log(installed):
    said = script(installed, "import lockstep; lockstep.serve('/nowhere/model')", status=1)
    assert "LockstepError: the server ended with status 1 before it was ready; the end of its log:\nerror: " in said and "/nowhere/model" in said, said
    said = script(installed, "import lockstep; lockstep.serve(options=['--no-such-flag'])", status=1)
    assert "ended with status 2" in said and "unknown option '--no-such-flag'" in said, said
    said = script(installed, "import lockstep; lockstep.serve(start_seconds=0)", status=1)
    assert "was not ready within 0 s" in said, said


def test_a_server_ends_with_its_interpreter(installed):
    said = script(installed, "import lockstep; print('pid', lockstep.serve(training=False, threads=1).pid)")
    pid = int(re.search(r"pid (\d+)", said)[1])
    assert not Path(f"/proc/{pid}").exists()


def test_state_outlives_a_server(installed, tmp_path):
    said = script(installed, f"""
import lockstep
for step in range(2):
    with lockstep.serve(state={str(tmp_path / 'state')!r}, threads=1, aliases=["Qwen/Qwen3-8B"]) as server:
        service = server.tinker()
        if step == 0:
            client = service.create_lora_training_client(base_model="Qwen/Qwen3-8B", rank=4).result()
            path = client.save_state("kept").result().path
        else:
            client = service.create_training_client_from_state(path)
            client = client.result() if hasattr(client, "result") else client
            print("resumed", client.get_info().model_data.lora_rank if hasattr(client.get_info().model_data, "lora_rank") else client.get_info())
""")
    assert "resumed" in said, said


def test_a_wheel_of_another_program_is_refused(tmp_path):
    said = run(sys.executable, "-B", REPOSITORY / "python/backend.py", "--binary", "/bin/true", "--out", tmp_path, status=1)
    assert "does not look for its libraries in $ORIGIN/../lib" in said
    assert not list(tmp_path.iterdir())


def test_what_comes_along_is_found_from_any_folder(installed, tmp_path):
    command = installed.parent / "lockstep"
    assert run(command, "generate", "--model", "countdown-glm", "--prompt", "16 19 14=17:", "--temperature", "0", cwd=tmp_path).strip() == "19-16=3,14+3=17"
    run(command, "train", "rl", "--config", "countdown_rl.toml", "--set", "steps=1", "--set", "warmup=0", "--set", "problems=2", "--no-page", cwd=tmp_path)
    assert (tmp_path / "runs/countdown-rl/export/config.json").exists()
    # What is here comes first.
    (tmp_path / "countdown-glm").mkdir()
    assert "config.json" in run(command, "generate", "--model", "countdown-glm", "--prompt", "1", cwd=tmp_path, status=1)


@pytest.mark.parametrize("page", ["README.md", "python/README.md", "docs/training-api.md"])
def test_the_python_of_the_readme_runs(installed, page, tmp_path):
    """Its blocks as they stand, in an empty folder; one that names a server's address has a server there."""
    blocks = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / page).read_text(), re.M | re.S)
    assert blocks
    serves = False
    for block in blocks:
        before = ""
        if "127.0.0.1:8080" in block:
            serves = True
            before = f"import lockstep; local = lockstep.serve(threads=1, state={str(tmp_path / 'state')!r})\n"
            block = re.sub(r'"http://127\.0\.0\.1:8080(/v1)?"', r'local.base_url + "\1"', block)
        if "forward_backward(data" in block:  # the reader's own
            before += DATA[("tinker", "fireworks")["fireworks" in block]]
        run(installed, "-B", "-c", before + block, cwd=tmp_path)
    assert serves == (page != "python/README.md")


# What stands for `data` in the training API's page: one sequence, as each package has it.
DATA = {
    "tinker": """
from tinker import types
row = lambda values, dtype: types.TensorData(data=values, dtype=dtype, shape=[3])
data = [types.Datum(model_input=types.ModelInput.from_ints([1, 5, 7]), loss_fn_inputs={"target_tokens": row([5, 7, 9], "int64"), "weights": row([1.0] * 3, "float32")})]
""",
    "fireworks": """
import fireworks.training.sdk.types as types
row = lambda values, dtype: types.TensorData(data=values, dtype=dtype, shape=[3])
data = [types.Datum(model_input=types.ModelInput.from_ints([1, 5, 7]), loss_fn_inputs={"target_tokens": row([5, 7, 9], "int64"), "logprobs": row([-1.0] * 3, "float32"), "advantages": row([1.0] * 3, "float32")})]
""",
}


def test_python_build_makes_both(tmp_path):
    """`python -m build` in the checkout, by the hooks that it calls, in its order: the wheel is made of the sources that were packed."""
    hook = "import sys, pathlib; sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / 'python')); import backend; print(getattr(backend, sys.argv[2])(sys.argv[3]))"
    if not (REPOSITORY / ".git").exists():
        pytest.skip("no git checkout")
    sources = run(sys.executable, "-B", "-c", hook, REPOSITORY, "build_sdist", tmp_path, cwd=REPOSITORY).strip()
    run("tar", "-C", tmp_path, "-xzf", tmp_path / sources)
    unpacked = tmp_path / sources.removesuffix(".tar.gz")
    assert (unpacked / "PKG-INFO").read_text().startswith("Metadata-Version") and (unpacked / "setup").stat().st_mode & 0o100
    made = run("env", f"LOCKSTEP_BINARY={BINARY}", sys.executable, "-B", "-c", hook, unpacked, "build_wheel", tmp_path, cwd=unpacked).strip()
    assert (tmp_path / made).stat().st_size > 1_000_000
    # Outside of git nothing says what the sources are.
    assert "is no git checkout" in run(sys.executable, "-B", "-c", hook, unpacked, "build_sdist", tmp_path, cwd=unpacked, status=1)

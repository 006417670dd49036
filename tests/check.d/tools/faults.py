"""build/lockstep neither knows nor heeds the variables by which tests kill a program or take its disk away; build/lockstep_faults does both."""
import signal

from harness import BINARY, FAULTS, TMP, check, lockstep, sft_arguments

WITH_FAULTS = BINARY.with_name("lockstep_faults")


def run(program, name, **env):
    return lockstep(*sft_arguments(name, TMP / "runs", steps=1), program=program, env=env)


with check("released-program-knows-no-faults"):
    assert all(variable.encode() in WITH_FAULTS.read_bytes() for variable in FAULTS), "the control does not hold them either"
    for variable in FAULTS:
        assert variable.encode() not in BINARY.read_bytes(), f"{BINARY.name} holds {variable}"

with check("released-program-heeds-no-faults"):
    for number, (variable, ended) in enumerate({"LOCKSTEP_KILL_AT": -signal.SIGKILL, "LOCKSTEP_FAIL_AT": 1}.items()):
        released = run(BINARY, f"released{number}", **{variable: "file.written:1"})
        assert released.returncode == 0, f"{variable}: status {released.returncode}\n{released}"
        control = run(WITH_FAULTS, f"control{number}", **{variable: "file.written:1"})
        assert control.returncode == ended, f"{variable} in the control: status {control.returncode}, not {ended}\n{control}"

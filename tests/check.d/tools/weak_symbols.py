"""No shared inline function may be compiled for AVX-512.

A weak symbol (an inline function, a template) exists in many object files, and the linker keeps one of them for all. If the copy
of a file compiled for AVX-512 were kept, a machine without it would die in a function that has nothing to do with vectors. So in
objects of the AVX-512 kernels, a weak symbol whose code needs AVX-512 must belong to the AVX-512 vector types: then its name
exists in such files alone. Reads the objects that the build left, with nm and objdump.
"""
import re
import subprocess
from pathlib import Path

from harness import BUILD, TMP, check

OWN_TYPES = ("Avx512Vec", "Avx512Double")
# Registers that only AVX-512 has, and mask registers.
REGISTERS = re.compile(r"%(zmm\d|[xy]mm(1[6-9]|2\d|3[01])|k[0-7])\b")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def weak_symbols(path):
    """Mangled names of the weak functions that an object defines."""
    return {line.split()[-1] for line in output("nm", "--defined-only", path).splitlines() if line.split()[-2] in ("W", "V", "u")}


def needs_avx512(line):
    """A line of objdump: address, bytes, instruction. 0x62 begins every EVEX instruction, and in 64 bits nothing else."""
    parts = line.split("\t")
    if len(parts) < 3:
        return False  # bytes that continue the line above, labels
    return parts[1].split()[:1] == ["62"] or REGISTERS.search(parts[2]) is not None


def offenders(path):
    weak = weak_symbols(path)
    found, symbol = {}, None
    for line in output("objdump", "-d", "-w", path).splitlines():
        if match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            symbol = match[1]
        elif symbol in weak and symbol not in found and needs_avx512(line):
            found[symbol] = line.split("\t")[2].strip()
    if not found:
        return {}
    names = output("c++filt", *found).splitlines()
    return {name: instruction for name, instruction in zip(names, found.values()) if not any(own in name for own in OWN_TYPES)}


with check("self-test"):
    # The compiler's own weak copy of an inline function must be found, and one of our type must not.
    source = TMP / "weak.cpp"
    source.write_text("#pragma GCC target(\"avx512f\")\n"
                      "struct Avx512Vec {};\n"
                      "template <class T> __attribute__((noinline)) void halve(double* x) { for (int i = 0; i < 64; ++i) x[i] /= 2; }\n"
                      "inline __attribute__((noinline)) void twice(float* x) { for (int i = 0; i < 64; ++i) x[i] += x[i]; }\n"
                      "void use(float* x, double* y) { twice(x); halve<Avx512Vec>(y); }\n")
    subprocess.run(["g++", "-O3", "-mprefer-vector-width=512", "-c", source, "-o", TMP / "weak.o"], check=True)
    names = list(offenders(TMP / "weak.o"))
    assert names == ["twice(float*)"], f"found {names}, expected twice(float*) alone"

with check("avx512-objects"):
    objects = sorted(p for p in Path(BUILD).rglob("*avx512*.o") if "_test" not in p.name)
    assert objects, f"no AVX-512 object in {BUILD}"
    wrong = [f"{path.name}: {name}: {instruction}" for path in objects for name, instruction in offenders(path).items()]
    print(f"{len(objects)} objects", flush=True)
    assert not wrong, f"{len(wrong)} weak symbols need AVX-512 and are not of its types\n" + "\n".join(wrong[:40])
